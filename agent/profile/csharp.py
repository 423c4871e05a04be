"""The grammar of ``{calculate(…)}``: the part of C# expressions that profiles use, as a Python syntax tree.

VirtualClient hands the text to the C# compiler. Here it is parsed with C#'s precedence into nodes that
simpleeval evaluates, so that no text of a profile ever becomes code. What stands in braces inside is not put
into the text, as VirtualClient does, but kept as a value: a quote or an operator in it has no effect.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from datetime import timedelta

from agent.core.errors import ProfileError
from agent.core.timespan import parse_timespan
from agent.profile.tokens import tokenize

__all__ = ["Expression", "parse_expression"]

_MAXIMUM_DEPTH = 30
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'"}
_CASTS = {
    **dict.fromkeys(("byte", "sbyte", "short", "ushort", "int", "uint", "long", "ulong"), "int.cast"),
    **dict.fromkeys(("double", "float", "decimal"), "double.cast"),
    "bool": "bool.cast",
    "string": "string.cast",
}
_ROOTS = {"math", "timespan", "string", "int", "long", "double", "decimal", "bool", "convert", "datetime"}
_BINARY: tuple[dict[str, ast.operator | ast.cmpop], ...] = (
    {"|": ast.BitOr()},
    {"^": ast.BitXor()},
    {"&": ast.BitAnd()},
    {"==": ast.Eq(), "!=": ast.NotEq()},
    {"<": ast.Lt(), "<=": ast.LtE(), ">": ast.Gt(), ">=": ast.GtE()},
    {"+": ast.Add(), "-": ast.Sub()},
    {"*": ast.Mult(), "/": ast.Div(), "%": ast.Mod()},
)


@dataclass
class Expression:
    """A parsed expression.

    Args:
        source: its text, for messages.
        node: the tree; ``v0``, ``v1``, … in it are names of ``values`` and ``templates``.
        values: constants that Python has no literal for.
        templates: texts with braces, to be resolved; and whether each stands in quotes.
    """

    source: str
    node: ast.expr = field(default_factory=lambda: ast.Constant(None))
    values: dict[str, timedelta] = field(default_factory=dict)
    templates: dict[str, tuple[str, bool]] = field(default_factory=dict)


def parse_expression(source: str) -> Expression:
    """Parse what stands between the parentheses of ``calculate``.

    Raises:
        ProfileError: if it is no expression.
    """
    return _Parser(source).parse()


class _Parser:
    def __init__(self, source: str) -> None:
        self.expression = Expression(source)
        self.depth = 0
        self.tokens = tokenize(source)
        self.at = 0

    def parse(self) -> Expression:
        self.expression.node = self._ternary()
        if self.at < len(self.tokens):
            raise self._problem()
        return self.expression

    def _ternary(self) -> ast.expr:
        self.depth += 1
        if self.depth > _MAXIMUM_DEPTH:
            raise ProfileError("calculate: the expression is nested too deeply")
        node = self._logical("||", "&&")
        if self._take("?"):
            body = self._ternary()
            self._expect(":")
            node = ast.IfExp(test=_truth(node), body=body, orelse=self._ternary())
        self.depth -= 1
        return node

    def _logical(self, operator: str, *tighter: str) -> ast.expr:
        operands = [self._logical(*tighter) if tighter else self._binary(0)]
        while self._take(operator):
            operands.append(self._logical(*tighter) if tighter else self._binary(0))
        if len(operands) == 1:
            return operands[0]
        kind = ast.Or() if operator == "||" else ast.And()
        return ast.BoolOp(op=kind, values=[_truth(operand) for operand in operands])

    def _binary(self, level: int) -> ast.expr:
        if level == len(_BINARY):
            return self._unary()
        node = self._binary(level + 1)
        while (operator := self._peek("operator")) and operator in _BINARY[level]:
            self.at += 1
            right = self._binary(level + 1)
            kind = _BINARY[level][operator]
            if isinstance(kind, ast.cmpop):
                node = ast.Compare(left=node, ops=[kind], comparators=[right])
            else:
                node = ast.BinOp(left=node, op=kind, right=right)
        return node

    def _unary(self) -> ast.expr:
        self.depth += 1
        if self.depth > _MAXIMUM_DEPTH:
            raise ProfileError("calculate: the expression is nested too deeply")
        node = self._prefixed()
        self.depth -= 1
        return node

    def _prefixed(self) -> ast.expr:
        if self._take("!"):
            return ast.UnaryOp(op=ast.Not(), operand=_truth(self._unary()))
        if self._take("-"):
            return ast.UnaryOp(op=ast.USub(), operand=self._unary())
        if self._take("+"):
            return ast.UnaryOp(op=ast.UAdd(), operand=self._unary())
        after = self.tokens[self.at : self.at + 3]
        if [text for _, text in after[::2]] == ["(", ")"] and after[1][1] in _CASTS:
            self.at += 3
            return _call(_CASTS[after[1][1]], [self._unary()])
        return self._members(self._primary())

    def _members(self, node: ast.expr) -> ast.expr:
        while self._take("."):
            name = self._name()
            arguments = self._arguments() if self._take("(") else None
            node = _call(f".{name}" if arguments is None else f".{name}()", [node, *(arguments or [])])
        return node

    def _primary(self) -> ast.expr:
        if self.at >= len(self.tokens):
            raise self._problem()
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return ast.Constant(_number(text))
        if kind == "span":
            return self._value(timedelta(seconds=parse_timespan(text)))
        if kind == "brace":
            return self._template(text, quoted=False)
        if kind == "text":
            content = _unquoted(text)
            return self._template(content, quoted=True) if "{" in content else ast.Constant(content)
        if kind == "name":
            return self._named(text)
        if text == "(":
            node = self._ternary()
            self._expect(")")
            return node
        self.at -= 1
        raise self._problem()

    def _named(self, name: str) -> ast.expr:
        constants = {"true": True, "false": False, "null": None}
        if name in constants:
            return ast.Constant(constants[name])
        if name.lower() == "system" and self._take("."):
            name = self._name()
        if name.lower() in _ROOTS and self._take("."):
            name = f"{name}.{self._name()}"
        if self._take("("):
            return _call(name, self._arguments())
        raise ProfileError(
            f"calculate: '{name}' is neither a function nor a value",
            remedy=f'write {{{name}}} for a parameter, "{name}" for text',
        )

    def _arguments(self) -> list[ast.expr]:
        arguments: list[ast.expr] = []
        if self._take(")"):
            return arguments
        while True:
            arguments.append(self._ternary())
            if self._take(")"):
                return arguments
            self._expect(",")

    def _value(self, value: timedelta) -> ast.expr:
        name = f"v{len(self.expression.values) + len(self.expression.templates)}"
        self.expression.values[name] = value
        return ast.Name(id=name, ctx=ast.Load())

    def _template(self, text: str, *, quoted: bool) -> ast.expr:
        name = f"v{len(self.expression.values) + len(self.expression.templates)}"
        self.expression.templates[name] = (text, quoted)
        return ast.Name(id=name, ctx=ast.Load())

    def _peek(self, kind: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at][0] == kind:
            return self.tokens[self.at][1]
        return None

    def _take(self, operator: str) -> bool:
        taken = self._peek("operator") == operator
        self.at += taken
        return taken

    def _expect(self, operator: str) -> None:
        if not self._take(operator):
            raise self._problem(f"'{operator}' is expected")

    def _name(self) -> str:
        name = self._peek("name")
        if name is None:
            raise self._problem("a name is expected after the point")
        self.at += 1
        return name

    def _problem(self, message: str = "a value is expected") -> ProfileError:
        if self.at < len(self.tokens):
            return ProfileError(f"calculate: {message} before '{self.tokens[self.at][1][:20]}'")
        return ProfileError(f"calculate: {message} at the end")


def _truth(node: ast.expr) -> ast.expr:
    return _call("truth", [node])


def _call(name: str, arguments: list[ast.expr]) -> ast.expr:
    return ast.Call(func=ast.Name(id=name.lower(), ctx=ast.Load()), args=arguments, keywords=[])


def _number(text: str) -> int | float:
    if text[:2].lower() == "0x":
        return int(text.rstrip("uUlL"), 16)
    digits = text.rstrip("uUlLfFdDmM")
    suffix = text[len(digits) :].lower()
    if set(suffix) & set("fdm") or not digits.isdigit():
        return float(digits)
    return int(digits)


def _unquoted(text: str) -> str:
    if text.startswith("@"):
        return text[2:-1].replace('""', '"')
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text[1:-1], flags=re.DOTALL)
