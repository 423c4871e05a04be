"""Evaluates ``{calculate(…)}``: the part of C# expressions that profiles use, as a grammar and its values.

VirtualClient hands the text to the C# compiler. Here lark parses it with C#'s precedence, and the tree is
evaluated directly, so that no text of a profile becomes code. A part in braces is not put into the text, as
VirtualClient does, but kept as a value: a quote or an operator in it has no effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError, VcagentError
from agent.core.names import did_you_mean
from agent.core.timespan import parse_timespan
from agent.profile.functions import FUNCTIONS
from agent.profile.operations import BINARY, negative
from agent.profile.values import KindError, bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lark import Lark, Token, Tree
    from lark.exceptions import UnexpectedToken

_GRAMMAR = r"""
?ternary: any | any "?" ternary ":" ternary -> choose
?any: all ("||" all)*
?all: or ("&&" or)*
?or: xor | or PIPE xor -> binary
?xor: and | xor CARET and -> binary
?and: equality | and AMPERSAND equality -> binary
?equality: order | equality EQUALITY order -> binary
?order: sum | order ORDER sum -> binary
?sum: product | sum SIGN product -> binary
?product: unary | product FACTOR unary -> binary
?unary: "!" unary -> no | SIGN unary -> signed | "(" CAST ")" unary -> cast | member
?member: primary | member "." NAME -> property | member "." NAME "(" arguments ")" -> method
?primary: "(" ternary ")" | SPAN -> span | NUMBER -> number | CONSTANT -> constant | TEXT -> text
  | BRACE -> brace | path "(" arguments ")" -> function
path: (NAME | CAST) ("." NAME)*
arguments: [ternary ("," ternary)*]

