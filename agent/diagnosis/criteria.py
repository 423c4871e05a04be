"""The expression of a rule, true for a defect: numbers, comparisons and a few functions, nothing else."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.core.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LABEL = "label"
"""Name of earlier rules' results in multi_rules."""

_LONGEST = 1000
_DEEPEST = 50
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function for function in (abs, bool, float, int, len, max, min, round, sum)
}
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.UAdd, ast.Not)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


@dataclass(frozen=True)
class Criterion:
    """A checked expression.

    Args:
        text: as written.
        body: the expression.
        names: the variable for each of its names.
        counts: the rules whose number of defects it uses.
        values: the rules whose values it uses.
    """

    text: str
    body: ast.expr
    names: Mapping[str, str]
    counts: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()

    def uses(self, variable: str) -> bool:
        """Return True if the expression depends on a variable."""
        return variable in self.names.values()

    def holds(self, variables: Mapping[str, Any]) -> bool | None:
        """Return True if the criterion holds; None if it has no value, such as the minimum of no values.

        Raises:
            UsageError: if it uses a function of several numbers on one.
        """
        from simpleeval import InvalidExpression, SimpleEval  # type: ignore[import-untyped]

        names = {name: variables[variable] for name, variable in self.names.items()}
        evaluator = SimpleEval(names=names, functions=dict(_FUNCTIONS))
        try:
            return bool(evaluator.eval(self.text, previously_parsed=self.body))
        except (ArithmeticError, ValueError):
            return None
        except (TypeError, InvalidExpression) as error:
            raise UsageError(f"the criterion {self.text!r} cannot be worked out: {error}") from error


def parse_criterion(text: str, variables: Sequence[str]) -> Criterion:
    """Parse an expression, which may be a Python lambda of one argument: the first variable.

    Args:
        text: the expression, such as ``x < -0.05`` or ``lambda x: x<-0.05``.
        variables: the names that it may use.

    Raises:
        UsageError: if it is not valid, is not true or false, or uses something that is not allowed.
    """
    try:
        if len(text) > _LONGEST:
            raise UsageError(f"the criterion is longer than {_LONGEST} characters")
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        cause = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"the criterion {text!r} is not an expression: {cause}") from error
    if _depth(body) > _DEEPEST:
        raise UsageError(f"the criterion is nested deeper than {_DEEPEST}")
    known = {name: name for name in variables}
    if isinstance(body, ast.Lambda):
        known = {_argument(text, body): variables[0]}
        body = body.body
    checker = _Checker(text, known)
    checker.check(body)
    if not _is_truth(body):
        raise UsageError(
            f"the criterion {text!r} is neither true nor false",
            remedy=f"compare something, such as {variables[0]} < -0.05",
        )
    used = {name: known[name] for name in sorted(checker.used)}
    return Criterion(text, body, used, frozenset(checker.counts), frozenset(checker.values))


def _argument(text: str, function: ast.Lambda) -> str:
    arguments = function.args
    if len(arguments.args) == 1 and not (
        arguments.posonlyargs
        or arguments.kwonlyargs
        or arguments.vararg
        or arguments.kwarg
        or arguments.defaults
    ):
        return arguments.args[0].arg
    raise UsageError(f"the criterion {text!r} must take one argument")


def _is_truth(node: ast.expr) -> bool:
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=True | False):
            return True
        case ast.Call(func=ast.Name(id="bool")):
            return True
        case ast.BoolOp():
            return all(map(_is_truth, node.values))
        case ast.IfExp():
            return _is_truth(node.body) and _is_truth(node.orelse)
    return False


def _operands(node: ast.expr) -> list[ast.expr] | None:
    """Return the operands of a constant, an operator or a function; None if it is not allowed."""
    operands: list[ast.expr] | None = None
    match node:
        case ast.Constant(value=bool() | int() | float()):
            operands = []
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in _FUNCTIONS:
            operands = given
        case ast.BinOp(op=operator, left=left, right=right) if isinstance(operator, _OPERATORS):
            operands = [left, right]
        case ast.UnaryOp(op=operator, operand=operand) if isinstance(operator, _OPERATORS):
            operands = [operand]
        case ast.BoolOp():
            operands = node.values
        case ast.Compare(left=left, ops=operators, comparators=others) if all(
            isinstance(operator, _COMPARISONS) for operator in operators
        ):
            operands = [left, *others]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            operands = [test, body, orelse]
    return operands


def _depth(node: ast.expr) -> int:
    depth, level = 0, list[ast.AST]([node])
    while level:
        depth, level = depth + 1, [child for one in level for child in ast.iter_child_nodes(one)]
    return depth


class _Checker:
    """Accepts the allowed parts of a criterion, and records the names that it uses.

    Args:
        text: the criterion.
        known: its names and their variables.
    """

    def __init__(self, text: str, known: Mapping[str, str]) -> None:
        self._text = text
        self._known = known
        self.used: set[str] = set()
        self.counts: set[str] = set()
        self.values: set[str] = set()

    def check(self, node: ast.expr) -> None:
        """Check an expression and all of its parts.

        Raises:
            UsageError: naming the part that is not allowed.
        """
        match node:
            case ast.Name(id=name):
                self._name(node, name)
            case ast.Subscript():
                self.counts.add(self._rule(node))
            case ast.Call(
                func=ast.Attribute(value=ast.Subscript() as rule, attr="values"), args=[], keywords=[]
            ):
                self.values.add(self._rule(rule))
            case _:
                inner = _operands(node)
                if inner is None:
                    raise self._refused(node)
                for one in inner:
                    self.check(one)

    def _name(self, node: ast.expr, name: str) -> None:
        if name not in self._known:
            raise UsageError(
                f"the criterion {self._text!r} uses {name!r}, which is not known",
                remedy=did_you_mean(name, [*self._known, *_FUNCTIONS]),
            )
        if self._known[name] == LABEL:
            raise self._refused(node)
        self.used.add(name)

    def _rule(self, node: ast.Subscript) -> str:
        """Return the rule's name in ``label["rule"]``."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as rule)) if (
                self._known.get(name) == LABEL
            ):
                self.used.add(name)
                return rule
        raise self._refused(node)

    def _refused(self, node: ast.expr) -> UsageError:
        return UsageError(
            f"the criterion {self._text!r} may not contain {ast.unparse(node)!r}",
            remedy="a criterion has numbers, comparisons, + - * / // %, and, or, not, if else, "
            + ", ".join(sorted(_FUNCTIONS))
            + ', in multi_rules also label["rule"] and label["rule"].values()',
        )
