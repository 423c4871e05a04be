"""Numbers for people: few digits, a suitable unit, and the exact value."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from agent.core.records import Metric

SIGNIFICANT_DIGITS = 4
_ERROR_DIGITS = 2
NO_BREAK_SPACE = "\u00a0"


class Scale(NamedTuple):
    """The way to show a base unit: the shown number is the value times ``factor``, in ``unit``."""

    factor: float
    unit: str


_SECONDS = (Scale(1, "s"), Scale(1e3, "ms"), Scale(1e6, "µs"), Scale(1e9, "ns"))
_BYTES = tuple(
    Scale(2.0**-power, unit) for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B"))
)
_HERTZ = (Scale(1e-9, "GHz"), Scale(1e-6, "MHz"), Scale(1e-3, "kHz"), Scale(1, "Hz"))

_LADDERS: dict[str, tuple[Scale, ...]] = {
    "seconds": _SECONDS,
    "bytes": _BYTES,
    "bytes/s": tuple(Scale(factor, f"{unit}/s") for factor, unit in _BYTES),
    "hertz": _HERTZ,
    "ratio": (Scale(100, "%"),),
    "percent": (Scale(1, "%"),),
    "count": (Scale(1, ""),),
    "celsius": (Scale(1, "°C"),),
    "watts": (Scale(1, "W"),),
    "joules": (Scale(1, "J"),),
    "times": (Scale(1, "\u00d7"),),
    "perplexity": (Scale(1, ""),),
    "": (Scale(1, ""),),
}
"""Scales from the largest down; the first that gives a number of at least 1 is used, else the last."""

_SPELLINGS = {
    "s": "seconds",
    "sec": "seconds",
    "second": "seconds",
    "byte": "bytes",
    "b": "bytes",
    "bytes/sec": "bytes/s",
    "hz": "hertz",
    "%": "percent",
    "c": "celsius",
    "°c": "celsius",
    "degrees_celsius": "celsius",
    "w": "watts",
    "watt": "watts",
    "j": "joules",
    "joule": "joules",
}

_SPELLED = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "qps": "QPS",
    "gpu": "GPU",
    "cpu": "CPU",
    "mmlu": "MMLU",
    "e2e": "end-to-end",
}
_PERCENTILE = re.compile(r"p\d+")

_TIME_AXIS = ((3 * 3600.0, Scale(1 / 3600, "h")), (300.0, Scale(1 / 60, "min")), (0.0, Scale(1, "s")))


@dataclass(frozen=True)
class Quantity:
    """A number to show.

    Args:
        number: a few digits, with separators for thousands.
        unit: the unit of the number; may be empty.
        exact: the value in its base unit with all its digits.
    """

    number: str
    unit: str
    exact: str

    def __str__(self) -> str:
        """Return number and unit, joined by a non-breaking space."""
        return f"{self.number}{NO_BREAK_SPACE}{self.unit}" if self.unit else self.number


def format_number(value: float, digits: int = SIGNIFICANT_DIGITS) -> str:
    """Return a number with up to ``digits`` significant digits; whole numbers keep all their digits."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size < 1e15 and value == int(value):  # noqa: PLR2004 - a double holds every whole number below this
        return f"{int(value):,}"
    if not 1e-4 <= size < 1e15:  # noqa: PLR2004
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scale_for(unit: str, magnitude: float) -> Scale:
    """Return the unit in which a value of this magnitude is easiest to read.

    Args:
        unit: the base unit, as the metric names it; an unknown unit is shown unchanged.
        magnitude: the largest absolute value to show, in the base unit.
    """
    name = unit.strip()
    ladder = _LADDERS.get(_SPELLINGS.get(name.lower(), name.lower()), (Scale(1, name),))
    if magnitude == 0 or not math.isfinite(magnitude):
        return ladder[0] if ladder is _SECONDS else ladder[-1]
    return next((scale for scale in ladder if abs(magnitude) * scale.factor >= 1), ladder[-1])


def time_scale(length_s: float) -> Scale:
    """Return the unit for a time axis of this length: seconds, minutes or hours."""
    return next((scale for least_s, scale in _TIME_AXIS if length_s > least_s), Scale(1, "s"))


def quantity(
    value: float, unit: str, like: float | None = None, digits: int = SIGNIFICANT_DIGITS
) -> Quantity:
    """Return a value in its base unit as a quantity to show.

    Args:
        value: the value.
        unit: its base unit.
        like: a value whose unit is used, so that the numbers of a row can be compared at a glance.
        digits: the number of significant digits.
    """
    scale = scale_for(unit, value if like is None else like)
    exact = f"{value!r} {unit}".strip()
    return Quantity(format_number(value * scale.factor, digits), scale.unit, exact)


def format_duration(seconds: float) -> str:
    """Return a duration for people: ``0.42 s``, ``12 min 03 s``, ``1 h 02 min``."""
    if seconds < 60:  # noqa: PLR2004
        return str(quantity(round(seconds, 3 if seconds < 1 else 1), "seconds")) if seconds else "0 s"
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest_s = divmod(rest, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest_s:02} s"


def words(name: str) -> str:
    """Return a metric's name as words: ``ttft_p99`` is ``TTFT p99``."""
    parts = [_SPELLED.get(part.lower(), part) for part in name.replace("_", " ").split()]
    text = " ".join(parts)
    return text[:1].upper() + text[1:] if parts and not _PERCENTILE.fullmatch(parts[0]) else text


def with_error(value: float, error: float, unit: str) -> str:
    """Return a value and its standard error in one unit, without a place to break: ``51.7 ± 3.7 %``."""
    shown = quantity(error, unit, like=value, digits=_ERROR_DIGITS)
    number = format_number(value * scale_for(unit, value).factor)
    return NO_BREAK_SPACE.join(filter(None, (number, "±", shown.number, shown.unit)))


def metric_text(metric: Metric) -> str:
    """Return a metric in words as the result's table shows it: ``TTFT p99 115.2 ms``."""
    return f"{words(metric.name)} {plain_quantity(metric.value, metric.unit)}"


def plain_quantity(value: float, unit: str) -> str:
    """Return a quantity for a line of text, with an ordinary space: ``115.2 ms``."""
    return str(quantity(value, unit)).replace(NO_BREAK_SPACE, " ")
