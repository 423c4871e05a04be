"""How names of types, keys and parameters are compared, and what to suggest for a wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def canonical(name: str) -> str:
    """The form in which two spellings of a name are equal: ``TargetQps``, ``target_qps``, ``target-qps``."""
    return name.replace("_", "").replace("-", "").lower()


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like ``name``, best first; empty if none is alike."""
    from difflib import get_close_matches

    by_canonical = {canonical(candidate): candidate for candidate in known}
    return [by_canonical[match] for match in get_close_matches(canonical(name), by_canonical, n=count)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy for a wrong name: the nearest known names, or all of them where none is alike."""
    known = sorted(known)
    if close := nearest(name, known):
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(known)}" if known else "none is known here"
