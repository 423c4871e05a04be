"""Turns the results of steps and monitors into records with the run's context, and feeds the sinks."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agent.core.metric_filters import parse_filters
from agent.core.records import (
    CONTEXT_KEY,
    SUMMARY_TAG,
    MetadataValue,
    Metric,
    MetricRecord,
    ParsedOutput,
    Verdict,
    verdict_to_json,
)
from agent.core.safe_files import append_text, replace_text
from agent.report.case_summary import write_case_summary
from agent.run.efficiency import tokens_per_joule
from agent.sinks import Sink, feed
from agent.store.journal import Journal, StepStatus, now
from agent.store.results import CONTEXTS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from agent.component.component import MonitorSummary
    from agent.run.record_context import RecordContexts
    from agent.sinks import Delivering

FEED_INTERVAL_S = 10.0
"""Seconds that a monitor's records may wait in the journal until the sinks get them and sync their files."""


@dataclass(frozen=True)
class RunContext:
    """Values that every record of a run carries.

    Args:
        experiment_id: groups runs that belong together.
        run_id: this run.
        client_id: this host.
        profile: the profile's name.
        metadata: what the user gave with ``--metadata``.
    """

    experiment_id: str
    run_id: str
    client_id: str
    profile: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MonitorRecords:
    """A monitor's summary of a case, with the settings of the monitor's element for its records.

    Args:
        tool_name: the monitor's type.
        tags: its element's labels.
        filters: its element's ``metric_filters``.
        summary: what the monitor recorded during the case.
    """

    tool_name: str
    tags: str
    filters: str
    summary: MonitorSummary


