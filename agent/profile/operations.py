"""C#'s operators for the values of expressions."""

from __future__ import annotations

import math
import operator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agent.profile.values import KindError, bounded, is_number, kind_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _mismatch(symbol: str, left: Any, right: Any) -> KindError:
    return KindError(f"{kind_of(left)} {symbol} {kind_of(right)} has no value")


def _arithmetic(symbol: str, apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def calculate(left: Any, right: Any) -> Any:
        if not (is_number(left) and is_number(right)):
            raise _mismatch(symbol, left, right)
        return bounded(apply(left, right))

    return calculate


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, str) or isinstance(right, str):
        return bounded(text_of(left) + text_of(right))
    if isinstance(left, timedelta) and isinstance(right, timedelta):
        return left + right
    return _arithmetic("+", operator.add)(left, right)


def _subtract(left: Any, right: Any) -> Any:
    if isinstance(left, timedelta) and isinstance(right, timedelta):
        # VirtualClient: a time span never becomes negative (ProfileExpressionEvaluator.cs).
        return max(left - right, timedelta())
    return _arithmetic("-", operator.sub)(left, right)


def _multiply(left: Any, right: Any) -> Any:
    spans = [value for value in (left, right) if isinstance(value, timedelta)]
    if len(spans) == 1 and (is_number(left) or is_number(right)):
        return left * right
    return _arithmetic("*", operator.mul)(left, right)


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, timedelta) and (isinstance(right, timedelta) or is_number(right)):
        return left / right
    return _arithmetic("/", _quotient)(left, right)


def _quotient(left: float, right: float) -> float:
    """Divide as in C#: whole numbers give a whole number, rounded towards zero."""
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return left / right


def _remainder(left: float, right: float) -> float:
    """Return the remainder as in C#: it has the sign of the dividend."""
    if isinstance(left, int) and isinstance(right, int):
        return left - right * int(_quotient(left, right))
    return math.fmod(left, right) if right else left % right


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, str) != isinstance(right, str) and None not in (left, right):
        return text_of(left) == text_of(right)
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _ordered(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def calculate(left: Any, right: Any) -> bool:
        both_spans = isinstance(left, timedelta) and isinstance(right, timedelta)
        if not both_spans and not (is_number(left) and is_number(right)):
            raise _mismatch(symbol, left, right)
        return compare(left, right)

    return calculate


def _bitwise(symbol: str, apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def calculate(left: Any, right: Any) -> Any:
        if not isinstance(left, int) or type(left) is not type(right):
            raise _mismatch(symbol, left, right)
        return apply(left, right)

    return calculate


def negative(value: Any) -> Any:
    """Return the negative of a number."""
    if not is_number(value):
        raise KindError(f"- {kind_of(value)} has no value")
    return -value


BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _arithmetic("%", _remainder),
    "&": _bitwise("&", operator.and_),
    "|": _bitwise("|", operator.or_),
    "^": _bitwise("^", operator.xor),
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered("<", operator.lt),
    "<=": _ordered("<=", operator.le),
    ">": _ordered(">", operator.gt),
    ">=": _ordered(">=", operator.ge),
}
"""Operators by symbol."""
