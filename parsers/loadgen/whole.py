"""Checks that a run's logs are complete: each record and line of its version, once and well formed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.loadgen.score import score_key
from parsers.loadgen.summary import estimates_in
from parsers.loadgen.versions import (
    GENERATED_IS_ISSUED_SINCE,
    LINES,
    RECORDS,
    SCENARIOS,
    STREAMS,
    Kind,
    epochs,
    is_well_formed,
    lines_of,
    records_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parsers.loadgen.detail import DetailLog
    from parsers.loadgen.summary import SummaryLog
    from parsers.loadgen.versions import Line, Version

_COMPLETED_IS_FIRST = (4, 0)
MODES = frozenset({"PerformanceOnly", "AccuracyOnly", "SubmissionRun", "FindPeakPerformance"})
_ESTIMATES = {"SingleStream": "early_stopping_latency_ss", "MultiStream": "early_stopping_latency_ms"}
_MET, _TEXT = "early stopping satisfied", "early stopping result"
# A complete summary has one line of each tuple; the form changed while the version number stayed the same.
_EITHER = (
    (STREAMS, "#th percentile latency (ns)", "#.#th percentile latency (ns)", "samples per query"),
    (("MultiStream",), "early stopping satisfied", "performance constraints satisfied"),
)
_RECORDS = frozenset(record.name for record in RECORDS)
_LINES = frozenset(line.name for line in LINES)


def gaps(log: DetailLog, summary: SummaryLog | None) -> list[str]:
    """Return the parts that the log lacks; empty if it is complete.

    Args:
        log: the detail log, or the content of the summary if only that exists.
        summary: the summary, if it exists.
    """
    missing = ["the end of its last line"] if log.cut else []
    if log.scenario not in SCENARIOS or log.mode not in MODES:
        return [*missing, "the scenario and mode"]
    if log.is_summary and summary is not None:
        return [*missing, *summary_gaps(summary, log.version_parts)]
    if not log.version_parts:
        missing.append("LoadGen's version")
    if log.mode == "AccuracyOnly":
        return missing + _accuracy_gaps(log)
    written = records_of(log.version_parts, log.scenario, tokens=log.token_latencies)
    missing += [key for key in ("effective_scenario", "effective_test_mode") if not log.text(key)]
    missing += [key for key, (_, is_needed) in written.items() if is_needed and key not in log.counts]
    if summary is not None:
        missing += [
            key for key in summary.results() if key.startswith("result_inferred") and key not in log.counts
        ]
    return missing + ([] if score_key(log) or missing else ["a score"])


def _accuracy_gaps(log: DetailLog) -> list[str]:
    missing = []
    if log.rounds_ended < max(log.sample_sets, 1):
        missing.append("power_end, the end of the last round")
    expected = log.number("effective_accuracy_sample_count") or log.number("qsl_reported_total_count")
    issued = log.samples_generated
    if log.version_parts < GENERATED_IS_ISSUED_SINCE:
        issued = max(issued, log.samples_loaded)
    if expected and issued < expected:
        missing.append(f"{expected - issued:g} of {expected:g} samples")
    return missing


def malformed(log: DetailLog) -> list[str]:
    """Return the records whose value LoadGen cannot have written, each with the valid form."""
    if log.mode == "AccuracyOnly":
        return []
    kinds = {record.name: record.kind for record in RECORDS}
    return [
        f"{key} is not {kinds[key].value}"
        for key in sorted(_RECORDS & log.counts.keys())
        if not (kinds[key] is Kind.TEXT or is_well_formed(kinds[key], log.values.get(key)))
    ]


def foreign_records(log: DetailLog) -> list[str]:
    """Return the records that this version of LoadGen does not write in this scenario."""
    if log.mode == "AccuracyOnly":
        return sorted(key for key in _RECORDS & log.counts.keys() if key.startswith("result_"))
    written = records_of(log.version_parts, log.scenario, tokens=log.token_latencies)
    return sorted((_RECORDS & log.counts.keys()) - written.keys())


def summary_gaps(summary: SummaryLog, version: Version) -> list[str]:
    """Return the lines that the summary of a performance run lacks."""
    return [*dict.fromkeys(_lacking(summary, version))]


def _lacking(summary: SummaryLog, version: Version) -> list[str]:
    """Return the same lines, once for each check that needs them."""
    said = summary.names()
    missing = [] if summary.titles else ["its title"]
    missing += [] if summary.scenario else ["its scenario"]
    missing += _stopping_gaps(summary, said)
    missing += [
        names[0] for scenarios, *names in _EITHER if summary.scenario in scenarios and not said & {*names}
    ]
    written = _written(summary, version)
    missing += [
        name for name, (line, is_needed) in written.items() if is_needed and not _has(summary, line, said)
    ]
    return missing + ([] if summary.complete else ["its end, the number of errors"])


def _stopping_gaps(summary: SummaryLog, said: set[str]) -> list[str]:
    """Return the missing parts of early stopping: its flag, and a text that fits the verdict."""
    texts = {name for name in said if name.endswith("early stopping result")}
    if summary.scenario == "Offline" or not (texts or _MET in said):
        return []
    missing = [] if _MET in said else [_MET]
    wanted_texts = {"ttft early stopping result", "tpot early stopping result"}
    missing += sorted((wanted_texts if texts & wanted_texts or summary.token_latencies else {_TEXT}) - texts)
    if summary.validity != "VALID":
        return missing
    percentile = summary.numbers.get("effective_target_latency_percentile")
    wanted = _ESTIMATES.get(summary.scenario)
    for name in sorted(texts):
        text = " ".join(summary.said[name])
        estimates = estimates_in(text, summary.scenario, percentile)
        fits = wanted in estimates if wanted else "Run successful" in text
        missing += [] if fits else [name]
    return missing


def _has(summary: SummaryLog, line: Line, said: set[str]) -> bool:
    """Return True if the line exists and is well formed."""
    if line.name not in said:
        return bool(line.follows) and line.follows not in said
    if line.kind is Kind.VERDICT:
        return summary.said[line.name] == [summary.validity] and bool(summary.validity)
    if line.kind is Kind.FLAG:
        return line.key in summary.flags
    if line.kind in {Kind.RATE, Kind.COUNT, Kind.LATENCY} and line.key:
        return is_well_formed(line.kind, summary.numbers.get(line.key))
    return True


def _written(summary: SummaryLog, version: Version) -> Mapping[str, tuple[Line, bool]]:
    return lines_of(version, summary.scenario, tokens=summary.token_latencies)


def repeated_lines(summary: SummaryLog) -> list[str]:
    """Return the lines that occur more often than one run writes them."""
    times = {line.name: line.times for line in LINES}
    repeated = [
        name for name, texts in summary.said.items() if len(texts) > times.get(name, 1) or len(set(texts)) > 1
    ]
    repeated += ["the title"] if summary.titles > 1 else []
    return repeated + (["the number of errors"] if summary.endings > 1 else [])


def foreign_lines(summary: SummaryLog, version: Version) -> list[str]:
    """Return the lines that this version of LoadGen does not write in this scenario."""
    return sorted((summary.names() & _LINES) - _written(summary, version).keys())


def fitting_version(summary: SummaryLog) -> Version:
    """Return the newest version that writes such a summary, or the nearest one if none does.

    If Server's first line is the scheduled rate, that is the score, as in versions up to 3.1.
    """
    is_old = summary.scenario == "Server" and summary.scheduled_is_first
    versions = [version for version in epochs() if version < _COMPLETED_IS_FIRST or not is_old]

    def faults(version: Version) -> int:
        return len(_lacking(summary, version)) + len(foreign_lines(summary, version))

    return min(versions, key=faults)
