"""The functions, methods and properties of ``{calculate(…)}``: .NET's names, in any case.

A method is written ``.name()`` and takes the value before the point first; a property is written ``.name``.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agent.core.timespan import parse_timespan
from agent.profile.values import KindError, is_number, kind_of, text_of, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST_REPLACEMENT = 100_000


def _number(value: Any) -> int | float:
    if not is_number(value):
        raise KindError(f"a number is expected, not {kind_of(value)}")
    number: int | float = value
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise KindError(f"text is expected, not {kind_of(value)}")
    return value


def _span(value: Any) -> timedelta:
    value = value_of(value)
    if not isinstance(value, timedelta):
        raise KindError(f"a time span is expected, not {kind_of(value)}")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise KindError(f"true or false is expected, not {kind_of(value)}")
    return value


def _int(value: Any) -> int:
    return int(_number(value_of(value)))


def _float(value: Any) -> float:
    return float(_number(value_of(value)))


def _bool(value: Any) -> bool:
    return _truth(value_of(value))


def _replace(text: Any, old: Any, new: Any) -> str:
    if len(_text(text)) * (len(_text(new)) + 1) > _LONGEST_REPLACEMENT or not old:
        raise OverflowError
    return str(text.replace(_text(old), new))


def _substring(text: Any, start: Any, length: Any = None) -> str:
    begin = int(_number(start))
    end = len(_text(text)) if length is None else begin + int(_number(length))
    if not 0 <= begin <= end <= len(text):
        raise KindError("Substring goes beyond the text")
    return str(text[begin:end])


def _round(value: Any, digits: Any = 0) -> float:
    """Round a number as in .NET: half goes to the even neighbour, as in Python."""
    rounded = round(float(_number(value)), int(_number(digits)))
    return rounded if digits else _whole(rounded)


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value


def _of_numbers(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: apply(*map(_number, values))


def _of_texts(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: apply(*map(_text, values))


def _seconds(unit_s: float) -> Callable[[Any], timedelta]:
    return lambda value: timedelta(seconds=parse_timespan(_number(value) * unit_s))


def _total(unit_s: float) -> Callable[[Any], int | float]:
    return lambda value: _whole(_span(value).total_seconds() / unit_s)


TOTALS: Mapping[str, float] = {
    "TotalDays": 86400,
    "TotalHours": 3600,
    "TotalMinutes": 60,
    "TotalSeconds": 1,
    "TotalMilliseconds": 0.001,
}
"""Units of a time span, with their seconds."""

_MATH: Mapping[str, Callable[..., Any]] = {
    "abs": _of_numbers(abs),
    "ceiling": _of_numbers(math.ceil),
    "floor": _of_numbers(math.floor),
    "log": _of_numbers(math.log),
    "log10": _of_numbers(math.log10),
    "log2": _of_numbers(math.log2),
    "max": _of_numbers(max),
    "min": _of_numbers(min),
    "pow": _of_numbers(lambda base, exponent: _whole(math.pow(base, exponent))),
    "round": _round,
    "sqrt": _of_numbers(lambda value: _whole(math.sqrt(value))),
    "truncate": _of_numbers(math.trunc),
}

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{f"math.{name}": function for name, function in _MATH.items()},
    **_MATH,
    "timespan.parse": _span,
    "timespan.fromdays": _seconds(86400),
    "timespan.fromhours": _seconds(3600),
    "timespan.fromminutes": _seconds(60),
    "timespan.fromseconds": _seconds(1),
    "timespan.frommilliseconds": _seconds(0.001),
    **{f".{name.lower()}": _total(unit_s) for name, unit_s in TOTALS.items()},
    **dict.fromkeys(("int.parse", "int.cast", "long.parse", "convert.toint32", "convert.toint64"), _int),
    **dict.fromkeys(("double.parse", "double.cast", "decimal.parse", "convert.todouble"), _float),
    **dict.fromkeys(("bool.parse", "bool.cast", "convert.toboolean"), _bool),
    "string.cast": text_of,
    "string.concat": lambda *values: "".join(map(text_of, values)),
    "string.isnullorempty": lambda value: value in (None, ""),
    "string.isnullorwhitespace": lambda value: value is None or not _text(value).strip(),
    "convert.tostring": text_of,
    ".tostring()": text_of,
    ".startswith()": _of_texts(str.startswith),
    ".endswith()": _of_texts(str.endswith),
    ".contains()": _of_texts(lambda text, part: part in text),
    ".indexof()": _of_texts(str.find),
    ".tolower()": _of_texts(str.lower),
    ".tolowerinvariant()": _of_texts(str.lower),
    ".toupper()": _of_texts(str.upper),
    ".toupperinvariant()": _of_texts(str.upper),
    ".trim()": _of_texts(str.strip),
    ".replace()": _replace,
    ".substring()": _substring,
    ".equals()": lambda left, right: bool(left == right),
    ".length": _of_texts(len),
    "truth": _truth,
}
"""Functions by name in lower case."""
