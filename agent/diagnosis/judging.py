"""Applies rules to what was measured. The same input gives the same answer, in whatever order it comes."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.diagnosis.baseline import variance_variables
from agent.diagnosis.criteria import LABEL
from agent.diagnosis.diagnosis import Defect, Diagnosis, HostDiagnosis
from agent.diagnosis.rules import Function

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent.diagnosis.baseline import Baseline
    from agent.diagnosis.observations import Observations
    from agent.diagnosis.rules import Rule

_RANK = ":"
"""What stands before the number of a process or GPU in SuperBench's metrics."""


def diagnose(observed: Observations, rules: Sequence[Rule], baselines: Mapping[str, Baseline]) -> Diagnosis:
    """Judge every host by every rule.

    Args:
        observed: the hosts.
        rules: the rules, in their order.
        baselines: what is normal, by the metric's full name; one without the rank serves for all ranks.

    Raises:
        UsageError: if nothing at all could be judged, or a baseline is in another unit.
    """
    judge = _Judge(observed, rules, baselines)
    hosts = tuple(judge.host(host) for host in observed.hosts)
    warnings = judge.warnings()
    if not any(host.judged or host.defects for host in hosts):
        raise UsageError(
            "no rule could judge anything",
            remedy="compare the metrics of the rules with those of the runs, and give a --baseline",
            details=warnings,
        )
    return Diagnosis(hosts, warnings)


class _Judge:
    def __init__(
        self, observed: Observations, rules: Sequence[Rule], baselines: Mapping[str, Baseline]
    ) -> None:
        self._observed = observed
        self._rules = rules
        self._metrics = {rule.name: _metrics(rule, observed) for rule in rules}
        self._baselines = {
            metric: baseline
            for metric in observed.metrics
            if (baseline := baselines.get(metric) or baselines.get(metric.rpartition(_RANK)[0]))
        }
        self._unjudged: dict[str, Counter[str]] = {rule.name: Counter() for rule in rules}
        for metric, baseline in self._baselines.items():
            unit = observed.metrics[metric].unit
            if unit and baseline.unit and unit != baseline.unit:
                raise UsageError(f"{metric} is measured in {unit}, its baseline is in {baseline.unit}")

    def host(self, host: str) -> HostDiagnosis:
        """What is wrong with one host."""
        values = self._observed.hosts[host]
        defects: list[Defect] = []
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
                defects += found[rule.name]
        about = {metric for rule in self._rules for metric in self._metrics[rule.name]}
        absent = tuple(sorted(about - values.keys())) if values else ()
        return HostDiagnosis(host, bool(values), judged, tuple(defects), absent)

    def _outcome(
        self, rule: Rule, host: str, found: Mapping[str, tuple[Defect, ...]]
    ) -> Iterator[Defect | bool | None]:
        """A defect, or False where there is none, for each thing that the rule judges; None if it cannot."""
        if rule.function is Function.MULTI_RULES:
            yield self._combined(rule, found)
        elif rule.function is Function.VARIANCE:
            yield from (self._varies(rule, host, metric) for metric in self._metrics[rule.name])
        else:
            if rule.function is Function.FAILURE_CHECK:
                yield from self._missing(rule, host)
            yield from (self._is_bad(rule, host, metric) for metric in self._metrics[rule.name])

    def _kept(self, rule: Rule, host: str) -> Iterator[Defect]:
        """The values that a later rule judges, in the shape of its evidence."""
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
        """Whether any value of a host is a defect; the least of those is shown."""
        values = self._observed.hosts[host].get(metric)
        if values is None:
            return None
        if rule.criterion is None:
            return False
        for value in dict.fromkeys(values):
            holds = rule.criterion.holds({"x": value})
            if holds is None:
                self._unjudged[rule.name]["the criterion has no value"] += 1
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
        value = self._observed.middle(host, metric)
        criterion = rule.criterion
        if value is None or criterion is None:
            return None
        kind = self._observed.metrics[metric]
        baseline = self._baselines.get(metric)
        if baseline is None:
            self._unjudged[rule.name][
                "there is no baseline: not in the file, or of too few hosts that are alike"
            ] += 1
            return None
        variables = variance_variables(value, baseline, kind)
        for name, why in (
            ("x", "the baseline is 0: a value rule can judge it"),
            ("z", "the baseline does not tell how far hosts differ"),
            ("worse", "the baseline is 0, or neither more nor less is better"),
        ):
            if criterion.uses(name) and name not in variables:
                self._unjudged[rule.name][why] += 1
                return None
        holds = criterion.holds(variables)
        if holds is None:
            self._unjudged[rule.name]["the criterion has no value"] += 1
        if not holds:
            return holds
        z = variables.get("z")
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

    def _combined(self, rule: Rule, found: Mapping[str, tuple[Defect, ...]]) -> Defect | bool | None:
        criterion = rule.criterion
        if criterion is None:
            return None
        label: dict[str, object] = {name: len(found[name]) for name in criterion.counts}
        for rule_name in criterion.values:
            label[rule_name] = {one.metric: one.value for one in found[rule_name]}
        holds = criterion.holds({LABEL: label})
        if holds is None:
            self._unjudged[rule.name]["what it combines was not measured"] += 1
        if not holds:
            return holds
        evidence = tuple(
            one for source in self._rules if source.name in rule.sources for one in found[source.name]
        )
        return Defect(rule.name, rule.function, rule.categories, criterion.text, evidence=evidence)

    def warnings(self) -> tuple[str, ...]:
        """What the rules could not judge, in their order."""
        lines = []
        for rule in self._rules:
            needs_metrics = rule.function not in (Function.FAILURE_CHECK, Function.MULTI_RULES)
            if needs_metrics and not self._metrics[rule.name]:
                lines.append(f"{rule.name}: no metric matches")
            lines += [
                f"{rule.name}: {count} value{'s' * (count > 1)} not judged, {why}"
                for why, count in sorted(self._unjudged[rule.name].items())
            ]
        return tuple(lines)


def _metrics(rule: Rule, observed: Observations) -> tuple[str, ...]:
    """The metrics that a rule is about, of any host."""
    return tuple(metric for metric, kind in observed.metrics.items() if rule.is_about(metric, kind.verbosity))
