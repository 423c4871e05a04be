"""Applies rules to measurements. The same input gives the same result, in any order."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.diagnosis.baseline import SIGNS, Baseline, find_baselines, variance_variables
from agent.diagnosis.criteria import LABEL
from agent.diagnosis.diagnosis import Defect, Diagnosis, HostDiagnosis, Unjudged
from agent.diagnosis.rules import (
    CHANCE,
    HOSTS,
    LEAST_WORSE,
    NOISE_CHANCE,
    WORST,
    WORST_CHANCE,
    Function,
)
from agent.diagnosis.spread import ALPHA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent.diagnosis.criteria import Criterion
    from agent.diagnosis.observations import MetricKind, Observations
    from agent.diagnosis.rules import Rule

_RANK = ":"
"""Prefix before the number of a process or GPU in SuperBench's metrics."""


_SIDED = frozenset({"worse", NOISE_CHANCE, WORST, WORST_CHANCE, LEAST_WORSE})
_OF_RUNS = (WORST, WORST_CHANCE, LEAST_WORSE)
"""Variables that only hosts with several runs have."""

_NEEDED = (
    ("x", "the baseline is 0: a value rule can judge it"),
    ("z", "the baseline does not tell how far hosts differ"),
    ("worse", "the baseline is 0: a value rule can judge it"),
    (CHANCE, "the baseline does not tell how far hosts differ, or is of fewer than two other hosts"),
    (NOISE_CHANCE, "the baseline does not have the least and the greatest value of at least two runs"),
    (WORST, "the baseline is 0: a value rule can judge it"),
    (WORST_CHANCE, "the baseline does not tell how far runs differ"),
    (LEAST_WORSE, "the baseline does not have the runs of at least two other hosts, or is 0"),
    (HOSTS, "the baseline does not have the number of its hosts"),
)
_COARSE = 0.10
"""If a loss beyond this share of the baseline would not be noticed, the value is not judged."""


