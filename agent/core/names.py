"""Compares names of types, keys and parameters, and suggests names for a wrong one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """Return the form shared by all spellings of a name: ``TargetQps``, ``target_qps``, ``target-qps``."""
    return name.replace("_", "").replace("-", "").lower()


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names most similar to ``name``, best first; empty if none is similar."""
    from difflib import get_close_matches

    by_canonical = {canonical(candidate): candidate for candidate in known}
    return [by_canonical[match] for match in get_close_matches(canonical(name), by_canonical, n=count)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a remedy for a wrong name: the nearest known names, or all names if none is similar."""
    known = sorted(known)
    if close := nearest(name, known):
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(known)}" if known else "none is known here"
