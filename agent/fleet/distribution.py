"""The distribution of a metric over the hosts, with the hosts that the diagnosis names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.diagnosis.spread import median_and_mad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.core.records import Relativity


@dataclass(frozen=True)
class Distribution:
    """One metric over the hosts.

    Args:
        scenario: the name of the case.
        metric: the metric.
        unit: its base unit.
        relativity: whether higher or lower is better.
        values: the value of each host.
        median: the median of the values.
        mad: the median absolute deviation.
        outliers: the hosts that the diagnosis calls sick by this metric.
    """

    scenario: str
    metric: str
    unit: str
    relativity: Relativity
    values: Mapping[str, float]
    median: float
    mad: float
    outliers: tuple[str, ...]


def distribution_of(  # noqa: PLR0917 - the fields of a metric, in their order
    scenario: str,
    metric: str,
    unit: str,
    relativity: Relativity,
    values: Mapping[str, float],
    sick: Sequence[str] = (),
) -> Distribution:
    """Return the distribution of a metric; at least one host must have a value.

    Args:
        scenario: the name of the case.
        metric: the metric.
        unit: its base unit.
        relativity: whether higher or lower is better.
        values: the value of each host.
        sick: the hosts for which the diagnosis names this metric.
    """
    median, mad = median_and_mad(values.values())
    return Distribution(scenario, metric, unit, relativity, values, median, mad, tuple(sick))
