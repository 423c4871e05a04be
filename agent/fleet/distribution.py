"""How a metric is spread over the hosts, and which of them stand apart (robust: median and MAD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.diagnosis.baseline import LEAST_HOSTS, SIGNS
from agent.diagnosis.spread import median_and_mad, stands_apart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.core.records import Relativity


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
    median, mad = median_and_mad(values.values())
    sign = SIGNS.get(relativity, 0)
    outliers = tuple(
        host
        for host, value in values.items()
        if (value - median) * sign >= 0 and stands_apart(value, median, mad)
    )
    return Distribution(
        scenario,
        metric,
        unit,
        relativity,
        values,
        median,
        mad,
        outliers if len(values) >= LEAST_HOSTS else (),
    )
