"""Values within expressions: reading them from text, and writing them into text."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from agent.core.errors import ProfileError
from agent.core.timespan import format_timespan, is_timespan, parse_timespan

_LARGEST = 2**64
_MAXIMUM_LENGTH = 100_000
_MAXIMUM_DIGITS = 15


class KindError(TypeError):
    """Values of incompatible kinds; the message does not show a value."""


def value_of(value: Any) -> Any:
    """Return a parameter's value within an expression: a number written as text becomes a number."""
    if not isinstance(value, str):
        return value
    from agent.profile.yaml_text import plain_scalar

    text = value.strip()
    if is_timespan(text) and text.count(":") > 1 and not text.startswith("-"):
        return timedelta(seconds=parse_timespan(text))
    scalar = plain_scalar(text) if text else value
    if isinstance(scalar, str):
        try:
            number = float(text) if len(text) <= _MAXIMUM_DIGITS and text[-1:].isdigit() else None
        except ValueError:
            number = None
        return value if number is None or not math.isfinite(number) else _shortest(number)
    return scalar


def text_of(value: Any) -> str:
    """Return a value within a text, as VirtualClient writes it: ``true``, ``60`` for 60.0, empty for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST:
        return str(int(value))
    if isinstance(value, timedelta):
        return format_timespan(value)
    if isinstance(value, list):
        return ",".join(text_of(entry) for entry in value)
    if isinstance(value, dict):
        raise ProfileError("a mapping cannot stand within a text")
    return str(value)


def _shortest(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def bounded(value: Any) -> Any:
    """Return a value after checking that it is not too large.

    Raises:
        OverflowError: if it is too large.
    """
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise OverflowError
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError
    if isinstance(value, str) and len(value) > _MAXIMUM_LENGTH:
        raise OverflowError
    return value


def kind_of(value: Any) -> str:
    """Return the kind of a value, in words."""
    names = {bool: "a truth value", str: "text", timedelta: "a time span", type(None): "null"}
    return names.get(type(value), "a number")


def is_number(value: Any) -> bool:
    """Return True if a value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
