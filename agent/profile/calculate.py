"""The values of ``{calculate(…)}``: simpleeval with C#'s operators and the functions that profiles use."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError, VcagentError
from agent.core.names import did_you_mean
from agent.profile.functions import FUNCTIONS
from agent.profile.operations import OPERATORS
from agent.profile.values import KindError, bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.profile.csharp import Expression

__all__ = ["check_functions", "evaluate"]


def evaluate(expression: Expression, resolve: Callable[[str, bool], Any]) -> Any:
    """The value of an expression: a number, a truth value, text, a ``timedelta`` or None.

    Args:
        expression: the expression.
        resolve: gives the value of a text with braces; asked only for what is needed. The second argument
            says whether it stands in quotes.

    Raises:
        ProfileError: if it has no value: division by zero, kinds that do not go together, too large.
    """
    from simpleeval import InvalidExpression, SimpleEval  # type: ignore[import-untyped]

    def name(node: ast.Name) -> Any:
        if node.id in expression.values:
            return expression.values[node.id]
        text, quoted = expression.templates[node.id]
        return resolve(text, quoted)

    evaluator = SimpleEval(operators=OPERATORS, functions=FUNCTIONS, names=name)
    try:
        value = bounded(evaluator.eval(expression.source, previously_parsed=expression.node))
    except VcagentError:
        raise
    except ZeroDivisionError as error:
        raise ProfileError("calculate: division by zero") from error
    except (OverflowError, RecursionError) as error:
        raise ProfileError("calculate: the result is too large") from error
    except KindError as error:
        raise ProfileError(f"calculate: {error}") from error
    except (InvalidExpression, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProfileError("calculate: an operator or function got what it cannot take") from error
    return value


def check_functions(expression: Expression) -> None:
    """Check that every function in an expression exists.

    Raises:
        ProfileError: if one does not, with the nearest.
    """
    for node in ast.walk(expression.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in FUNCTIONS:
            known = [name for name in FUNCTIONS if not name.endswith(".cast") and name != "truth"]
            raise ProfileError(
                f"calculate: there is no '{node.func.id}'", remedy=did_you_mean(node.func.id, known)
            )
