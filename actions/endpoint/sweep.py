"""EndpointSweep: find the load that an OpenAI-compatible endpoint sustains within given limits."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from actions.endpoint.exhibits import exhibits
from actions.endpoint.parameters import EndpointSweepParameters
from actions.endpoint.point import Asked, Measured, PointRunner, write_case_samples
from actions.endpoint.rate_search import RateSearch
from agent.component.component import (
    CASE_OWNER,
    Action,
    ComponentParameters,
    Plan,
    Step,
    StepContext,
    StepOutcome,
)
from agent.component.environment_script import interpreter
from agent.core.errors import ActionFailedError, HostError, ParseError
from agent.core.quantities import metric_text
from agent.core.records import Metric, ParsedOutput, Reason, Relativity, Validity, Verdict
from agent.store.exhibits import write_exhibits
from parsers.endpoint_load.requests import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from actions.endpoint.point import Run
    from agent.core.records import MetadataValue
    from agent.facts import Facts

_WORKLOAD = "endpoint"
_START_S = 3.0
_HEADLINES = 3
_TRIALS = "trials"
_AT_THE_RATE = ("goodput", "slo_attainment", "ttft_p99", "tpot_p99", "latency_p99")


class EndpointSweep(Action):
    """Run a step for each point, and a last one that searches for the highest rate and draws the curve."""

    Parameters: ClassVar[type[ComponentParameters]] = EndpointSweepParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("EndpointSweepParameters", parameters)

    def plan(self, facts: Facts) -> Plan:  # noqa: ARG002 - any host can be a client
        """Plan a step for each point and the last step; the environment may not exist yet.

        Raises:
            HostError: if the key or the trace cannot be read.
        """
        asked = self.asked
        if asked.api_key_env and asked.api_key_env not in os.environ:
            raise HostError(
                f"api_key_env names {asked.api_key_env}, which is not set",
                remedy=f"export {asked.api_key_env}=…",
            )
        for name in ("api_key_file", "trace_file"):
            path = cast("Path | None", getattr(asked, name))
            if path is not None and not (path.is_file() and os.access(path, os.R_OK)):
                raise HostError(f"{name} {path} is not a readable file", remedy="correct the path")
        points = [
            Step(
                point.name,
                f"measures {asked.endpoint} with {point}",
                partial(self._point, point),
                f"{asked.api}: {point}, {asked.repeats} times {asked.duration:g} s",
                estimate_s=asked.repeats * (asked.duration + _START_S),
            )
            for point in self._points()
        ]
        if asked.searches:
            trials = asked.most_trials + asked.confirmations
            last = Step(
                "highest-rate",
                "looks for the highest rate that holds within the limits",
                self._highest_rate,
                f"{asked.api}: up to {trials} rates of {asked.duration:g} s",
                estimate_s=trials / 2 * (asked.duration + _START_S),
            )
        else:
            last = Step("curve", "sets the points side by side", self._curve, estimate_s=1)
        return Plan((*points, last))

    def _points(self) -> list[Asked]:
        """Return the requested points: concurrencies, the unchanged trace, rates."""
        asked = self.asked
        own = [Asked()] if asked.trace_file and not asked.rates else []
        return [
            *(Asked(concurrency=concurrency) for concurrency in asked.concurrency),
            *own,
            *(Asked(rate=rate) for rate in asked.rates),
        ]

    def _case(self, name: str) -> str:
        return f"{self.asked.scenario or self.asked.model}-{name}".replace("/", "-")

    def _runner(self, context: StepContext) -> PointRunner:
        python = interpreter(self.asked.environment)
        if not python.exists():
            raise ActionFailedError(
                f"the environment {self.asked.environment} has no {python.name}",
                remedy="add a PythonEnvironmentInstallation with aiohttp to the dependencies",
            )
        return PointRunner(self.asked, context)

    def _point(self, point: Asked, context: StepContext) -> StepOutcome:
        runner = self._runner(context)
        case_dir = context.case_dir(_WORKLOAD, self._case(point.name))
        folders = [case_dir / f"run-{number}" for number in range(1, self.asked.repeats + 1)]
        runs = [runner.run(point, folder, number) for number, folder in enumerate(folders, 1)]
        write_case_samples(case_dir, folders)
        output = Measured(point, tuple(runs)).output
        return StepOutcome(_sentence(output), (output,), case_dir)

    def _measured(self, context: StepContext) -> list[Measured]:
        """Return the points that this element has measured in this run, except those that failed."""
        owner = context.key.rpartition("/")[0]
        runner = PointRunner(self.asked, context)
        found = []
        for point in self._points():
            folder = _folder_of(context.run_dir / _WORKLOAD, f"{owner}/{point.name}")
            if folder is None:
                continue
            with suppress(ParseError):  # its own step has reported the error
                runs = [runner.read(point, run_dir) for run_dir in sorted(folder.glob("run-*"))]
                found.extend([Measured(point, tuple(runs))] if runs else [])
        return found

    def _curve(self, context: StepContext) -> StepOutcome:
        points = self._measured(context)
        if not points:
            raise ActionFailedError("no point was measured", remedy="see the steps before this one")
        case_dir = context.case_dir(_WORKLOAD, self._case("curve"))
        write_exhibits(case_dir, exhibits(points, self.asked.limits))
        output = ParsedOutput(
            format="endpoint_sweep",
            tool_name="vcagent",
            scenario=f"{self.asked.model}/curve",
            metrics=tuple(_best(points)),
            verdict=_of_points(points),
            details={"model": self.asked.model, "points": len(points)},
        )
        return StepOutcome(_sentence(output), (output,), case_dir)

    def _highest_rate(self, context: StepContext) -> StepOutcome:
        asked = self.asked
        runner = self._runner(context)
        case_dir = context.case_dir(_WORKLOAD, self._case("highest-rate"))
        points = self._measured(context)

        def run(point: Asked, number: int) -> Run:
            context.progress.update(f"trying {point}, run {number}")
            return runner.run(point, case_dir / _TRIALS / f"{point.name}-run-{number}", number)

        search = RateSearch(
            points,
            precision=asked.rate_precision,
            most_trials=asked.most_trials,
            confirmations=asked.confirmations,
            run=run,
        )
        search.execute()
        write_exhibits(case_dir, exhibits(_together(points, search), asked.limits))
        if search.found is not None:
            runs = range(1, len(search.found.runs) + 1)
            place = case_dir / _TRIALS
            write_case_samples(
                case_dir, [place / f"{search.found.asked.name}-run-{number}" for number in runs]
            )
        limits = {
            f"{name}_limit_s": limit_s
            for name in TIMES
            if (limit_s := getattr(asked.limits, f"{name}_s")) is not None
        }
        judged_by: dict[str, MetadataValue] = (
            {"limit_percentile": asked.limit_percentile}
            if asked.limit_share is None
            else {"limit_share": asked.limit_share}
        )
        output = ParsedOutput(
            format="endpoint_sweep",
            tool_name="vcagent",
            scenario=f"{asked.model}/highest-rate",
            metrics=tuple(_found(search)),
            verdict=judged(search, points),
            details={"model": asked.model, "rates_tried": len(search.tried), **limits, **judged_by},
        )
        return StepOutcome(_sentence(output), (output,), case_dir)


def _folder_of(workload: Path, key: str) -> Path | None:
    """Return the folder of the case that belongs to a step."""
    for owner in workload.glob(f"*/{CASE_OWNER}"):
        if owner.read_text(encoding="utf-8") == key:
            return owner.parent
    return None


def _together(points: Sequence[Measured], search: RateSearch) -> list[Measured]:
    """Return all points, each once: concurrencies first, then rates, each upwards."""
    by_rate = {point.asked: point for point in points}
    for point in search.tried.values():
        before = by_rate.get(point.asked)
        runs = (*before.runs, *point.runs) if before else point.runs
        by_rate[point.asked] = Measured(point.asked, runs)
    return sorted(
        by_rate.values(),
        key=lambda point: (point.asked.concurrency is None, point.asked.concurrency or point.offered),
    )


def _found(search: RateSearch) -> Iterator[Metric]:
    found = search.found
    if found is None:
        return
    rate = found.offered
    bracket: dict[str, MetadataValue] = {"lower": rate}
    if search.lowest_bad is not None:
        bracket["upper"] = search.lowest_bad
    text = "highest rate offered that holds within the limits; upper: the lowest that does not"
    yield Metric("highest_rate", rate, "requests/s", Relativity.HIGHER, text, metadata=bracket)
    if search.lowest_bad is not None:
        text = "lowest rate offered that does not hold"
        yield Metric("lowest_rate_that_fails", search.lowest_bad, "requests/s", Relativity.HIGHER, text, 2)
    yield from (found.metrics[name] for name in _AT_THE_RATE if name in found.metrics)
    for metric in found.output.metrics:
        if metric.name not in _AT_THE_RATE:
            yield replace(metric, verbosity=max(metric.verbosity, 2))


def _best(points: Sequence[Measured]) -> Iterator[Metric]:
    """Yield the highest throughput of the points, each with its spread."""
    for name in ("output_tokens_per_second", "requests_per_second", "goodput"):
        found = [point for point in points if name in point.metrics]
        if found:
            best = max(found, key=lambda point: point.metrics[name].value)
            metric = best.metrics[name]
            text = f"highest of the points: {best.asked}"
            told = {**metric.metadata, "point": best.asked.name}
            yield Metric(f"highest_{name}", metric.value, metric.unit, metric.relativity, text, metadata=told)


def _of_points(points: Sequence[Measured]) -> Verdict:
    """Return a verdict that is invalid if a point is: the curve would be wrong there."""
    bad = [point for point in points if not point.is_valid]
    reasons = tuple(
        Reason(f"{point.asked}: {reason.message}", reason.remedy, code=reason.code)
        for point in bad
        if point.output.verdict
        for reason in point.output.verdict.reasons[:1]
    )
    return Verdict(Validity.INVALID if bad else Validity.VALID, reasons)


def judged(search: RateSearch, points: Sequence[Measured]) -> Verdict:
    """Return the verdict on a search: invalid if no rate was found, or if the client limited the next one."""
    tried = list(search.tried.values())
    doubtful = [point for point in tried if not point.is_valid]
    if search.found is None:
        return Verdict(Validity.INVALID, (_nothing_holds(search, doubtful),))
    warnings = list(search.found.output.verdict.warnings if search.found.output.verdict else ())
    invalid = [point for point in doubtful if point.offered == search.lowest_bad]
    if invalid and invalid[0].output.verdict:
        why = invalid[0].output.verdict.reasons[0]
        reason = Reason(
            f"above {search.found.offered:g} requests/s the client or the replies are the limit, not the "
            f"endpoint: {why.message}",
            why.remedy,
            code=why.code,
        )
        return Verdict(Validity.INVALID, (reason,), tuple(warnings))
    if search.lowest_bad is None:
        warnings.append(
            f"{search.found.offered:g} requests/s hold, and no higher rate was found that does not: raise "
            "mostTrials"
        )
    elif search.lowest_bad < search.found.offered:
        warnings.append(
            f"{search.lowest_bad:g} requests/s did not hold, {search.found.offered:g} do: the endpoint "
            "varies; raise duration or repeats"
        )
    bad = [str(point.asked) for point in points if not point.is_valid]
    if bad:
        warnings.append(f"points of the curve are not valid: {', '.join(bad)}")
    return Verdict(Validity.VALID, (), tuple(warnings))


def _nothing_holds(search: RateSearch, doubtful: Sequence[Measured]) -> Reason:
    if doubtful and doubtful[-1].output.verdict:
        why = doubtful[-1].output.verdict.reasons[0]
        return Reason(f"no rate was measured reliably: {why.message}", why.remedy, code=why.code)
    lowest = min(search.tried.values(), key=lambda point: point.offered, default=None)
    said = f"{lowest.offered:g} requests/s: {lowest.missed}" if lowest else "none was tried"
    return Reason(
        f"no rate holds within the limits; {said}",
        "give wider limits, shorter inputs or outputs, or raise mostTrials to try lower rates",
        code="no_rate_holds",
    )


def _sentence(output: ParsedOutput) -> str:
    """Return the outcome in a line."""
    assert output.verdict is not None  # noqa: S101 - every output here has one
    shown = ", ".join(map(metric_text, output.metrics[:_HEADLINES]))
    why = f" ({output.verdict.reasons[0].message})" if output.verdict.reasons else ""
    return f"{output.scenario} {output.verdict.validity.value}{why}: {shown}"
