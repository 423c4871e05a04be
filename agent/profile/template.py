r"""Separates the expressions in a text from braces that a shell, awk or JSON needs.

An expression is ``$.Parameters.Name``, or one of these in braces (no blank after the first):
``Name``, ``Name.TotalSeconds``, ``PackageDir:name``, ``calculate(…)``. All else is unchanged, including
``${…}`` and text in double braces. A backslash before an expression makes it text, and is removed:
``\{http_code}`` becomes ``{http_code}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from agent.core.errors import ProfileError
from agent.core.names import did_you_mean, nearest
from agent.profile.expression import Expression, matching_brace, parse_expression
from agent.profile.functions import TOTALS

_PARAMETER = re.compile(r"\$\.parameters\.([A-Za-z0-9_-]+)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_TOTAL = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)\.(Total[A-Za-z]+)", re.IGNORECASE)
_LOOKUP = re.compile(r"([A-Za-z]+(?:/[A-Za-z]+)?):((?:[A-Za-z0-9_. -]|\{[^{}]*\})+)")
_CALCULATE = re.compile(r"([A-Za-z]+)\((.*)\)\s*", re.DOTALL)
_START = re.compile(r"\$?\{|\$\.parameters\.", re.IGNORECASE)
_BRACE = re.compile(r"[{}]")
_CALCULATE_START = re.compile(r"\{(?:calculate|fn)\(", re.IGNORECASE)
_ESCAPE = "\\"
_MAXIMUM_LENGTH = 100_000
_LONGEST_EXPRESSION = 10_000


@dataclass(frozen=True)
class Reference:
    """``{Name}``, ``{Name.TotalSeconds}`` or ``$.Parameters.Name``.

    Args:
        raw: as written.
        name: the name of the value.
        unit_s: for a total, the seconds in one unit.
        declared: True if only a declared profile parameter is meant.
    """

    raw: str
    name: str
    unit_s: float | None = None
    declared: bool = False


@dataclass(frozen=True)
class Lookup:
    """``{PackageDir:name}``.

    Args:
        raw: as written.
        head: the kind of lookup.
        argument: the name, which may contain expressions itself.
    """

    raw: str
    head: str
    argument: str


@dataclass(frozen=True)
class Calculation:
    """``{calculate(…)}``.

    Args:
        raw: as written.
        expression: the text between the parentheses.
    """

    raw: str
    expression: Expression


Part = str | Reference | Lookup | Calculation


@lru_cache(maxsize=2048)
def parse_template(text: str) -> tuple[Part, ...]:
    """Return the parts of a text, in order.

    Raises:
        ProfileError: if an expression is incomplete.
    """
    if len(text) > _MAXIMUM_LENGTH:
        raise ProfileError("the text is too long")
    closes = _closing_braces(text)
    parts: list[Part] = []
    literal = position = 0
    while match := _START.search(text, position):
        start = match.start()
        is_escaped = start > literal and text[start - 1] == _ESCAPE
        try:
            part, position = _part(text, start, match[0], closes)
        except ProfileError:
            if not is_escaped:
                raise
            position = start + 1
        else:
            is_escaped = is_escaped and part is not None
        if is_escaped:
            parts.append(text[literal : start - 1])
            literal = start
        elif part is not None:
            parts += [text[literal:start], part]
            literal = position
    parts.append(text[literal:])
    return tuple(part for part in parts if part != "")


def _closing_braces(text: str) -> dict[int, int]:
    """Return the closing position for each brace that is closed."""
    closes: dict[int, int] = {}
    opened: list[int] = []
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif opened:
            closes[opened.pop()] = match.start()
    return closes


def _part(text: str, start: int, opening: str, closes: dict[int, int]) -> tuple[Part | None, int]:
    """Return the expression at a position or None, and the position after it."""
    if opening[:2] == "$.":
        match = _PARAMETER.match(text, start)
        if match is None:
            return None, start + len(opening)
        return Reference(match[0], match[1], declared=True), match.end()
    if opening == "${" or text.startswith("{{", start):
        brace = start + len(opening) - 1
        return None, closes.get(brace, brace) + 1
    end = closes.get(start)
    if _CALCULATE_START.match(text, start):
        end = matching_brace(text, start)
        if end is None:
            raise ProfileError("calculate( is not closed by )}")
    if end is None or end - start > _LONGEST_EXPRESSION:
        return None, start + 1
    part = _expression(text[start + 1 : end], text[start : end + 1])
    if part is None and _CALCULATE_START.match(text, start):
        raise ProfileError("calculate( is not closed by )}")
    return part, start + 1 if part is None else end + 1


def _expression(inner: str, raw: str) -> Part | None:
    if _NAME.fullmatch(inner):
        return Reference(raw, inner)
    if match := _TOTAL.fullmatch(inner):
        units = {name.lower(): unit_s for name, unit_s in TOTALS.items()}
        if match[2].lower() not in units:
            raise ProfileError(f"{raw}: there is no {match[2]}", remedy=did_you_mean(match[2], TOTALS))
        return Reference(raw, match[1], unit_s=units[match[2].lower()])
    if match := _LOOKUP.fullmatch(inner):
        return Lookup(raw, match[1], match[2].strip())
    if match := _CALCULATE.fullmatch(inner):
        if match[1].lower() not in {"calculate", "fn"}:
            if nearest(match[1], ["calculate"]):
                raise ProfileError(f"{raw[:60]}: there is no {match[1]}", remedy="did you mean calculate?")
            return None
        return Calculation(raw, parse_expression(match[2]))
    return None
