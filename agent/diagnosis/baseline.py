"""What a healthy host measures: made from many hosts, or read from a file (ours or SuperBench's)."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.rules import Function
from agent.diagnosis.spread import median_and_mad, modified_z_score, stands_apart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.diagnosis.observations import MetricKind, Observations
    from agent.diagnosis.rules import Rule

LEAST_HOSTS = 4
"""Of fewer hosts nobody can say which of them is the odd one."""

_SCHEMA_VERSION = 1
SIGNS = {Relativity.HIGHER: -1, Relativity.LOWER: 1}
"""On which side of the others a value is bad, where one is."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is normal for one metric.

    Args:
        value: the median of the hosts that are normal.
        unit: its base unit; None where the file does not tell.
        mad: the median of their distances from it; None where the file does not tell.
        hosts: how many they are.
        dropped: the hosts that were not normal.
    """

    value: float
    unit: str | None = None
    mad: float | None = None
    hosts: int | None = None
    dropped: tuple[str, ...] = ()


def variance_variables(value: float, baseline: Baseline, kind: MetricKind) -> dict[str, float]:
    """What a variance rule judges, as far as it is known.

    ``x`` is the distance from the baseline as a share of it, ``z`` in standard deviations of the hosts it was
    made from, ``worse`` the share on the bad side: below 0 for what is better than the baseline.
    """
    variables = {}
    if baseline.value:
        variables["x"] = (value - baseline.value) / baseline.value
        if sign := SIGNS.get(kind.relativity):
            variables["worse"] = sign * (value - baseline.value) / abs(baseline.value)
    if baseline.mad is not None:
        variables["z"] = modified_z_score(value, baseline.value, baseline.mad)
    return variables


def make_baselines(
    observed: Observations, rules: Sequence[Rule] = (), least_hosts: int = LEAST_HOSTS
) -> dict[str, Baseline]:
    """A baseline of each metric that enough hosts have.

    The median and MAD of the hosts are taken, hosts that stand apart or violate a variance rule are dropped,
    and that is done again with those left, until none is dropped.

    Args:
        observed: the hosts.
        rules: rules whose violators are dropped, too.
        least_hosts: a metric of which fewer are left has no baseline.
    """
    found = {}
    for metric, kind in observed.metrics.items():
        about = [
            rule
            for rule in rules
            if rule.function is Function.VARIANCE and rule.is_about(metric, kind.verbosity)
        ]
        baseline = _settled(observed.middles(metric), kind, about, least_hosts)
        if baseline:
            found[metric] = baseline
    return found


def _settled(
    values: Mapping[str, float], kind: MetricKind, rules: Sequence[Rule], least_hosts: int
) -> Baseline | None:
    kept = dict(values)
    while len(kept) >= max(least_hosts, 1):
        median, mad = median_and_mad(kept.values())
        baseline = Baseline(
            median, kind.unit, mad, len(kept), tuple(host for host in values if host not in kept)
        )
        normal = {
            host: value
            for host, value in kept.items()
            if not stands_apart(value, median, mad) and not _violates(value, baseline, kind, rules)
        }
        if len(normal) == len(kept):
            return baseline
        kept = normal
    return None


def _violates(value: float, baseline: Baseline, kind: MetricKind, rules: Sequence[Rule]) -> bool:
    variables = variance_variables(value, baseline, kind)
    return any(
        rule.criterion is not None
        and all(name in variables for name in rule.criterion.names.values())
        and rule.criterion.holds(variables)
        for rule in rules
    )


def baseline_to_json(baselines: Mapping[str, Baseline]) -> dict[str, Any]:
    """What ``read_baselines`` reads."""
    return {
        "schema_version": _SCHEMA_VERSION,
        "metrics": {
            metric: {
                "value": one.value,
                "unit": one.unit,
                "mad": one.mad,
                "hosts": one.hosts,
                "dropped": list(one.dropped),
            }
            for metric, one in sorted(baselines.items())
        },
    }


def read_baselines(text: str, label: str) -> dict[str, Baseline]:
    """The baselines of a JSON file: ours, or SuperBench's, which has a number for each metric.

    Args:
        text: the file's text.
        label: its name, for messages.

    Raises:
        UsageError: if it is neither.
    """
    remedy = "vcagent baseline RUNS… -o baseline.json makes one"
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}", where=label, remedy=remedy) from None
    if not isinstance(content, dict) or not content:
        raise UsageError("there are no baselines", where=label, remedy=remedy)
    if "schema_version" not in content:
        return {metric: Baseline(_number(value, metric, label)) for metric, value in sorted(content.items())}
    metrics = content.get("metrics")
    if content["schema_version"] != _SCHEMA_VERSION or not isinstance(metrics, dict):
        raise UsageError(
            f"the schema_version is {content['schema_version']!r}, known is {_SCHEMA_VERSION}",
            where=label,
            remedy=remedy,
        )
    return {metric: _baseline(values, metric, label) for metric, values in sorted(metrics.items())}


def _baseline(values: object, metric: str, label: str) -> Baseline:
    if not isinstance(values, dict):
        raise UsageError(f"{metric} has no value", where=label)
    unit, mad, hosts = (values.get(key) for key in ("unit", "mad", "hosts"))
    if unit is not None and not isinstance(unit, str):
        raise UsageError(f"the unit of {metric} is no text", where=label)
    return Baseline(
        _number(values.get("value"), metric, label),
        unit,
        None if mad is None else _number(mad, f"the MAD of {metric}", label),
        hosts if isinstance(hosts, int) else None,
        tuple(map(str, values.get("dropped") or ())),
    )


def _number(value: object, what: str, label: str) -> float:
    with suppress(OverflowError):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    raise UsageError(f"{what} is {value!r:.50}, which is no finite number", where=label)
