"""Compare metrics with a profile's expectations, such as ``tokens_per_second >= 5000``, for a verdict."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from agent.core.errors import ParseError
from agent.core.names import did_you_mean
from agent.core.records import Metric, Reason, Validity, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_EXPECTATION = re.compile(
    r"\s*(?P<name>[^\s<>=!]+)\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<limit>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
)
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Expectation:
    """A bound on a metric, in the metric's own unit."""

    name: str
    sign: str
    limit: float

    def __str__(self) -> str:
        """Return the expectation as a profile writes it."""
        return f"{self.name} {self.sign} {self.limit:g}"


def parse_expectation(text: str) -> Expectation:
    """Read one expectation.

    Raises:
        ValueError: if it is not a name, a comparison and a number.
    """
    match = _EXPECTATION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not an expectation: write a metric's name, >=, <=, >, <, == or !=, a number"
        )
    return Expectation(match["name"], match["sign"], float(match["limit"]))


def _expectations(value: Any) -> Any:
    entries = value if isinstance(value, list | tuple) else [value] if value not in (None, "") else []
    texts = [part for entry in entries for part in str(entry).split(",") if part.strip()]
    return tuple(parse_expectation(text) for text in texts)


Expectations = Annotated[tuple[Expectation, ...], BeforeValidator(_expectations)]
"""Expectations of a profile: a text, separated by commas, or a list of texts."""


def judge(expectations: Iterable[Expectation], metrics: Iterable[Metric]) -> Verdict | None:
    """Return the verdict; None if nothing is expected.

    Raises:
        ParseError: if an expected metric is missing.
    """
    known = {metric.name: metric for metric in metrics}
    reasons, count = [], 0
    for expected in expectations:
        count += 1
        metric = known.get(expected.name)
        if metric is None:
            raise ParseError(
                f"{expected} is expected, but {expected.name} was not measured",
                remedy=did_you_mean(expected.name, known),
            )
        if not _HOLDS[expected.sign](metric.value, expected.limit):
            reasons.append(_reason(expected, metric))
    if not count:
        return None
    return Verdict(Validity.INVALID if reasons else Validity.VALID, tuple(reasons))


def _reason(expected: Expectation, metric: Metric) -> Reason:
    missed = f", missed by {abs(metric.value / expected.limit - 1):.1%}" if expected.limit else ""
    bound = f"{expected.sign} {expected.limit:g}"
    return Reason(
        f"{metric.name} is {metric.value:g} {metric.unit}; {bound} is expected{missed}",
        "find the bottleneck, or change expect if the bound is not meant for this host",
        code="expectation",
    )
