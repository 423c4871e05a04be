"""Compute the share of a case that a monitor covered, and judge its sums and means by it: pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.core.records import Metric

COVERAGE = "coverage"
"""Metadata key for the share of the case's time that a metric covers."""
_WHOLE = 0.95
_ENOUGH = 0.5
_LATE_S = 0.25
"""Delay in seconds of a measurement that is accepted without a warning: it is a large share of a short
case."""


def share(covered_s: float, start_s: float, end_s: float) -> float:
    """Return the covered share of a time span, 0 to 1."""
    return min(1.0, covered_s / (end_s - start_s)) if end_s > start_s else 0.0


def is_enough(seen: float) -> bool:
    """Return True if this share of a case is representative."""
    return seen >= _ENOUGH


def with_coverage(metric: Metric, seen: float) -> Metric:
    """Return the metric with the share of the case's time that it covers."""
    return replace(metric, metadata={**metric.metadata, COVERAGE: round(seen, 4)})


def coverage_warning(who: str, seen: float, span_s: float) -> Iterator[str]:
    """Yield a warning for a case that was not covered completely.

    Args:
        who: the monitor, or its subject.
        seen: the covered share of the case.
        span_s: the case's length in seconds.
    """
    if seen >= _WHOLE or (1 - seen) * span_s < _LATE_S:
        return
    words = "are of that time alone" if is_enough(seen) else "are left out"
    told = f"{seen * span_s:.1f} s of {span_s:.1f} s ({seen:.0%})"
    yield f"{who}: watched for {told}: energy and means {words}"
