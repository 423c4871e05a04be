"""Reads a run's folder into values; gaps are tolerated, since failed and killed runs are reported too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.core.records import (
    SUMMARY_TAG,
    Metric,
    MetricRecord,
    Reason,
    Validity,
    Verdict,
    metric_of,
)
from agent.report.headline import headline_metrics
from agent.report.host_usage import HostUsage
from agent.store.documents import RunDocument
from agent.store.metric_lines import is_monitor, moment, read_records
from agent.store.results import METRICS_FILE

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True)
class CaseResult:
    """One case of a run; the paths ``case_dir`` and ``log`` lie within the run's folder and exist."""

    scenario: str
    tool_name: str
    tool_version: str
    verdict: Verdict | None
    start: datetime | None
    end: datetime | None
    case_dir: Path | None
    details: Mapping[str, Any]
    complete: bool
    warnings: tuple[str, ...] = ()
    """Warnings that reduce the trust in its numbers, with or without a verdict."""
    metrics: list[Metric] = field(default_factory=list)
    parts: list[Metric] = field(default_factory=list)
    """Metrics of scenarios below the case's scenario, such as the prompt lengths used to time an engine."""
    usage: list[Metric] = field(default_factory=list)
    """Metrics that the monitors recorded during the case."""

    @property
    def headline(self) -> list[Metric]:
        """The metrics to show at a glance; without its own metrics, the first of each name of its parts."""
        first: dict[str, Metric] = {}
        for metric in self.parts:
            first.setdefault(metric.name, metric)
        return headline_metrics(self.metrics or first.values())


@dataclass(frozen=True)
class StepResult:
    """One step of a run."""

    title: str
    type: str
    name: str
    kind: str
    status: str
    reason: str
    message: str
    start: datetime | None
    end: datetime | None
    log: Path | None

    @property
    def duration_s(self) -> float | None:
        """The step's duration in seconds; None if it did not end."""
        return (self.end - self.start).total_seconds() if self.start and self.end else None


@dataclass(frozen=True)
class RunResult:
    """Everything that a report shows about a run.

    Args:
        run_dir: the run's folder.
        profile: name, description, sources and parameters, if known.
        values: the rest of run.json: command line, versions, facts, exit code and reason.
        verdict: the run's verdict; None if it has none.
        others: metrics of scenarios that no case has, by scenario.
        host: the monitors' records.
        unread_lines: lines of metrics.jsonl that were cut short.
        warnings: warnings that reduce the trust in a number, with or without a verdict.
    """

    run_dir: Path
    run_id: str
    experiment_id: str
    client_id: str
    profile: Mapping[str, Any]
    values: Mapping[str, Any]
    start: datetime | None
    end: datetime | None
    verdict: Verdict | None
    cases: tuple[CaseResult, ...]
    steps: tuple[StepResult, ...]
    others: Mapping[str, list[Metric]]
    host: HostUsage
    unread_lines: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def plain_actions(self) -> tuple[StepResult, ...]:
        """The steps of actions, if the run has no case: what the run did instead of a measurement."""
        return () if self.cases else tuple(step for step in self.steps if step.kind == "action")

    @property
    def duration_s(self) -> float | None:
        """The run's duration in seconds."""
        return (self.end - self.start).total_seconds() if self.start and self.end else None


def read_run(run_dir: Path) -> RunResult:
    """Read a run's folder.

    Raises:
        UsageError: if it does not contain a readable run.json.
    """
    run = RunDocument.read(run_dir).to_json()
    unread: list[str] = []
    return run_result(run, read_records(run_dir / METRICS_FILE, unread), run_dir, unread)


