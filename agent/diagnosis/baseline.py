"""Normal values of healthy hosts: computed from many hosts, or read from a file (ours or SuperBench's)."""

from __future__ import annotations

import json
import math
import statistics
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.core.counts import count_of
from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.rules import HOSTS, Function
from agent.diagnosis.spread import (
    Sample,
    median_and_mad,
    modified_z_score,
    outliers,
    sample_of,
    two_humps,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.diagnosis.observations import MetricKind, Observations
    from agent.diagnosis.rules import Rule

LEAST_HOSTS = 4
"""With fewer hosts, it is impossible to tell which one is the outlier."""

_SCHEMA_VERSION = 1
_SAMPLE_KEYS = ("mean", "deviation", "hosts", "count", "least", "greatest")
SIGNS = {Relativity.HIGHER: -1, Relativity.LOWER: 1}
"""The bad direction of a metric, if it has one."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The normal values of one metric.

    Args:
        value: the median of the normal hosts.
        unit: its base unit; None if unknown.
        mad: the median of their distances from it; None if unknown.
        hosts: the number of normal hosts.
        dropped: the hosts that were dropped as not normal.
        sample: the medians of the normal hosts; None if unknown.
        runs: every value of the normal hosts; None if unknown.
        humps: a message if the normal hosts lie around two values, so that the normal one is unknown.
    """

    value: float
    unit: str | None = None
    mad: float | None = None
    hosts: int | None = None
    dropped: tuple[str, ...] = ()
    sample: Sample | None = None
    runs: Sample | None = None
    humps: str = field(default="", compare=False)


def variance_variables(value: float, baseline: Baseline, kind: MetricKind) -> dict[str, float]:
    """Return the variables of a variance rule for a value, except chance.

    ``x`` is the distance from the baseline as a share of it, ``z`` in standard deviations of the hosts it was
    made from, ``worse`` the share on the bad side: below 0 for values better than the baseline. ``hosts`` is
    the number of the hosts it was made from.
    """
    variables: dict[str, float] = {} if baseline.hosts is None else {HOSTS: baseline.hosts}
    sign = SIGNS.get(kind.relativity)
    if baseline.value or value == baseline.value:
        variables["x"] = (value - baseline.value) / baseline.value if baseline.value else 0.0
        if sign:
            variables["worse"] = sign * variables["x"] * math.copysign(1, baseline.value)
    if baseline.mad is not None:
        variables["z"] = modified_z_score(value, baseline.value, baseline.mad)
    return variables


def make_baselines(
    observed: Observations, rules: Sequence[Rule] = (), least_hosts: int = LEAST_HOSTS
) -> dict[str, Baseline]:
    """Return the baseline of each metric that has one; see ``find_baselines``."""
    found = find_baselines(observed, rules, least_hosts)
    return {metric: one for metric, one in found.items() if isinstance(one, Baseline) and not one.humps}


def find_baselines(
    observed: Observations, rules: Sequence[Rule] = (), least_hosts: int = LEAST_HOSTS
) -> dict[str, Baseline | str]:
    """Return the baseline of each metric, or the reason why it has none.

    Outliers and hosts that violate a variance rule are dropped. This repeats with the remaining hosts,
    until none is dropped.

    Args:
        observed: the hosts.
        rules: rules whose violators are also dropped.
        least_hosts: a metric with fewer hosts has no baseline.
    """
    found: dict[str, Baseline | str] = {}
    for metric, kind in observed.metrics.items():
        about = [
            rule
            for rule in rules
            if rule.function is Function.VARIANCE and rule.is_about(metric, kind.verbosity)
        ]
        found[metric] = _settled(observed, metric, about, least_hosts)
    return found


def _settled(observed: Observations, metric: str, rules: Sequence[Rule], least_hosts: int) -> Baseline | str:
    kind, values = observed.metrics[metric], observed.middles(metric)
    if len(values) < max(least_hosts, 1):
        return f"{count_of(len(values), 'host')} to compare, at least {least_hosts} are needed"
    kept = dict(values)
    while True:
        median, mad = median_and_mad(kept.values())
        dropped = tuple(host for host in values if host not in kept)
        baseline = Baseline(median, kind.unit, mad, len(kept), dropped)
        apart = set(outliers(kept.values(), len(kept)))
        normal = {
            host: value
            for host, value in kept.items()
            if value not in apart and not _violates(value, baseline, kind, rules)
        }
        if len(normal) == len(kept):
            break
        if 2 * len(normal) <= len(values):
            return f"{len(values) - len(normal)} of {len(values)} hosts stand apart from the others"
        kept = normal
    return replace(
        baseline,
        humps=_humps(kept.values(), kind.unit),
        sample=sample_of({host: (value,) for host, value in kept.items()}),
        runs=sample_of({host: observed.hosts[host][metric] for host in kept}),
    )


def _humps(values: Collection[float], unit: str | None) -> str:
    humps = two_humps(values)
    if humps is None:
        return ""
    lower, upper = (
        f"{len(hump)} near {statistics.median(hump):.5g}{f' {unit}' if unit else ''}" for hump in humps
    )
    return f"the hosts lie around two values: {lower}, {upper}"


def _violates(value: float, baseline: Baseline, kind: MetricKind, rules: Sequence[Rule]) -> bool:
    variables = variance_variables(value, baseline, kind)
    return any(
        rule.criterion is not None
        and all(name in variables for name in rule.criterion.names.values())
        and rule.criterion.holds(variables)
        for rule in rules
    )


def baseline_to_json(baselines: Mapping[str, Baseline]) -> dict[str, Any]:
    """Return the document that ``read_baselines`` reads."""
    return {
        "schema_version": _SCHEMA_VERSION,
        "metrics": {
            metric: {
                "value": one.value,
                "unit": one.unit,
                "mad": one.mad,
                "hosts": one.hosts,
                "dropped": list(one.dropped),
                **{
                    name: {key: getattr(sample, key) for key in _SAMPLE_KEYS}
                    for name, sample in (("sample", one.sample), ("runs", one.runs))
                    if sample
                },
            }
            for metric, one in sorted(baselines.items())
        },
    }


def read_baselines(text: str, label: str) -> dict[str, Baseline]:
    """Return the baselines of a JSON file: ours, or SuperBench's, which has a number for each metric.

    Args:
        text: the file's text.
        label: its name, for messages.

    Raises:
        UsageError: if it is not valid.
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
        raise UsageError(f"the unit of {metric} is not a text", where=label)
    return Baseline(
        _number(values.get("value"), metric, label),
        unit,
        None if mad is None else _number(mad, f"the MAD of {metric}", label),
        hosts if isinstance(hosts, int) else None,
        tuple(map(str, values.get("dropped") or ())),
        _sample(values.get("sample"), metric, label),
        _sample(values.get("runs"), metric, label),
    )


def _sample(values: object, metric: str, label: str) -> Sample | None:
    if not isinstance(values, dict):
        return None
    mean, deviation, hosts = (
        _number(values.get(key), f"the {key} of {metric}", label) for key in _SAMPLE_KEYS[:3]
    )
    if values.get("count") is None:  # a file of an earlier version
        return Sample(mean, deviation, int(hosts))
    count, least, greatest = (
        _number(values.get(key), f"the {key} of {metric}", label) for key in _SAMPLE_KEYS[3:]
    )
    return Sample(mean, deviation, int(hosts), int(count), least, greatest)


def _number(value: object, what: str, label: str) -> float:
    with suppress(OverflowError):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    raise UsageError(f"{what} is {value!r:.50}, which is not a finite number", where=label)