SPAN.3: /\d+\.\d\d?:\d\d:\d\d(\.\d{1,7})?|\d+:\d\d:\d\d(\.\d{1,7})?/
NUMBER.2: /(0[xX][0-9a-fA-F]{1,16}|(\d{1,30}(\.\d{1,30})?|\.\d{1,30})([eE][-+]?\d{1,3})?)[uUlLfFdDmM]{0,2}/
TEXT: /@"([^"]|"")*"|"([^"\\]|\\.)*"|'([^'\\]|\\.)*'/s
BRACE: /\x01\d+\x01/
CONSTANT.2: /(true|false|null)\b/
CAST.2: /(s?byte|u?short|u?int|u?long|double|float|decimal|bool|string)\b/
NAME: /[A-Za-z_]\w*/
EQUALITY.1: "==" | "!="
ORDER: "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
FACTOR: "*" | "/" | "%"
PIPE: "|"
CARET: "^"
AMPERSAND: "&"
%ignore /\s+/
"""
_MAXIMUM_TOKENS = 400
_MAXIMUM_DEPTH = 30
_LONGEST_BRACE = 10_000
_DEEPEST_BRACE = 20
"""Deepest nesting of braces in an expression: each level is parsed again."""

_QUOTED = r"""@"(?:[^"]|"")*"|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_QUOTED_OR_BRACE = re.compile(rf"{_QUOTED}|\{{|\x01", re.DOTALL)
_QUOTED_OR_BRACES = re.compile(rf"{_QUOTED}|[{{}}\"']", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'"}
_CONSTANTS = {"true": True, "false": False, "null": None}
_CASTS = {"double": "double", "float": "double", "decimal": "double", "bool": "bool", "string": "string"}
"""The function of a cast; all other types use int's."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Args:
        tree: its tree.
        braces: the texts in braces, by the number that the tree has for them.
    """

    tree: Tree[Token]
    braces: tuple[str, ...]

    def templates(self) -> list[str]:
        """Return the texts that refer to parameters: texts in braces, and quoted texts with braces."""
        texts = [_unquoted(str(part.children[0])) for part in self.tree.find_data("text")]
        return [*self.braces, *(text for text in texts if "{" in text)]


def parse_expression(source: str) -> Expression:
    """Parse the text between the parentheses of ``calculate``.

    Raises:
        ProfileError: if it is not an expression, or names a function that does not exist.
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    text, braces = _without_braces(source)
    try:
        tokens = list(_parser().lex(text))
        _check_size(tokens)
        tree: Any = _parser().parse(text)
    except UnexpectedCharacters as error:
        raise ProfileError(f"calculate: '{text[error.pos_in_stream :][:20]}' is not understood") from None
    except UnexpectedToken as error:
        raise _unexpected(error, tokens, braces) from None
    except UnexpectedInput:
        raise ProfileError("calculate: a value is expected at the end") from None
    for part in tree.find_pred(lambda one: one.data in {"function", "property", "method"}):
        _function(part)
    return Expression(tree, braces)


def _check_size(tokens: Sequence[Token]) -> None:
    """Refuse expressions that would take long or nest too deeply."""
    if len(tokens) > _MAXIMUM_TOKENS:
        raise ProfileError("calculate: the expression is too long")
    depth = prefixes = 0
    for token in tokens:
        depth += {"LPAR": 1, "RPAR": -1, "QMARK": 1}.get(token.type, 0)
        prefixes = prefixes + 1 if token.type in {"BANG", "SIGN", "LPAR", "CAST"} else 0
        if depth > _MAXIMUM_DEPTH or prefixes > 2 * _MAXIMUM_DEPTH:
            raise ProfileError("calculate: the expression is nested too deeply")


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(_GRAMMAR, start="ternary", parser="lalr")


def _without_braces(source: str) -> tuple[str, tuple[str, ...]]:
    """Replace each brace outside of quotes by a mark."""
    parts: list[str] = []
    braces: list[str] = []
    position = 0
    while match := _QUOTED_OR_BRACE.search(source, position):
        parts.append(source[position : match.start()])
        position = match.end()
        if match[0] == "\x01":
            raise ProfileError("calculate: a control character is not understood")
        if match[0] != "{":
            parts.append(match[0])
            continue
        end = matching_brace(source, match.start())
        if end is None:
            raise ProfileError("calculate: a brace is not closed")
        parts.append(f"\x01{len(braces)}\x01")
        braces.append(source[match.start() : end + 1])
        position = end + 1
    return "".join([*parts, source[position:]]), tuple(braces)


def matching_brace(text: str, start: int) -> int | None:
    """Return the position of the brace that closes the one at ``start`` (ignoring quotes), or None.

    Raises:
        ProfileError: if the text between is too long or nested too deeply for an expression.
    """
    depth, position = 0, start
    for match in re.compile(
        r"""@"(?:[^"]|"")*"|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}]|["']""", re.DOTALL
    ).finditer(text, start):
        position = match.start()
        if position - start > _LONGEST_BRACE:
            break
        if match[0] in {'"', "'"}:
            return None  # a quote that is not closed
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return position
        if depth > _DEEPEST_BRACE:
            raise ProfileError(f"calculate: braces are nested deeper than {_DEEPEST_BRACE}")
    if position - start > _LONGEST_BRACE or len(text) - start > _LONGEST_BRACE:
        raise ProfileError(
            f"calculate: it does not end within {_LONGEST_BRACE} characters",
            remedy="close it by )}, or divide it among several parameters",
        )
    return None


def _unexpected(error: UnexpectedToken, tokens: Sequence[Token], braces: Sequence[str]) -> ProfileError:
    """Return the error that names the expected token and its position."""
    end = error.token.type == "$END"
    before = tokens[-1] if end and tokens else None
    for one, following in pairwise(tokens):
        if not end and following.start_pos == error.token.start_pos:
            before = one
    if before is not None and before.type in {"NAME", "CAST"}:
        return ProfileError(
            f"calculate: '{before}' is neither a function nor a value",
            remedy=f'write {{{before}}} for a parameter, "{before}" for text',
        )
    if before is not None and before.type == "DOT":
        what = "a name is expected after the point"
    elif "NUMBER" in error.accepts:
        what = "a value is expected"
    else:
        what = "an operator is expected" if "COMMA" not in error.accepts else "an operator or ',' is expected"
    token = re.sub(r"\x01(\d+)\x01", lambda match: braces[int(match[1])], "" if end else str(error.token))
    return ProfileError(
        f"calculate: {what} before '{token[:20]}'" if token else f"calculate: {what} at the end"
    )


