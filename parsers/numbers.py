"""Reads numbers as tools write them: strict about text, safe with JSON's integers of any length."""

from __future__ import annotations

import math
import re

from agent.core.errors import ParseError

# Python's own float() also accepts "1_000", blanks and the digits of every script.
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?", re.ASCII)
_NONE = re.compile(r"[-+]?(?:inf(?:inity)?|nan(?:\(\w*\))?)", re.ASCII | re.IGNORECASE)
_ABSENT = {"", "n/a", "none", "null", "-"}
_MOST_DIGITS = 400


def finite(value: object) -> float | None:
    """Return a number of JSON or of a text as a float; None if it is infinite, NaN or not a number."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
            return None
        value = float(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def number(value: object, what: str) -> float | None:
    """Return a number; None if the tool wrote that there is none (``inf``, ``nan``, ``N/A``, empty).

    Args:
        value: the text, or JSON's value.
        what: the name of the number, for the error message.

    Raises:
        ParseError: if the value is anything else, such as a number with a decimal comma.
    """
    result = finite(value)
    if result is not None or value is None or isinstance(value, float):
        return result
    if isinstance(value, str) and (value.strip().lower() in _ABSENT or _NONE.fullmatch(value.strip())):
        return None
    shown = repr(value)[:60]
    if isinstance(value, str) and "," in value and finite(value.replace(",", ".", 1)) is not None:
        raise ParseError(
            f"{what} is {shown}: a number with a decimal comma",
            remedy="run the tool with LC_ALL=C, so that it writes decimal points",
        )
    raise ParseError(f"{what} is {shown}, which is not a number", remedy="see whether the file was changed")


def whole(text: str, what: str = "a number") -> int:
    """Return a whole number of at most 18 digits.

    Raises:
        ParseError: if the text is anything else.
    """
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise ParseError(f"{what} is {text[:60]!r}, which is not a whole number")
    return int(text)


def count(value: object) -> int:
    """Return a count of things; 0 for an empty value.

    Raises:
        ParseError: if the value is not a whole number.
    """
    result = finite(0 if value is None or value == "" else value)
    if result is None or result < 0 or not result.is_integer():
        raise ParseError(f"{str(value)[:60]!r} is not a number of tokens or sequences")
    return int(result)


def measured(value: object, what: str) -> float | None:
    """Return a number that cannot be negative, such as a time or a rate; None if the tool wrote none.

    Raises:
        ParseError: if it is negative, or not a number.
    """
    result = number(value, what)
    if result is not None and result < 0:
        raise ParseError(
            f"{what} is {result:g}, which is below 0",
            remedy="the tool's clock or counters went backwards: run it again",
        )
    return result
