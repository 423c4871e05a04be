"""Compares runs: each side's metrics with the same metrics of the first side."""

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
    """A metric of a scenario on the first side and on another side.

    Args:
        key: scenario and metric.
        kind: unit, direction and importance.
        side: the other side's name.
        before: the mean on the first side.
        after: the mean on the other side.
        repeats: the number of repeats on each side.
        estimate: the difference; None if it cannot be expressed as a share.
        outcome: the verdict; undecided if there is no estimate.
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
        """Return better or worse; None if the metric did not change, or has no better direction."""
        if self.outcome is not Outcome.CHANGED or self.kind.relativity is Relativity.UNDEFINED:
            return None
        return (
            "better" if (self.after > self.before) == (self.kind.relativity is Relativity.HIGHER) else "worse"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the metric as JSON; unknown values are absent."""
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
    """The differences between sides.

    Args:
        sides: their names and their runs.
        context: differences apart from the results.
        warnings: metrics that cannot be compared, and problems that make the comparison unreliable.
        invalid: scenarios whose result counts on the first side and no longer on another, with that side.
        metrics: the compared metrics, by scenario.
        threshold: the smallest change that matters, as a share.
        history: the number of runs that the noise between runs is estimated from.
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
        """The number of metrics that became worse, plus the results that no longer count."""
        return len(self.invalid) + sum(one.direction == "worse" for one in self.metrics)

    @property
    def method(self) -> tuple[str, ...]:
        """Sentences about the method of comparison and its limits."""
        methods = {one.estimate.method for one in self.metrics if one.estimate}
        least = f"{100 * self.threshold:.3g} %"
        rule = (
            f"Changed: at least {least}, and more than noise; if nothing differs, at most "
            f"{100 * FALSE_ALARMS:.0f} % of comparisons name any change (Benjamini-Hochberg, "
            f"{len(self.metrics)} {'metric' if len(self.metrics) == 1 else 'metrics'}). "
            f"Same: all of the {100 * CONFIDENCE:.0f} % interval is within {least}."
        )
        return (*(text for method, text in _METHODS.items() if method in methods), rule)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON."""
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
    "side after the other also differ by changes on the host in between: alternate the sides.",
    Method.POOLED: "One noise level for both sides, assumed to be equal, from their repeats and the history.",
    Method.HOSTS: "Hosts: t test of the changes on the hosts that both sides have.",
    Method.HISTORY: "One run a side: the noise between runs comes from the history, the noise within a run "
    "from its samples (block bootstrap), if it has some.",
    Method.ASSUMED: "One run a side and no history: the noise between runs is unknown. The interval assumes "
    f"{100 * ASSUMED_NOISE:.0f} %; changes not far beyond that are undecided. Repeat the runs, "
    "or give earlier ones with --history.",
}


def compare(
    sides: Sequence[Side],
    *,
    threshold: float,
    history: Sequence[MeasuredRun] = (),
    most_verbosity: int = 1,
) -> Comparison:
    """Compare each side with the first.

    Args:
        sides: two sides or more.
        threshold: the smallest change that matters, as a share.
        history: runs with unchanged settings, to estimate the noise between runs.
        most_verbosity: the highest verbosity of metrics to compare; 1 for headline numbers.

    Raises:
        UsageError: if the sides have no metric in common.
    """
    first, *others = sides
    noise = _noise(history)
    read = lru_cache(maxsize=2)(_queries)  # consecutive metrics belong to the same scenario
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
    """A metric on two sides, before all metrics are judged together."""

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
            self.notes.append("rounds of one run: the noise does not include differences between runs")
        self.estimate = estimate(self.blocks, noise, errors)
        if self.estimate and not self.estimate.error:
            self.notes.append("the repeats do not differ at all")

    def _blocks(self, before: Mapping[str, list[float]], after: Mapping[str, list[float]]) -> list[Block]:
        common = sorted(before.keys() & after.keys())
        if common:
            if alone := sorted(before.keys() ^ after.keys()):
                self.notes.append(f"hosts on one side only are left out: {', '.join(alone)}")
            return [Block(before[host], after[host]) for host in common]
        self.notes.append("no host is on both sides: the change may come from the hosts")
        return [Block(_of_all_hosts(before), _of_all_hosts(after))]

    def _sampling_errors(self, first: Side, other: Side) -> tuple[float, float] | None:
        """Return the sampling error of the only run of each side; None if one has no usable samples."""
        found = []
        for side, value in ((first, self.before), (other, self.after)):
            runs = (run for run in side.runs if run.values.get(self.key) == [value])
            error = _sampling_error(self._read, next(runs), self.key, value)
            if error is None:
                self.notes.append("no samples to estimate the noise within the runs")
                return None
            if error.is_short:
                self.notes.append(
                    "a run is too short to measure the noise within it: the noise is larger than shown"
                )
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
            tuple(draft.notes if draft.estimate else [*draft.notes, "the first side is 0: no percentage"]),
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
    """Return the repeats of each host: the means of its runs, or the rounds if it has only one run."""
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
    """Return the noise between the runs of a host, by metric."""
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
    """Return the completed queries in order of completion; none if the file does not hold samples."""
    try:
        rows = [row for row in read_rows(path) if row and row.completed_s is not None]
    except (ParseError, OSError):
        return []
    queries = [Query(row.issued_s, row.first_token_s, row.completed_s or 0.0, row.tokens) for row in rows]
    return sorted(queries, key=lambda query: query.completed_s)
