"""The words of ``{calculate(…)}``: numbers, time spans, quoted text, names, operators, braces."""

from __future__ import annotations

import re

from agent.core.errors import ProfileError

__all__ = ["matching_brace", "tokenize"]

_MAXIMUM_TOKENS = 400
_MAXIMUM_LENGTH = 10_000
_MAXIMUM_DEPTH = 20
"""How deep braces may be nested in an expression: each level is read again by itself."""

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<span>\d+\.\d\d?:\d\d:\d\d(?:\.\d{1,7})?|\d+:\d\d:\d\d(?:\.\d{1,7})?)
    | (?P<number>(?:0[xX][0-9a-fA-F]{1,16}|(?:\d{1,30}(?:\.\d{1,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?)
        [uUlLfFdDmM]{0,2})
    | (?P<text>@"(?:[^"]|"")*"|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<name>[A-Za-z_]\w*)
    | (?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:().,&|^~])
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)


def tokenize(source: str) -> list[tuple[str, str]]:
    """The words of an expression, each with its kind: a group of ``_TOKEN``, or ``brace``.

    Raises:
        ProfileError: where a word is none of these, or where there are too many.
    """
    text = source.rstrip()
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        start = len(text) - len(text[position:].lstrip())
        if text.startswith("{", start):
            end = matching_brace(text, start)
            if end is None:
                raise ProfileError("calculate: a brace is not closed")
            position = end + 1
            tokens.append(("brace", text[start:position]))
        elif match:
            tokens.append((str(match.lastgroup), match[0].strip()))
            position = match.end()
        else:
            raise ProfileError(f"calculate: '{text[start : start + 20]}' is not understood")
        if len(tokens) > _MAXIMUM_TOKENS:
            raise ProfileError("calculate: the expression is too long")
    return tokens


def matching_brace(text: str, start: int) -> int | None:
    """Where the brace closes that opens at ``start``, quoted text left out; None if it never does.

    Raises:
        ProfileError: if what stands between is too long or nested too deeply for an expression.
    """
    depth = 0
    quote = ""
    position = start
    while position < len(text):
        if position - start > _MAXIMUM_LENGTH:
            raise ProfileError(
                f"calculate: it does not end within {_MAXIMUM_LENGTH} characters",
                remedy="close it by )}, or divide it among several parameters",
            )
        character = text[position]
        if quote:
            if character == "\\" and quote != "@":
                position += 1
            elif character == ('"' if quote == "@" else quote):
                quote = ""
        elif character in "\"'":
            quote = "@" if text[position - 1 : position] == "@" else character
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return position
            if depth > _MAXIMUM_DEPTH:
                raise ProfileError(f"calculate: braces are nested deeper than {_MAXIMUM_DEPTH}")
        position += 1
    return None