def diagnose(
    observed: Observations,
    rules: Sequence[Rule],
    baselines: Mapping[str, Baseline] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Judge every host by every rule.

    Args:
        observed: the hosts.
        rules: the rules, in their order.
        baselines: the normal values, by the metric's full name; a name without rank applies to all ranks. By
            default the hosts of a group are compared with each other.
        groups: the group of each host; by default all hosts are alike.

    Raises:
        UsageError: if nothing could be judged, or a baseline is in another unit.
    """
    groups = groups or {}
    names = sorted({groups.get(host, "") for host in observed.hosts})
    judges = {}
    for name in names:
        alike = observed.only([host for host in observed.hosts if groups.get(host, "") == name])
        found = find_baselines(alike, rules) if baselines is None else baselines
        judges[name] = _Judge(alike, observed, rules, found)
    family = Family(
        sum(judge.family.pairs for judge in judges.values()),
        sum(judge.family.runs for judge in judges.values()),
    )
    for judge in judges.values():
        judge.family = family
    of_host = {
        host: judges[name].host(host, name)
        for name in names
        for host in observed.hosts
        if groups.get(host, "") == name
    }
    hosts = tuple(of_host[host] for host in observed.hosts)
    warnings = tuple(
        f"{name}: {warning}" if name and len(names) > 1 else warning
        for name in names
        for warning in judges[name].warnings()
    )
    if not any(host.judged or host.defects for host in hosts):
        raise UsageError(
            "no rule could judge a value",
            remedy="compare the metrics of the rules with those of the runs, and give a --baseline",
            details=warnings,
        )
    return Diagnosis(hosts, warnings)


@dataclass(frozen=True, slots=True)
class Family:
    """Number of values that are tested against chance.

    Args:
        pairs: number of medians of a metric of a host.
        runs: number of single runs of hosts with several.
    """

    pairs: int = 0
    runs: int = 0

    @property
    def medians(self) -> int:
        """The factor of the probability of a median, half of which is left for the runs."""
        return self.pairs * (2 if self.runs else 1)


class _Judge:
    def __init__(
        self,
        observed: Observations,
        everywhere: Observations,
        rules: Sequence[Rule],
        baselines: Mapping[str, Baseline | str],
    ) -> None:
        self._observed = observed
        self._rules = rules
        self._metrics = {
            rule.name: _metrics(rule, everywhere if rule.function is Function.FAILURE_CHECK else observed)
            for rule in rules
        }
        found = {
            metric: baselines.get(metric) or baselines.get(metric.rpartition(_RANK)[0])
            for metric in observed.metrics
        }
        self._baselines = {metric: one for metric, one in found.items() if isinstance(one, Baseline)}
        self._reasons = {metric: one for metric, one in found.items() if isinstance(one, str)}
        self._notes: dict[str, Counter[str]] = {rule.name: Counter() for rule in rules}
        self._unjudged: dict[str, list[Unjudged]] = {}
        self._by_one_run: set[str] = set()
        for metric, baseline in self._baselines.items():
            unit = observed.metrics[metric].unit
            if unit and baseline.unit and unit != baseline.unit:
                raise UsageError(f"{metric} is measured in {unit}, its baseline is in {baseline.unit}")
        self.family = self._family()

    def _family(self) -> Family:
        """Count the values that are tested against chance."""

        def values(*variables: str) -> list[Sequence[float]]:
            metrics = {
                metric
                for rule in self._rules
                if (criterion := rule.criterion) and any(map(criterion.uses, variables))
                for metric in self._metrics[rule.name]
                if metric in self._baselines and _has_sides(criterion, self._observed.metrics[metric])
            }
            hosts = self._observed.hosts.values()
            return [own[metric] for metric in metrics for own in hosts if metric in own]

        runs = sum(len(own) for own in values(WORST_CHANCE) if len(own) > 1)
        return Family(len(values(CHANCE, NOISE_CHANCE, LEAST_WORSE)), runs)

    def host(self, host: str, group: str) -> HostDiagnosis:
        """Return the diagnosis of one host."""
        values = self._observed.hosts[host]
        defects: list[Defect] = []
        suspicions: list[Defect] = []
        found: dict[str, tuple[Defect, ...]] = {}
        judged = 0
        for rule in self._rules:
            if rule.function is Function.STORE:
                found[rule.name] = tuple(self._kept(rule, host))
                continue
            outcome = [one for one in self._outcome(rule, host, found) if one is not None]
            found[rule.name] = tuple(one for one in outcome if isinstance(one, Defect))
            judged += len(outcome)
            if not rule.is_stored:
                (suspicions if rule.is_suspicion else defects).extend(found[rule.name])
        sick = {defect.metric for defect in defects}
        suspicions = [one for one in suspicions if one.metric not in sick]
        if any(
            one.function is Function.VARIANCE and len(values[one.metric or ""]) == 1 for one in suspicions
        ):
            self._by_one_run.add(host)
        about = {metric for rule in self._rules for metric in self._metrics[rule.name]}
        absent = tuple(sorted(about - values.keys())) if values else ()
        unjudged = tuple(self._unjudged.get(host, ()))
        return HostDiagnosis(
            host, bool(values), judged, tuple(defects), absent, unjudged, group, tuple(suspicions)
        )

    def _left(self, rule: Rule, host: str, metric: str, why: str) -> None:
        """Record a value that could not be judged, once for all rules with the same reason."""
        if any(one.metric == metric and one.reason == why for one in self._unjudged.get(host, ())):
            return
        self._notes[rule.name][why] += 1
        self._unjudged.setdefault(host, []).append(Unjudged(rule.name, metric, why))

    def _outcome(
        self, rule: Rule, host: str, found: Mapping[str, tuple[Defect, ...]]
    ) -> Iterator[Defect | bool | None]:
        """Yield a defect or False for each value that the rule judges; None if it cannot judge."""
        if rule.function is Function.MULTI_RULES:
            yield self._combined(rule, host, found)
        elif rule.function is Function.VARIANCE:
            yield from (self._varies(rule, host, metric) for metric in self._metrics[rule.name])
        else:
            if rule.function is Function.FAILURE_CHECK:
                yield from self._missing(rule, host)
            yield from (self._is_bad(rule, host, metric) for metric in self._metrics[rule.name])

    def _kept(self, rule: Rule, host: str) -> Iterator[Defect]:
        """Yield the values for a later rule, in the form of its evidence."""
        for metric in self._metrics[rule.name]:
            value = self._observed.middle(host, metric)
            if value is not None:
                unit = self._observed.metrics[metric].unit
                yield Defect(rule.name, rule.function, rule.categories, metric=metric, value=value, unit=unit)

    def _missing(self, rule: Rule, host: str) -> Iterator[Defect]:
        metrics = self._metrics[rule.name]
        unmatched = [one.text for one in rule.patterns if not any(map(one.matches, metrics))]
        missing = [metric for metric in metrics if metric not in self._observed.hosts[host]]
        for metric in (*unmatched, *missing):
            yield Defect(rule.name, rule.function, rule.categories, metric=metric)

    def _is_bad(self, rule: Rule, host: str, metric: str) -> Defect | bool | None:
        """Return the defect of a host's values, if any; the smallest bad value is shown."""
        values = self._observed.hosts[host].get(metric)
        if values is None:
            return None
        if rule.criterion is None:
            return False
        for value in dict.fromkeys(values):
            holds = rule.criterion.holds({"x": value})
            if holds is None:
                self._left(rule, host, metric, "the criterion has no value")
                return None
            if holds:
                return Defect(
                    rule.name,
                    rule.function,
                    rule.categories,
                    rule.criterion.text,
                    metric,
                    value,
                    self._observed.metrics[metric].unit,
                )
        return False

    def _varies(self, rule: Rule, host: str, metric: str) -> Defect | bool | None:
        criterion, runs = rule.criterion, self._observed.hosts[host].get(metric)
        if criterion is None or runs is None:
            return None
        of_runs = any(map(criterion.uses, _OF_RUNS))
        if of_runs and len(runs) == 1:
            return None
        baseline = self._baselines.get(metric)
        found = (
            self._compared(rule, criterion, host, metric, baseline)
            if baseline
            else self._without_baseline(metric)
        )
        if not isinstance(found, str):
            return found
        if not of_runs:
            self._left(rule, host, metric, found)
        return None

    def _compared(
        self, rule: Rule, criterion: Criterion, host: str, metric: str, baseline: Baseline
    ) -> Defect | bool | str | None:
        """Compare a host's values with the baseline. A text is the reason why they cannot be judged."""
        kind, runs = self._observed.metrics[metric], self._observed.hosts[host][metric]
        if not _has_sides(criterion, kind):
            self._notes[rule.name]["neither more nor less is better"] += 1
            return None
        variables = self._variables(criterion, host, metric, baseline)
        for name, why in _NEEDED:
            if criterion.uses(name) and name not in variables:
                return why
        holds = criterion.holds(variables)
        if holds is None:
            return "the criterion has no value"
        if not holds:
            vague = self._vague(host, baseline, kind) if criterion.uses(CHANCE) else ""
            return f"{metric}: {vague}" if vague else False
        z, value = variables.get("z"), statistics.median(runs)
        if criterion.uses(WORST) or criterion.uses(WORST_CHANCE):
            value = _worst(runs, kind)
            variables = variance_variables(value, baseline, kind)
        return Defect(
            rule.name,
            rule.function,
            rule.categories,
            criterion.text,
            metric,
            value,
            kind.unit,
            baseline.value,
            variables.get("x"),
            z if z is not None and math.isfinite(z) else None,
        )

    def _without_baseline(self, metric: str) -> str:
        why = self._reasons.get(metric)
        return f"{metric}: {why}" if why else "there is no baseline"

    def _variables(
        self, criterion: Criterion, host: str, metric: str, baseline: Baseline
    ) -> dict[str, float]:
        """Return the variables that a criterion can use for a host; those that are unknown are absent."""
        kind, runs = self._observed.metrics[metric], self._observed.hosts[host][metric]
        found = variance_variables(statistics.median(runs), baseline, kind)
        for name, variable in (
            (CHANCE, self._chance),
            (NOISE_CHANCE, self._noise_chance),
            (WORST, _worse_of_worst),
            (WORST_CHANCE, self._worst_chance),
            (LEAST_WORSE, self._least_worse),
        ):
            if criterion.uses(name) and (value := variable(host, runs, baseline, kind)) is not None:
                found[name] = value
        return found

    def _chance(self, host: str, runs: Sequence[float], baseline: Baseline, kind: MetricKind) -> float | None:
        """Return the probability that a healthy host deviates this much, over all judged values."""
        if not baseline.sample:
            return None
        tail = baseline.sample.tail(statistics.median(runs), host, SIGNS.get(kind.relativity, 0))
        return None if tail is None else min(1.0, tail * self.family.medians)

    def _worst_chance(
        self, host: str, runs: Sequence[float], baseline: Baseline, kind: MetricKind
    ) -> float | None:
        """Return the probability that a healthy host has a run this bad, over all judged runs."""
        if not baseline.runs:
            return None
        tail = baseline.runs.tail(_worst(runs, kind), host, SIGNS[kind.relativity])
        return None if tail is None else min(1.0, 2 * tail * self.family.runs)

    def _noise_chance(
        self, host: str, runs: Sequence[float], baseline: Baseline, kind: MetricKind
    ) -> float | None:
        """Return the probability that noise of any shape explains the host's runs, over all judged values."""
        if not baseline.runs:
            return None
        tail = baseline.runs.noise_tail(runs, host, SIGNS[kind.relativity], baseline.value)
        dropped = len(baseline.dropped) if host in baseline.dropped else 1
        return None if tail is None else min(1.0, tail * self.family.pairs * dropped)

    def _least_worse(
        self, host: str, runs: Sequence[float], baseline: Baseline, kind: MetricKind
    ) -> float | None:
        """Return the loss that noise between runs cannot explain, as a share, over all judged values."""
        if not (baseline.runs and baseline.value):
            return None
        tail = ALPHA / self.family.pairs
        least = baseline.runs.least_distance(runs, host, SIGNS[kind.relativity], tail)
        return None if least is None else least / abs(baseline.value)

    def _vague(self, host: str, baseline: Baseline, kind: MetricKind) -> str:
        """Return why a host that is not an outlier is still not known to be well; empty if it is."""
        if baseline.humps or not (baseline.sample and baseline.value and kind.relativity in SIGNS):
            return baseline.humps
        least = baseline.sample.least_seen(host, ALPHA / self.family.medians)
        if least is None or least <= _COARSE * abs(baseline.value):
            return ""
        return f"the hosts differ so much that one {_COARSE:.0%} worse would not be noticed"

    def _combined(
        self, rule: Rule, host: str, found: Mapping[str, tuple[Defect, ...]]
    ) -> Defect | bool | None:
        criterion = rule.criterion
        if criterion is None:
            return None
        label: dict[str, object] = {name: len(found[name]) for name in criterion.counts}
        for rule_name in criterion.values:
            label[rule_name] = {one.metric: one.value for one in found[rule_name]}
        holds = criterion.holds({LABEL: label})
        if holds is None:
            self._left(rule, host, "", "what it combines was not measured")
        if not holds:
            return holds
        evidence = tuple(
            one for source in self._rules if source.name in rule.sources for one in found[source.name]
        )
        return Defect(rule.name, rule.function, rule.categories, criterion.text, evidence=evidence)

    def warnings(self) -> tuple[str, ...]:
        """Return the values that the rules could not judge, in the order of the rules, and what to do."""
        lines = []
        for rule in self._rules:
            needs_metrics = rule.function not in (Function.FAILURE_CHECK, Function.MULTI_RULES)
            if needs_metrics and not self._metrics[rule.name]:
                lines.append(f"{rule.name}: no metric matches")
            lines += [
                f"{rule.name}: {count} value{'s' * (count > 1)} not judged, {why}"
                for why, count in sorted(self._notes[rule.name].items())
            ]
        if count := len(self._by_one_run):
            hosts = "1 host is" if count == 1 else f"{count} hosts are"
            lines.append(
                f"{hosts} suspect because of a single run, which does not show whether the host is slow or "
                "the run was: measure each host three times (--iterations 3, or three runs in one diagnose)"
            )
        return tuple(lines)


def _has_sides(criterion: Criterion, kind: MetricKind) -> bool:
    """Return True unless a criterion needs the bad side of a metric that has none."""
    return kind.relativity in SIGNS or not any(map(criterion.uses, _SIDED))


def _worst(runs: Sequence[float], kind: MetricKind) -> float:
    """Return the worst of several values of a metric that has a good and a bad side."""
    sign = SIGNS[kind.relativity]
    return sign * max(sign * value for value in runs)


def _worse_of_worst(_: str, runs: Sequence[float], baseline: Baseline, kind: MetricKind) -> float | None:
    """Return the distance of the worst run as a share of the baseline, on the bad side."""
    return variance_variables(_worst(runs, kind), baseline, kind).get("worse")


def _metrics(rule: Rule, observed: Observations) -> tuple[str, ...]:
    """Return the metrics of a rule, over all hosts."""
    return tuple(metric for metric, kind in observed.metrics.items() if rule.is_about(metric, kind.verbosity))
