"""Finds LoadGen's runs in a file, a folder or a tree, and turns each into one parsed output."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.counts import count_of
from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Reason, Validity, Verdict
from parsers.loadgen.detail import (
    BEFORE_1_0,
    DETAIL_NAME,
    MARKER,
    DetailLog,
    Value,
    is_before_1_0,
    read_detail,
)
from parsers.loadgen.metrics import run_metrics, seconds_between
from parsers.loadgen.settings import settings_of
from parsers.loadgen.summary import SUMMARY_NAME, TITLE, SummaryLog, read_summary
from parsers.loadgen.verdict import judge
from parsers.loadgen.whole import fitting_version, gaps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT = "loadgen"
TOOL = "MLPerf LoadGen"
_MODES = {
    "PerformanceOnly": "performance",
    "AccuracyOnly": "accuracy",
    "SubmissionRun": "submission",
    "FindPeakPerformance": "find_peak_performance",
}
_HEAD = 1 << 16
_POWER_FORMAT = "%m-%d-%Y %H:%M:%S.%f"
_ZONE_STEP = timedelta(minutes=15)
_FURTHEST_ZONE = timedelta(hours=14)


def recognise(path: Path) -> bool:
    """Return True if the path is a LoadGen log, or a folder that contains one at any depth."""
    if path.is_dir():
        return next(_run_folders(path), None) is not None
    return _kind(path) != ""


def parse(path: Path) -> list[ParsedOutput]:
    """Return all runs of a file, a run folder, or a tree.

    A run in a tree that cannot be read becomes a FAILED output of its own; it does not hide other runs.

    Raises:
        ParseError: if there is no run, or the only run cannot be read.
    """
    if not path.is_dir():
        return [_parse_file(path)]
    folders = sorted(_run_folders(path))
    if not folders:
        raise ParseError(
            f"no {DETAIL_NAME} or {SUMMARY_NAME} here or in any folder below",
            where=str(path),
            remedy="name the folder that LoadGen wrote to; if there is none, the run never started",
        )
    if len(folders) == 1:
        return [parse_folder(folders[0])]
    outputs = [_parse_or_fail(folder) for folder in folders]
    names = [output.scenario for output in outputs]
    return [
        output
        if names.count(output.scenario) == 1
        else replace(output, scenario=_scenario_in(path, folder, output))
        for folder, output in zip(folders, outputs, strict=True)
    ]


def parse_folder(folder: Path, asked: Mapping[str, Value] | None = None) -> ParsedOutput:
    """Return one run from the folder that LoadGen wrote to.

    Args:
        folder: the folder with mlperf_log_detail.txt and mlperf_log_summary.txt.
        asked: the requested settings, with the names and units of user.conf; the run is INVALID if LoadGen
            used other values.

    Raises:
        ParseError: if the logs are missing, or end before any result.
    """
    detail, summary = folder / DETAIL_NAME, folder / SUMMARY_NAME
    if detail.is_file():
        return _from_detail(read_detail(detail), _summary_beside(summary), asked)
    if summary.is_file():
        return _from_summary(read_summary(summary))
    raise ParseError(
        f"there is neither {DETAIL_NAME} nor {SUMMARY_NAME}",
        where=str(folder),
        remedy="see the harness's own log: LoadGen writes both as soon as a test starts",
    )


def _run_folders(tree: Path) -> Iterator[Path]:
    for folder, _, files in os.walk(tree):
        if DETAIL_NAME in files or SUMMARY_NAME in files:
            yield Path(folder)


def _kind(path: Path) -> str:
    """Return which of the two logs a file is, judged by its content; empty if neither."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return ""
    if MARKER in head or is_before_1_0(path):
        return "detail"
    return "summary" if TITLE.encode() in head or path.name == SUMMARY_NAME else ""


def _parse_file(path: Path) -> ParsedOutput:
    if path.name in {DETAIL_NAME, SUMMARY_NAME} and (path.parent / DETAIL_NAME).is_file():
        return parse_folder(path.parent)
    if _kind(path) == "summary":
        return _from_summary(read_summary(path))
    return _from_detail(read_detail(path), None, None)


def _parse_or_fail(folder: Path) -> ParsedOutput:
    try:
        return parse_folder(folder)
    except ParseError as error:
        reason = Reason(error.message, error.remedy or "", code="unreadable")
        verdict = Verdict(Validity.FAILED, (reason,))
        return ParsedOutput(FORMAT, TOOL, verdict=verdict, complete=False, sources=(str(folder),))


def _scenario_in(tree: Path, folder: Path, output: ParsedOutput) -> str:
    place = folder.relative_to(tree).as_posix()
    return f"{place}/{output.scenario}".rstrip("/") if place != "." else output.scenario


def _summary_beside(path: Path) -> SummaryLog | None:
    """Return the summary, or None if missing; an empty one if it has no number or is not a summary."""
    try:
        return read_summary(path) if path.is_file() else None
    except ParseError:
        return SummaryLog(path)


