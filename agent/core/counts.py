"""Counts with their nouns."""

from __future__ import annotations


def count_of(count: int, thing: str) -> str:
    """Return a count with its noun: ``1 row``, ``2,001 rows``."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
