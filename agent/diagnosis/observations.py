"""Measurements of each host: the values of each metric, in an order independent of the input's."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.core.records import Relativity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Measured:
    """One number of one host.

    Args:
        host: the host's name (``client_id``).
        metric: its full name: the scenario, a slash, the metric.
        value: a finite number.
        unit: its base unit; None if unknown.
        relativity: the better direction.
        verbosity: 1 for a headline number.
    """

    host: str
    metric: str
    value: float
    unit: str | None = None
    relativity: Relativity = Relativity.UNDEFINED
    verbosity: int = 1


@dataclass(frozen=True, slots=True)
class MetricKind:
    """Common properties of all hosts' values of a metric; see Measured."""

    unit: str | None
    relativity: Relativity
    verbosity: int


@dataclass(frozen=True)
class Observations:
    """The values of many hosts.

    Args:
        metrics: the properties of each metric, by its full name, sorted.
        hosts: the values of each metric of each host, sorted; a host without values is empty, and a metric
            that was not measured on it is absent.
    """

    metrics: Mapping[str, MetricKind]
    hosts: Mapping[str, Mapping[str, tuple[float, ...]]]

    def only(self, hosts: Collection[str]) -> Observations:
        """Return the values of some of the hosts, with the metrics that these have."""
        kept = {host: self.hosts[host] for host in hosts}
        measured = {metric for values in kept.values() for metric in values}
        return Observations(
            {metric: kind for metric, kind in self.metrics.items() if metric in measured}, kept
        )

    def middle(self, host: str, metric: str) -> float | None:
        """Return the median of a host's values of a metric, or None without values."""
        values = self.hosts[host].get(metric)
        return statistics.median(values) if values else None

    def middles(self, metric: str) -> dict[str, float]:
        """Return the median of each host that has the metric."""
        found = {host: self.middle(host, metric) for host in self.hosts}
        return {host: value for host, value in found.items() if value is not None}


def observe(measured: Iterable[Measured], hosts: Iterable[str] = ()) -> Observations:
    """Group numbers by host and metric.

    Args:
        measured: the numbers, in any order.
        hosts: known hosts, including those without a number.

    Raises:
        UsageError: if a metric has two units.
    """
    values: dict[str, dict[str, list[float]]] = {host: {} for host in hosts}
    kinds: dict[str, MetricKind] = {}
    for one in measured:
        values.setdefault(one.host, {}).setdefault(one.metric, []).append(one.value)
        kind = MetricKind(one.unit, one.relativity, one.verbosity)
        known = kinds.setdefault(one.metric, kind)
        if known != kind:
            kinds[one.metric] = _both(one.metric, known, kind)
    return Observations(
        dict(sorted(kinds.items())),
        {
            host: {metric: tuple(sorted(of_metric)) for metric, of_metric in sorted(of_host.items())}
            for host, of_host in sorted(values.items())
        },
    )


def _both(metric: str, one: MetricKind, other: MetricKind) -> MetricKind:
    if one.unit != other.unit:
        units = sorted(unit or "no unit" for unit in (one.unit, other.unit))
        raise UsageError(
            f"{metric} is measured in {units[0]} and in {units[1]}",
            remedy="diagnose runs of one version of the workload together",
        )
    relativity = one.relativity if one.relativity is other.relativity else Relativity.UNDEFINED
    return MetricKind(one.unit, relativity, min(one.verbosity, other.verbosity))
