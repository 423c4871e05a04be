"""Patterns that select the metrics of a rule."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from agent.core.errors import UsageError


@dataclass(frozen=True)
class MetricPattern:
    """A set of metrics.

    Args:
        text: as written.
        expression: searched in the full name of each metric.
        benchmark: the benchmark that the name begins with; None for all.
        takes_itself: True if a metric of exactly this name matches, too.
    """

    text: str
    expression: re.Pattern[str]
    benchmark: str | None = None
    takes_itself: bool = False

    def matches(self, metric: str) -> bool:
        """Return True if the metric with this full name matches."""
        if self.takes_itself and metric == self.text:
            return True
        if self.benchmark is not None and _benchmark(metric) != self.benchmark:
            return False
        return self.expression.search(metric) is not None


def own_pattern(text: str) -> MetricPattern:
    """Return the pattern of a name with ``*``, ``?`` and ``[a-z]``, or of ``~`` and a regular expression.

    Raises:
        UsageError: if the expression is not valid.
    """
    if text.startswith("~"):
        return MetricPattern(text, _compiled(text[1:]))
    return MetricPattern(text, re.compile(rf"\A{fnmatch.translate(text)}"), takes_itself=True)


def superbench_pattern(text: str) -> MetricPattern:
    """Return a pattern as in SuperBench: a name, or a regular expression below a benchmark's name.

    The benchmark, before the first slash or a colon, is a plain name; the whole text is searched
    in the metrics of that benchmark (microsoft/superbenchmark, superbench/analyzer/rule_base.py, and
    docs/user-tutorial/data-diagnosis.md, "metrics").

    Raises:
        UsageError: if it names no benchmark, or the expression is not valid.
    """
    if not _benchmark(text):
        raise UsageError(f"{text!r} names no benchmark", remedy="SuperBench's metrics are benchmark/metric")
    return MetricPattern(text, _compiled(text), _benchmark(text), takes_itself=True)


def _benchmark(metric: str) -> str:
    before, slash, _ = metric.partition("/")
    return before.partition(":")[0] if slash else ""


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}") from error
