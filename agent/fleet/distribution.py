"""How a metric is spread over the hosts, and which of them stand apart (robust: median and MAD)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.records import Relativity

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Distribution", "distribution_of"]

_NORMAL = 0.6745
"""The MAD of a normal distribution in units of its standard deviation."""

_FAR = 3.5
"""Beyond this modified z-score a value is an outlier (Iglewicz and Hoaglin, How to Detect and Handle
Outliers, 1993)."""

_LEAST_SHARE = 0.02
"""What is nearer to the median than this is no outlier, however alike the others are."""

_LEAST_HOSTS = 4


@dataclass(frozen=True)
class Distribution:
    """One metric over the hosts.

    Args:
        scenario: the case.
        metric: the metric.
        unit: its base unit.
        relativity: whether more is better.
        values: the value of each host.
        median: their median.
        mad: the median of the distances from it.
        outliers: the hosts that stand apart on the bad side, or on either where neither is better.
    """

    scenario: str
    metric: str
    unit: str
    relativity: Relativity
    values: Mapping[str, float]
    median: float
    mad: float
    outliers: tuple[str, ...]


def distribution_of(
    scenario: str, metric: str, unit: str, relativity: Relativity, values: Mapping[str, float]
) -> Distribution:
    """The distribution of a metric, of which at least one host has a value."""
    median = statistics.median(values.values())
    mad = statistics.median(abs(value - median) for value in values.values())
    sign = {Relativity.HIGHER: -1, Relativity.LOWER: 1}.get(relativity, 0)

    def is_outlier(value: float) -> bool:
        distance = abs(value - median)
        if (value - median) * sign < 0 or distance <= _LEAST_SHARE * abs(median):
            return False
        return not mad or _NORMAL * distance / mad > _FAR

    outliers = tuple(host for host, value in values.items() if is_outlier(value))
    return Distribution(
        scenario,
        metric,
        unit,
        relativity,
        values,
        median,
        mad,
        outliers if len(values) >= _LEAST_HOSTS else (),
    )