class Recorder:
    """Writes records to the journal and from there to every sink; safe to use from several threads.

    Args:
        journal: the run's journal.
        sinks: other destinations of the records.
        context: what every record carries.
        run_dir: the run's folder, for paths relative to it.
        mask: takes secrets out of a text.
        contexts: the host, runtime and scenario that records refer to.
        delivering: brings records to sinks that may be slow, in its own threads.
    """

    def __init__(
        self,
        journal: Journal,
        sinks: Sequence[Sink],
        context: RunContext,
        run_dir: Path,
        mask: Callable[[str], str],
        *,
        contexts: RecordContexts | None = None,
        delivering: Delivering | None = None,
    ) -> None:
        self.contexts = contexts
        self._delivering = delivering
        self.journal = journal
        self.context = context
        self._sinks = tuple(sinks)
        self._run_dir = run_dir
        self._mask = mask
        self._lock = threading.Lock()
        self._naming = threading.Lock()
        self._next_feed = 0.0
        self._contexts_written = 0
        self.failures: dict[str, None] = {}
        self.monitors: tuple[Callable[[datetime, datetime], MonitorRecords], ...] = ()
        """The monitors that run now, as functions that sum up a time span."""
        self._step_warnings: dict[str, list[str]] = {}

    def finish_step(
        self,
        key: str,
        outputs: Iterable[ParsedOutput],
        *,
        started: datetime,
        message: str,
        case_dir: Path | None,
        scenario: str,
        tags: str,
        filters: str,
        remember: Mapping[str, Any] | None = None,
        about: Mapping[str, Any] | None = None,
        log: str = "",
    ) -> None:
        """Commit a step's end, its cases, its records and facts of the run together, then feed the sinks.

        Args:
            key: the step's key in the journal.
            outputs: what its tools wrote.
            started: when it began.
            message: a line for people.
            case_dir: the folder of raw logs.
            scenario: the name for outputs without a scenario of their own.
            tags: the element's labels.
            filters: its element's ``metric_filters``.
            remember: facts about the run that are written together with the step's end.
            about: the element's type and parameters, and the step's command, for the records' context.
            log: the step's log.
        """
        ended = now()
        with self._naming:  # two cases of the same name may end at the same time
            taken = {case["scenario"] for case in self.journal.cases()}
            cases, records = [], []
            for output in outputs:
                is_timed = output.start is not None and output.end is not None
                output = replace(  # noqa: PLW2901 - the same output with its gaps filled
                    self._masked_output(output),
                    scenario=_unique(self._mask(output.scenario or scenario), taken),
                    start=output.start or started,
                    end=output.end or ended,
                )
                taken.add(output.scenario)
                usage, warnings = self._usage(output)
                if is_timed and (efficiency := tokens_per_joule(output, [part for _, part in usage])):
                    output = replace(output, metrics=(*output.metrics, efficiency))  # noqa: PLW2901 - likewise
                if case_dir:
                    write_case_summary(
                        case_dir, output, [metric for _, part in usage for metric in part.metrics], warnings
                    )
                cases.append(self._case(output, case_dir, warnings))
                kept = parse_filters(filters)(output.metrics)
                context = self.contexts.of_case(about or {}, output, log) if self.contexts and kept else ""
                records += [self._record(metric, output, tags, context) for metric in kept]
                records += self._usage_records(usage)
            if not cases:
                name = f"{self._mask(scenario)}/{key.rpartition('/')[2]}"
                usage, warnings = self._usage(ParsedOutput("", "", scenario=name, start=started, end=ended))
                records += self._usage_records(usage)
                for text in warnings:
                    self._step_warnings.setdefault(text, []).append(name)
            self.journal.end_step(
                key,
                StepStatus.DONE,
                message=self._mask(message),
                cases=cases,
                records=records,
                remember=remember,
            )
        self.feed()

    def emit(self, tool_name: str, scenario: str, tags: str, filters: str, metrics: Sequence[Metric]) -> None:
        """Record a monitor's metrics."""
        moment = now()
        kept = parse_filters(filters)(metrics)
        output = self._masked_output(
            ParsedOutput("", tool_name, scenario=scenario, metrics=tuple(kept), start=moment, end=moment)
        )
        context = self._general_context() if output.metrics else ""
        self.journal.add_records([self._record(metric, output, tags, context) for metric in output.metrics])
        if time.monotonic() >= self._next_feed:
            self.feed()

    @property
    def warnings(self) -> list[str]:
        """Warnings of monitors for steps without a case; equal warnings of several steps become one."""
        return [
            f"{names[0]}{f' and {len(names) - 1} more steps' if names[1:] else ''}: {text}"
            for text, names in self._step_warnings.items()
        ]

    def feed(self) -> None:
        """Bring the sinks up to date; errors are kept in ``failures``, and the next call tries again."""
        with self._lock:
            self._next_feed = time.monotonic() + FEED_INTERVAL_S
            failures = self._write_contexts()
            self.failures = dict.fromkeys((*failures, *feed(self.journal, self._sinks)))
        if self._delivering:
            self._delivering.wake()

    def _write_contexts(self) -> list[str]:
        """Bring contexts.jsonl up to date; return the errors."""
        new = self.journal.contexts(self._contexts_written)
        if not new:
            return []
        path, text = self._run_dir / CONTEXTS_FILE, "".join(f"{line}\n" for _, line in new)
        try:
            if self._contexts_written:
                append_text(path, text)
            else:  # an agent that was killed may have left half a line
                replace_text(path, text)
        except OSError as error:
            return [f"{CONTEXTS_FILE} could not be written: {error}"]
        self._contexts_written = new[-1][0]
        return []

    def _usage(self, output: ParsedOutput) -> tuple[list[tuple[str, ParsedOutput]], list[str]]:
        """Return the monitors' data for a case, as pairs of tags and output, and the monitors' warnings."""
        usage, warnings = [], []
        start, end = output.start or now(), output.end or now()
        if end < start:
            back_s = (start - end).total_seconds()
            warnings.append(f"the host's clock went back by {back_s:.1f} s or more while this ran")
        for monitor in self.monitors:
            seen = monitor(start, end)
            kept = parse_filters(seen.filters)(seen.summary.metrics)
            metrics = tuple(replace(metric, tags=(*metric.tags, SUMMARY_TAG)) for metric in kept)
            part = replace(output, tool_name=seen.tool_name, tool_version="", metrics=metrics, verdict=None)
            usage.append((seen.tags, self._masked_output(part)))
            warnings += [self._mask(text) for text in seen.summary.warnings]
        return usage, warnings

    def _usage_records(self, usage: Sequence[tuple[str, ParsedOutput]]) -> list[MetricRecord]:
        context = self._general_context() if usage else ""
        return [self._record(metric, part, tags, context) for tags, part in usage for metric in part.metrics]

    def _general_context(self) -> str:
        return self.contexts.of_run() if self.contexts else ""

    def _case(
        self, output: ParsedOutput, case_dir: Path | None, warnings: Sequence[str] = ()
    ) -> dict[str, Any]:
        verdict = verdict_to_json(output.verdict)
        return {
            "scenario": output.scenario,
            "tool_name": output.tool_name,
            "tool_version": output.tool_version,
            **verdict,
            "warnings": [*verdict["warnings"], *warnings],
            "validity": output.validity.value if output.validity else None,
            "start": output.start.isoformat() if output.start else None,
            "end": output.end.isoformat() if output.end else None,
            "case_dir": str(case_dir.relative_to(self._run_dir)) if case_dir else None,
            "complete": output.complete,
            "details": dict(output.details),
        }

    def _record(self, metric: Metric, output: ParsedOutput, tags: str, context: str) -> MetricRecord:
        own_tags = _split(self._mask(tags))
        start = output.start or now()
        end = output.end or now()
        return MetricRecord(
            record_id=0,
            timestamp=metric.timestamp or end,
            experiment_id=self.context.experiment_id,
            run_id=self.context.run_id,
            client_id=self.context.client_id,
            profile=self.context.profile,
            tool_name=output.tool_name,
            tool_version=output.tool_version,
            scenario=metric.scenario or output.scenario,
            scenario_start=start,
            scenario_end=end,
            metric=metric.name,
            value=metric.value,
            unit=metric.unit,
            relativity=metric.relativity,
            verbosity=metric.verbosity,
            description=metric.description,
            tags=own_tags + metric.tags,
            metadata={**self.context.metadata, **metric.metadata, **_reference(context)},
        )

    def _masked_output(self, output: ParsedOutput) -> ParsedOutput:
        """Return the output without secrets; values that JSON does not support become text."""
        mask = self._mask
        clean: dict[tuple[Any, ...], Metric] = {}
        metrics = tuple(self._masked_metric(metric, clean) for metric in output.metrics)
        verdict = output.verdict and Verdict(
            output.verdict.validity,
            tuple(
                replace(reason, message=mask(reason.message), remedy=mask(reason.remedy))
                for reason in output.verdict.reasons
            ),
            tuple(map(mask, output.verdict.warnings)),
        )
        return replace(
            output,
            tool_name=mask(output.tool_name),
            tool_version=mask(output.tool_version),
            metrics=metrics,
            verdict=verdict,
            details=self._masked(output.details),
        )

    def _masked_metric(self, metric: Metric, clean: dict[tuple[Any, ...], Metric]) -> Metric:
        # A monitor sends thousands of metrics a minute; nearly all share their texts with an earlier one.
        kind = (metric.scenario, metric.description, metric.unit, metric.tags, id(metric.metadata))
        if kind in clean and self._mask(metric.name) == metric.name:
            return metric
        mask = self._mask
        masked = replace(
            metric,
            name=mask(metric.name),
            unit=mask(metric.unit),
            scenario=metric.scenario and mask(metric.scenario),
            description=mask(metric.description),
            tags=tuple(map(mask, metric.tags)),
            metadata=self._masked(metric.metadata),
        )
        if masked == metric:
            clean[kind] = metric  # keeps the metadata alive, so that its id stays unique
            return metric
        return masked

    def _masked(self, values: Mapping[str, Any]) -> dict[str, MetadataValue]:
        return {
            self._mask(key): value if isinstance(value, (bool, int, float)) else self._mask(str(value))
            for key, value in values.items()
            if value is not None
        }


def _reference(context: str) -> dict[str, MetadataValue]:
    return {CONTEXT_KEY: context} if context else {}


@lru_cache(maxsize=64)
def _split(tags: str) -> tuple[str, ...]:
    return tuple(filter(None, (tag.strip() for tag in tags.split(","))))


def _unique(scenario: str, taken: Collection[str]) -> str:
    """Return the scenario's name, with a number if another case of the run already has that name."""
    names = itertools.chain([scenario], (f"{scenario}#{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)
