"""Numbers as llama.cpp's tools print them, some of which are none."""

from __future__ import annotations

import math

__all__ = ["finite"]


def finite(value: object) -> float | None:
    """A number; None for ``inf``, ``nan``, and what is no number."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
