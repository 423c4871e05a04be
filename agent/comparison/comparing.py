"""Compares runs: the same metrics of the same scenarios, side by side with the first side."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agent.comparison.block_bootstrap import Query, SamplingError, sampling_error
from agent.comparison.context import ContextDifference, context_differences
from agent.comparison.estimates import (
    ASSUMED_NOISE,
    CONFIDENCE,
    Block,
    Estimate,
    Method,
    Noise,
    estimate,
    noise_between_runs,
)
from agent.comparison.verdicts import FALSE_ALARMS, Outcome, verdicts
from agent.core.errors import ParseError, UsageError
from agent.core.records import Relativity, Validity
from agent.store.sample_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.comparison.measured_run import Key, Kind, MeasuredRun
    from agent.comparison.sides import Side

    _ReadQueries = Callable[[Path], list[Query]]

_BAD = (Validity.INVALID, Validity.FAILED)


@dataclass(frozen=True)
class ComparedMetric:
    """A metric of a scenario on the first side and on another.

    Args:
        key: scenario and metric.
        kind: unit, direction and importance.
        side: the other side's name.
        before: the mean on the first side.
        after: the mean on the other.
        repeats: how many repeats each side has.
        estimate: the difference.
        outcome: the verdict; undecided for a difference that cannot be told as a share.
        notes: limits of this comparison.
    """

    key: Key
    kind: Kind
    side: str
    before: float
    after: float
    repeats: tuple[int, int]
    estimate: Estimate | None
    outcome: Outcome
    notes: tuple[str, ...]

    @property
    def direction(self) -> str | None:
        """Return better or worse; None if it did not change, or neither more nor less is better."""
        if self.outcome is not Outcome.CHANGED or self.kind.relativity is Relativity.UNDEFINED:
            return None
        return (
            "better" if (self.after > self.before) == (self.kind.relativity is Relativity.HIGHER) else "worse"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can carry it; what is unknown is absent."""
        found: dict[str, Any] = {
            "scenario": self.key.scenario,
            "metric": self.key.metric,
            "unit": self.kind.unit,
            "relativity": self.kind.relativity.value,
            "side": self.side,
            "before": self.before,
            "after": self.after,
            "repeats": list(self.repeats),
            "verdict": self.outcome.value,
            "is_regression": self.direction == "worse",
            "notes": list(self.notes),
        }
        if self.direction:
            found["direction"] = self.direction
        if self.estimate:
            found |= {
                "change": self.estimate.change,
                "interval": list(self.estimate.interval),
                "p_value": self.estimate.p_value,
                "method": self.estimate.method.value,
            }
        return found


