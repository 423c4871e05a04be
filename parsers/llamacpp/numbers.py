"""Numbers as llama.cpp's tools print them, some of which are none."""

from __future__ import annotations

import math

from agent.core.errors import ParseError

__all__ = ["count", "finite"]


def finite(value: object) -> float | None:
    """A number; None for ``inf``, ``nan``, and what is no number."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def count(value: object) -> int:
    """How many; 0 for nothing.

    Raises:
        ParseError: if it is no whole number.
    """
    number = finite(0 if value is None or value == "" else value)
    if number is None or number < 0 or not number.is_integer():
        raise ParseError(f"{value!r} is no number of tokens or sequences")
    return int(number)