def _function(part: Tree[Token]) -> Callable[..., Any]:
    """Return the function of a call, a method or a property.

    Raises:
        ProfileError: if it does not exist, with the nearest name.
    """
    if part.data == "function":
        names = [str(name).lower() for name in part.children[0].children]  # type: ignore[union-attr]
        name = ".".join(names[1:] if names[0] == "system" and names[1:] else names)
    else:
        name = f".{part.children[1]}".lower() + ("()" if part.data == "method" else "")
    if name not in FUNCTIONS:
        known = [known for known in FUNCTIONS if not known.endswith(".cast") and known != "truth"]
        raise ProfileError(f"calculate: there is no '{name}'", remedy=did_you_mean(name, known))
    return FUNCTIONS[name]


def evaluate(expression: Expression, resolve: Callable[[str, bool], Any]) -> Any:
    """Return the value of an expression: a number, a truth value, text, a ``timedelta`` or None.

    Args:
        expression: the expression.
        resolve: returns the value of a text with braces; called only if needed. The second argument is True
            if the text is in quotes.

    Raises:
        ProfileError: if it has no value: division by zero, incompatible kinds, a number that is too large.
    """
    try:
        return bounded(_value(expression.tree, expression.braces, resolve))
    except VcagentError:
        raise
    except ZeroDivisionError as error:
        raise ProfileError("calculate: division by zero") from error
    except (OverflowError, RecursionError) as error:
        raise ProfileError("calculate: the result is too large") from error
    except KindError as error:
        raise ProfileError(f"calculate: {error}") from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProfileError("calculate: an operator or function got what it cannot take") from error


def _value(tree: Any, braces: Sequence[str], resolve: Callable[[str, bool], Any]) -> Any:  # noqa: PLR0911
    """Return the value of a part; evaluate only the needed parts."""

    def of(part: Any) -> Any:
        return _value(part, braces, resolve)

    truth, kind, parts = FUNCTIONS["truth"], tree.data, tree.children
    if kind == "choose":
        return of(parts[1] if truth(of(parts[0])) else parts[2])
    if kind in {"any", "all"}:
        return (any if kind == "any" else all)(truth(of(part)) for part in parts)
    if kind == "no":
        return not truth(of(parts[0]))
    if kind == "signed":
        value = of(parts[1])
        return negative(value) if parts[0] == "-" else +value
    if kind == "binary":
        return BINARY[str(parts[1])](of(parts[0]), of(parts[2]))
    if kind == "cast":
        return FUNCTIONS[f"{_CASTS.get(str(parts[0]), 'int')}.cast"](of(parts[1]))
    if kind in {"function", "property", "method"}:
        subject = [] if kind == "function" else [of(parts[0])]
        arguments = (
            [] if kind == "property" else [of(part) for part in parts[-1].children if part is not None]
        )
        return _function(tree)(*subject, *arguments)
    return _literal(kind, str(parts[0]), braces, resolve)


def _literal(kind: str, text: str, braces: Sequence[str], resolve: Callable[[str, bool], Any]) -> Any:
    if kind == "number":
        return _number(text)
    if kind == "span":
        return timedelta(seconds=parse_timespan(text))
    if kind == "constant":
        return _CONSTANTS[text]
    if kind == "brace":
        return resolve(braces[int(text.strip("\x01"))], False)
    content = _unquoted(text)
    return resolve(content, True) if "{" in content else content


def _number(text: str) -> int | float:
    if text[:2].lower() == "0x":
        return int(text.rstrip("uUlL"), 16)
    digits = text.rstrip("uUlLfFdDmM")
    suffix = text[len(digits) :].lower()
    return float(digits) if set(suffix) & set("fdm") or not digits.isdigit() else int(digits)


def _unquoted(text: str) -> str:
    if text.startswith("@"):
        return text[2:-1].replace('""', '"')
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text[1:-1], flags=re.DOTALL)
