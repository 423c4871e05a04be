"""How much of a case a monitor saw, and what its sums and means are worth then: pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.core.records import Metric

COVERAGE = "coverage"
"""The name of a metric's share of the case's time, in its metadata."""
_WHOLE = 0.95
_ENOUGH = 0.5
_LATE_S = 0.25
"""A measurement may be this late without a word: of a short case that is a large share."""


def share(covered_s: float, start_s: float, end_s: float) -> float:
    """The share of a span that was seen, 0 to 1."""
    return min(1.0, covered_s / (end_s - start_s)) if end_s > start_s else 0.0


def is_enough(seen: float) -> bool:
    """Return True if so large a share of a case says something of the case."""
    return seen >= _ENOUGH


def with_coverage(metric: Metric, seen: float) -> Metric:
    """The metric with the share of the case's time that it is of."""
    return replace(metric, metadata={**metric.metadata, COVERAGE: round(seen, 4)})


def coverage_warning(who: str, seen: float, span_s: float) -> Iterator[str]:
    """What is to be said of a case that was not seen whole.

    Args:
        who: the monitor, or what it watches.
        seen: the share of the case that it saw.
        span_s: the case's length in seconds.
    """
    if seen >= _WHOLE or (1 - seen) * span_s < _LATE_S:
        return
    words = "are of that time alone" if is_enough(seen) else "are left out"
    told = f"{seen * span_s:.1f} s of {span_s:.1f} s ({seen:.0%})"
    yield f"{who}: watched for {told}: energy and means {words}"
