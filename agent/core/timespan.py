"""Reads and writes durations of profiles and the command line: ``00:10:00``, ``1.02:03:04``, numbers."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from agent.core.errors import ProfileError

if TYPE_CHECKING:
    from datetime import timedelta

MAXIMUM_S = 366 * 86400 * 100
"""A century: a longer duration is a mistake."""

_CLOCK = re.compile(
    r"(?P<sign>-?)(?:(?P<days>\d{1,7})\.)?(?P<hours>\d{1,7}):(?P<minutes>[0-5]?\d)"
    r"(?::(?P<seconds>[0-5]?\d)(?P<fraction>\.\d{1,7})?)?",
    re.ASCII,
)
_NUMBER = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,9})?)\s*(?P<unit>[A-Za-z]*)", re.ASCII)
_UNITS_S = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def is_timespan(text: str) -> bool:
    """Return True if a text is written as a time span with colons."""
    return _CLOCK.fullmatch(text.strip()) is not None


def parse_timespan(value: str | float, *, number_unit_s: float = 1) -> float:
    """Return the seconds in a duration.

    Args:
        value: ``[d.]hh:mm[:ss[.f]]`` (hours may exceed 23), a number with a unit (``90s``,
            ``10min``, ``1.5h``, ``2d``), or a number alone.
        number_unit_s: the unit of a number alone, in seconds: 1, or 60 if it means minutes.

    Raises:
        ProfileError: if it is none of these, or negative, or beyond a century.
    """
    seconds = None
    text = str(value).strip()
    if isinstance(value, bool):
        pass
    elif match := _CLOCK.fullmatch(text):
        seconds = (
            int(match["days"] or 0) * 86400
            + int(match["hours"]) * 3600
            + int(match["minutes"]) * 60
            + float((match["seconds"] or "0") + (match["fraction"] or ""))
        ) * (-1 if match["sign"] else 1)
    elif (match := _NUMBER.fullmatch(text)) and match["unit"].lower() in ("", *_UNITS_S):
        seconds = float(match["number"]) * _UNITS_S.get(match["unit"].lower(), number_unit_s)
    if seconds is None or not math.isfinite(seconds):
        raise ProfileError(
            f"'{text[:60]}' is not a time span",
            remedy="write hh:mm:ss, d.hh:mm:ss, or a number such as 90s, 10min",
        )
    if not 0 <= seconds <= MAXIMUM_S:
        raise ProfileError(f"the time span '{text[:60]}' is negative or longer than a century")
    return seconds


def format_timespan(span: timedelta) -> str:
    """Return a duration in VirtualClient's form: ``[d.]hh:mm:ss[.fffffff]``."""
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{span.days}." if span.days else ""
    fraction = f".{span.microseconds:06d}0" if span.microseconds else ""
    return f"{days}{hours:02d}:{minutes:02d}:{seconds:02d}{fraction}"