def run_result(
    run: Mapping[str, Any], records: Iterable[MetricRecord], run_dir: Path, unread: list[str] | None = None
) -> RunResult:
    """Combine run.json and the records; see ``read_run``."""
    start = moment(run.get("start"))
    cases = tuple(_case(_mapping(case), run_dir) for case in _list(run.get("cases")))
    by_scenario = {case.scenario: case for case in reversed(cases)}
    host = HostUsage(start)
    others: dict[str, list[Metric]] = {}
    for record in records:
        if is_monitor(record.tool_name) and SUMMARY_TAG not in record.tags:
            host.add(record)
        elif SUMMARY_TAG in record.tags and (case := by_scenario.get(record.scenario)):
            case.usage.append(metric_of(record))
        elif case := by_scenario.get(record.scenario):
            case.metrics.append(metric_of(record))
        else:
            metric = metric_of(record)
            others.setdefault(record.scenario or record.tool_name, []).append(metric)
            above = (by_scenario[name] for name in _above(record.scenario) if name in by_scenario)
            for case in [*above][:1]:
                case.parts.append(metric)
    return RunResult(
        run_dir=run_dir,
        run_id=_text(run.get("run_id")) or run_dir.name,
        experiment_id=_text(run.get("experiment_id")),
        client_id=_text(run.get("client_id")),
        profile=_mapping(run.get("profile")),
        values=run,
        start=start,
        end=moment(run.get("end")),
        verdict=_verdict(_mapping(run.get("verdict"))),
        cases=cases,
        steps=tuple(_step(_mapping(step), run_dir) for step in _list(run.get("steps"))),
        others=others,
        host=host,
        unread_lines=len(unread or ()),
        warnings=_warnings(_mapping(run.get("verdict"))),
    )


def _case(case: Mapping[str, Any], run_dir: Path) -> CaseResult:
    folder = _inside(run_dir, case.get("case_dir"))
    return CaseResult(
        scenario=_text(case.get("scenario")),
        tool_name=_text(case.get("tool_name")),
        tool_version=_text(case.get("tool_version")),
        verdict=_verdict(case),
        start=moment(case.get("start")),
        end=moment(case.get("end")),
        case_dir=folder if folder and folder.is_dir() and folder != run_dir else None,
        details=_mapping(case.get("details")),
        complete=case.get("complete") is not False,
        warnings=_warnings(case),
    )


def _step(step: Mapping[str, Any], run_dir: Path) -> StepResult:
    log = _inside(run_dir, step.get("log"))
    return StepResult(
        title=_text(step.get("title") or step.get("type") or step.get("component") or step.get("key")),
        type=_text(step.get("type")),
        name=_text(step.get("name")),
        kind=_text(step.get("kind")),
        status=_text(step.get("status")) or "pending",
        reason=_text(step.get("reason")),
        message=_text(step.get("message")),
        start=moment(step.get("start")),
        end=moment(step.get("end")),
        log=log if log and log.is_file() else None,
    )


def _verdict(values: Mapping[str, Any]) -> Verdict | None:
    try:
        validity = Validity(values.get("validity"))
    except ValueError:
        return None
    reasons = tuple(_reason(_mapping(reason)) for reason in _list(values.get("reasons")))
    return Verdict(validity, reasons, _warnings(values))


def _warnings(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(_text, _list(values.get("warnings"))))


def _reason(values: Mapping[str, Any]) -> Reason:
    return Reason(
        message=_text(values.get("message")),
        remedy=_text(values.get("remedy")),
        setting=_text(values.get("setting")) or None,
        value=values.get("value"),
        code=_text(values.get("code")),
    )


def _above(scenario: str) -> Iterator[str]:
    """Yield the scenarios that one may be a part of, the nearest first: ``a/b`` and ``a`` for ``a/b/c``."""
    while "/" in scenario:
        scenario = scenario.rpartition("/")[0]
        yield scenario


def _inside(run_dir: Path, name: object) -> Path | None:
    """Return a path below the run's folder; None if it leads out of the folder."""
    if not isinstance(name, str) or not name or "\0" in name:
        return None
    path = run_dir / name
    return path if path.resolve().is_relative_to(run_dir.resolve()) else None


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