@dataclass(frozen=True)
class Comparison:
    """What differs between sides.

    Args:
        sides: their names and their runs.
        context: what differs apart from the results.
        warnings: what cannot be compared, and what spoils the comparison.
        invalid: scenarios whose result counts on the first side and no longer on another, with that side.
        metrics: the compared metrics, by scenario.
        threshold: the smallest change that matters, as a share.
        history: how many runs tell the noise between runs.
    """

    sides: tuple[tuple[str, tuple[str, ...]], ...]
    context: tuple[ContextDifference, ...]
    warnings: tuple[str, ...]
    invalid: tuple[tuple[str, str], ...]
    metrics: tuple[ComparedMetric, ...]
    threshold: float
    history: int = 0

    @property
    def regressions(self) -> int:
        """How many metrics became worse, and results that no longer count."""
        return len(self.invalid) + sum(one.direction == "worse" for one in self.metrics)

    @property
    def method(self) -> tuple[str, ...]:
        """How it was compared, and what that cannot tell."""
        methods = {one.estimate.method for one in self.metrics if one.estimate}
        least = f"{100 * self.threshold:.3g} %"
        rule = (
            f"Changed: at least {least}, and more than noise; if nothing differs, at most "
            f"{100 * FALSE_ALARMS:.0f} % of comparisons name any change (Benjamini-Hochberg, "
            f"{len(self.metrics)} metrics). "
            f"Same: all of the {100 * CONFIDENCE:.0f} % interval is within {least}."
        )
        return (*(text for method, text in _METHODS.items() if method in methods), rule)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can carry it."""
        return {
            "schema_version": 1,
            "sides": [{"name": name, "runs": list(runs)} for name, runs in self.sides],
            "threshold": self.threshold,
            "confidence": CONFIDENCE,
            "history_runs": self.history,
            "context": [
                {"kind": one.kind, "name": one.name, "values": [list(value) for value in one.values]}
                for one in self.context
            ],
            "warnings": list(self.warnings),
            "no_longer_valid": [{"side": side, "scenario": name} for side, name in self.invalid],
            "metrics": [one.to_json() for one in self.metrics],
            "method": list(self.method),
            "regressions": self.regressions,
        }


_METHODS = {
    Method.REPEATS: "Repeats: Welch's t test of logarithms, within each host. Repeats that were measured one "
    "side after the other differ also by what changed on the host in between: alternate the sides.",
    Method.POOLED: "One noise for both sides, from their repeats and the history: it is taken to be equal.",
    Method.HOSTS: "Hosts: t test of the change of each host that both sides have.",
    Method.HISTORY: "One run a side: the noise between runs is that of the history, the noise within a run "
    "that of its samples (block bootstrap), if it has some.",
    Method.ASSUMED: "One run a side and no history: the noise between runs is unknown. The interval assumes "
    f"{100 * ASSUMED_NOISE:.0f} %; what is not far beyond it is undecided. Repeat the runs, "
    "or give earlier ones with --history.",
}


def compare(
    sides: Sequence[Side],
    *,
    threshold: float,
    history: Sequence[MeasuredRun] = (),
    most_verbosity: int = 1,
) -> Comparison:
    """Compare sides with the first of them.

    Args:
        sides: two or more.
        threshold: the smallest change that matters, as a share.
        history: runs of settings that did not change; they tell the noise between runs.
        most_verbosity: metrics of a higher one are left out; 1 for headline numbers.

    Raises:
        UsageError: if no metric is on two sides.
    """
    first, *others = sides
    noise = _noise(history)
    read = lru_cache(maxsize=2)(_queries)  # the metrics of a scenario follow each other
    warnings = [f"{side.name}: left out {text}" for side in sides for text in side.left_out]
    drafts: list[_Draft] = []
    invalid = []
    for other in others:
        warnings += _unmatched(first, other)
        for scenario in _scenarios(first):
            before, after = _validity(first, scenario), _validity(other, scenario)
            warnings += [
                f"{scenario}: the result of {side.name} is {validity.value}"
                for side, validity in ((first, before), (other, after))
                if validity in _BAD and validity
            ]
            if before is Validity.VALID and after in _BAD:
                invalid.append((other.name, scenario))
        for key, kind in _kinds(first).items():
            if kind.verbosity > most_verbosity or key not in (found := _kinds(other)):
                continue
            if found[key].unit != kind.unit:
                warnings.append(f"{key.scenario}: {key.metric} is in {kind.unit} and in {found[key].unit}")
            else:
                drafts.append(_Draft(key, kind, first, other, noise=noise.get(key), read=read))
    if not drafts and not invalid:
        raise UsageError(
            "the sides have no metric in common",
            remedy="compare runs of the same profile and scenarios, or take more metrics with --verbosity",
            details=tuple(warnings),
        )
    return Comparison(
        tuple((side.name, tuple(run.name for run in side.runs)) for side in sides),
        tuple(context_differences(sides)),
        tuple(dict.fromkeys(warnings)),
        tuple(invalid),
        tuple(_judged(drafts, threshold)),
        threshold,
        len(history),
    )


class _Draft:
    """A metric on two sides, before all are judged together."""

    def __init__(
        self, key: Key, kind: Kind, first: Side, other: Side, *, noise: Noise | None, read: _ReadQueries
    ) -> None:
        self.key, self.kind, self.side = key, kind, other.name
        self._read = read
        self.notes: list[str] = []
        before, after = _by_host(first, key), _by_host(other, key)
        self.blocks = self._blocks(before, after)
        self.before = statistics.fmean(value for block in self.blocks for value in block.before)
        self.after = statistics.fmean(value for block in self.blocks for value in block.after)
        self.repeats = (
            sum(len(block.before) for block in self.blocks),
            sum(len(block.after) for block in self.blocks),
        )
        errors = None
        if self.repeats == (1, 1):
            errors = self._sampling_errors(first, other)
        elif any(
            len(run.values.get(key, ())) > 1
            for side in (first, other)
            for run in side.runs[:1]
            if len(side.runs) == 1
        ):
            self.notes.append("rounds of one run: what differs from run to run is not in its noise")
        self.estimate = estimate(self.blocks, noise, errors)
        if self.estimate and not self.estimate.error:
            self.notes.append("the repeats do not differ at all")

    def _blocks(self, before: Mapping[str, list[float]], after: Mapping[str, list[float]]) -> list[Block]:
        common = sorted(before.keys() & after.keys())
        if common:
            if alone := sorted(before.keys() ^ after.keys()):
                self.notes.append(f"hosts on one side only are left out: {', '.join(alone)}")
            return [Block(before[host], after[host]) for host in common]
        self.notes.append("no host is on both sides: the change may be that of the hosts")
        return [Block(_of_all_hosts(before), _of_all_hosts(after))]

    def _sampling_errors(self, first: Side, other: Side) -> tuple[float, float] | None:
        """The sampling error of the only run of each side; None if the samples of one do not tell it."""
        found = []
        for side, value in ((first, self.before), (other, self.after)):
            runs = (run for run in side.runs if run.values.get(self.key) == [value])
            error = _sampling_error(self._read, next(runs), self.key, value)
            if error is None:
                self.notes.append("no samples tell the noise within the runs")
                return None
            if error.is_short:
                self.notes.append("the queries of a run depend on each other too long: more noise than told")
            found.append(error.value)
        return found[0], found[1]


def _judged(drafts: Sequence[_Draft], threshold: float) -> list[ComparedMetric]:
    told = [(draft, draft.estimate) for draft in drafts if draft.estimate]
    outcomes = dict(
        zip([draft for draft, _ in told], verdicts([one for _, one in told], threshold), strict=True)
    )
    return [
        ComparedMetric(
            draft.key,
            draft.kind,
            draft.side,
            draft.before,
            draft.after,
            draft.repeats,
            draft.estimate,
            outcomes.get(draft, Outcome.UNDECIDED),
            tuple(draft.notes if draft.estimate else [*draft.notes, "the first side is 0: no share of it"]),
        )
        for draft in drafts
    ]


def _kinds(side: Side) -> dict[Key, Kind]:
    return {key: kind for run in reversed(side.runs) for key, kind in run.kinds.items()}


def _scenarios(side: Side) -> list[str]:
    return list(dict.fromkeys(scenario for run in side.runs for scenario in run.cases))


def _validity(side: Side, scenario: str) -> Validity | None:
    found = [run.validity(scenario) for run in side.runs]
    return next((one for one in (Validity.FAILED, Validity.INVALID, Validity.VALID) if one in found), None)


def _unmatched(first: Side, other: Side) -> list[str]:
    scenarios, others = set(_scenarios(first)), set(_scenarios(other))
    return [
        f"{name}: only {side.name} has it"
        for side, names in ((first, scenarios - others), (other, others - scenarios))
        for name in sorted(names)
    ]


def _by_host(side: Side, key: Key) -> dict[str, list[float]]:
    """The repeats of each host: its runs, each the mean of its rounds; or the rounds of its only run."""
    runs: dict[str, list[list[float]]] = {}
    for run in side.runs:
        if key in run.values:
            runs.setdefault(run.host, []).append(run.values[key])
    return {
        host: of_host[0] if len(of_host) == 1 else [statistics.fmean(values) for values in of_host]
        for host, of_host in runs.items()
    }


def _of_all_hosts(hosts: Mapping[str, list[float]]) -> list[float]:
    if len(hosts) == 1:
        return next(iter(hosts.values()))
    return [statistics.fmean(values) for values in hosts.values()]


def _noise(history: Sequence[MeasuredRun]) -> dict[Key, Noise]:
    """The noise between runs of one host, by metric."""
    groups: dict[Key, dict[str, list[float]]] = {}
    for run in history:
        for key, values in run.values.items():
            groups.setdefault(key, {}).setdefault(run.host, []).append(statistics.fmean(values))
    found = {key: noise_between_runs(of_key.values()) for key, of_key in groups.items()}
    return {key: noise for key, noise in found.items() if noise}


def _sampling_error(read: _ReadQueries, run: MeasuredRun, key: Key, value: float) -> SamplingError | None:
    path = run.samples_file(key.scenario)
    return sampling_error(key.metric, value, read(path)) if path else None


def _queries(path: Path) -> list[Query]:
    """The queries that completed, in that order; none if the file is not one of samples."""
    try:
        rows = [row for row in read_rows(path) if row and row.completed_s is not None]
    except (ParseError, OSError):
        return []
    queries = [Query(row.issued_s, row.first_token_s, row.completed_s or 0.0, row.tokens) for row in rows]
    return sorted(queries, key=lambda query: query.completed_s)