def _from_detail(
    log: DetailLog, summary: SummaryLog | None, asked: Mapping[str, Value] | None
) -> ParsedOutput:
    missing = gaps(log, summary)
    if log.mode == "AccuracyOnly":
        nothing = not log.rounds_ended
    else:
        nothing = not any(key.startswith("result_") for key in log.values)
    if nothing:
        raise ParseError(
            f"the log ends before any result, after {count_of(log.records, 'record')}",
            where=str(log.path),
            remedy="the test was killed or is still running: see the harness's own log, then run it again",
            details=tuple(
                f"error: {text} ({count_of(count, 'time')})" for text, count in log.errors.distinct.items()
            ),
        )
    start = _start(log)
    end = start + timedelta(milliseconds=log.last_time_ms) if start and log.last_time_ms else None
    return ParsedOutput(
        format=FORMAT,
        tool_name=TOOL,
        tool_version=log.version,
        scenario=f"{log.scenario}/{_MODES.get(log.mode, log.mode)}" if log.scenario else "",
        metrics=run_metrics(log, seconds_between(log)) if log.runs == 1 else (),
        verdict=judge(log, summary, missing, asked),
        start=start,
        end=end,
        complete=not missing,
        details=_details(log),
        sources=tuple(str(source.path) for source in (log, summary) if source is not None),
    )


def _start(log: DetailLog) -> datetime | None:
    """Return the start of the test, or None if the log does not give the time zone.

    test_datetime is local time in whole seconds, although it ends in Z, and power_end is UTC in milliseconds
    (loadgen/utils.cc, CurrentDateTimeISO8601 and DateTimeStringForPower). LoadGen writes the record of
    power_end when the round has ended. Its value minus its time is the start in UTC. The difference to
    test_datetime is the time zone. test_datetime alone would put the windows of two tests over each other by
    up to a second.
    """
    if log.round_ended_ms is None:
        return None
    try:
        local = datetime.fromisoformat(log.text("test_datetime").removesuffix("Z")).replace(
            tzinfo=timezone.utc
        )
        ended = datetime.strptime(log.text("power_end"), _POWER_FORMAT).replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    start = ended - timedelta(milliseconds=log.round_ended_ms)
    zone = _ZONE_STEP * round((local - start) / _ZONE_STEP)
    if abs(zone) > _FURTHEST_ZONE:
        return None
    second = local - zone
    # A record that was written late, or a clock that was set during the test, moves power_end.
    return start if second <= start < second + timedelta(seconds=1) else second


def _details(log: DetailLog) -> dict[str, Value]:
    details: dict[str, Value] = {
        "loadgen_version": log.text("loadgen_version"),
        "sut_name": log.text("sut_name"),
        "scenario": log.scenario,
        "mode": log.mode,
        "loadgen_verdict": log.text("result_validity"),
        "errors": log.errors.count,
        "warnings": log.warnings.count,
    }
    for name in ("min_duration", "min_queries", "perf_constraints"):
        if (met := log.flag(f"result_{name}_met")) is not None:
            details[f"{name}_met"] = met
    if (met := log.flag("early_stopping_met")) is not None:
        details["early_stopping_met"] = met
    for key in ("qsl_reported_total_count", "qsl_reported_performance_count"):
        if (count := log.number(key)) is not None:
            details[key] = count
    for key in ("early_stopping_result", "early_stopping_ttft_result", "early_stopping_tpot_result"):
        if text := " ".join(log.text(key).split()):
            details[key] = text
    return {name: value for name, value in (details | settings_of(log)).items() if value != ""}


def _from_summary(summary: SummaryLog) -> ParsedOutput:
    """Return a run of which only the summary exists: fewer digits, and errors only as a number."""
    if summary.is_before_1_0:
        raise ParseError(
            BEFORE_1_0, where=str(summary.path), remedy="run the test again with LoadGen 1.0 or later"
        )
    if not summary.scenario or not summary.results():
        raise ParseError(
            "the summary has no numbers: it is incomplete, or from an accuracy run",
            where=str(summary.path),
            remedy=f"put {DETAIL_NAME} beside it",
        )
    log = DetailLog(summary.path, is_summary=True, assumed_version=fitting_version(summary))
    log.values |= {key: number for key, number in summary.numbers.items() if math.isfinite(number)}
    log.values |= summary.flags
    log.values |= summary.texts
    log.values |= {"effective_scenario": summary.scenario, "effective_test_mode": summary.mode}
    log.values |= {"sut_name": summary.sut_name, "num_errors": summary.errors or 0}
    log.values["requested_use_token_latencies"] = summary.token_latencies
    if "samples per query" in summary.said:  # MultiStream's score until 1.1
        log.values["generated_samples_per_query"] = summary.numbers.get("effective_samples_per_query", 0)
    if summary.validity:
        log.values["result_validity"] = summary.validity
        log.validities.append(summary.validity)
    output = _from_detail(log, summary, None)
    verdict = output.verdict or Verdict(Validity.FAILED)
    alone = f"only {SUMMARY_NAME} exists: it has two decimals, and only the number of errors"
    kept = tuple(metric for metric in output.metrics if metric.name not in {"error_count", "warning_count"})
    return replace(
        output,
        metrics=kept,
        verdict=replace(verdict, warnings=(*verdict.warnings, alone)),
        sources=(str(summary.path),),
    )
