"""Reads ``mlperf_log_summary.txt``: the same run in words, with two decimals.

Wording varies with LoadGen's version (``Yes``/``NO``, ``satisfied:``/``satisfied :``, ``90th``/``90.0th``,
"Time to" and "Time per Output Token"); an accuracy run's summary holds only the warning and error lines
(mlcommons/inference, loadgen/results.cc and logging.cc).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from parsers.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["SUMMARY_NAME", "SummaryLog", "read_summary"]

SUMMARY_NAME = "mlperf_log_summary.txt"
TITLE = "MLPerf Results Summary"
_SIZE_LIMIT = 1 << 20  # a summary is 4 KB

_MET = {
    "performance constraints satisfied": "result_perf_constraints_met",
    "min duration satisfied": "result_min_duration_met",
    "min queries satisfied": "result_min_queries_met",
    "early stopping satisfied": "early_stopping_met",
}
_RATES = {
    "samples per second": "result_samples_per_second",
    "completed samples per second": "result_completed_samples_per_sec",
    "scheduled samples per second": "result_scheduled_samples_per_sec",
    "tokens per second": "result_tokens_per_second",
    "completed tokens per second": "result_completed_tokens_per_second",
    "tokens per second (inferred)": "result_inferred_tokens_per_second",
    "completed tokens per second (inferred)": "result_inferred_completed_tokens_per_second",
    "qps w/ loadgen overhead": "result_qps_with_loadgen_overhead",
    "qps w/o loadgen overhead": "result_qps_without_loadgen_overhead",
    "tps w/ loadgen overhead": "result_token_throughput_with_loadgen_overhead",
}
_SETTINGS = {
    "target_latency (ns)": "effective_target_latency_ns",
    "ttft_latency (ns)": "requested_server_ttft_latency",
    "tpot_latency (ns)": "requested_server_tpot_latency",
    "min_duration (ms)": "effective_min_duration_ms",
    "max_duration (ms)": "effective_max_duration_ms",
}
_TIMES = (
    (re.compile(r"(min|max|mean) latency \(ns\)"), "result_{}_latency_ns"),
    (re.compile(r"([\d.]+) percentile latency \(ns\)"), "result_{}_percentile_latency_ns"),
    (re.compile(r"(min|max|mean) first token latency \(ns\)"), "result_first_token_{}_latency_ns"),
    (
        re.compile(r"([\d.]+) percentile first token latency \(ns\)"),
        "result_first_token_{}_percentile_latency_ns",
    ),
    (re.compile(r"(min|max|mean) time (?:to|per) output token \(ns\)"), "result_time_to_output_token_{}"),
    (
        re.compile(r"([\d.]+) percentile time (?:to|per) output token \(ns\)"),
        "result_time_per_output_token_{}_percentile_ns",
    ),
)
_COUNT = re.compile(r"^(no|\d+) (errors?|warnings?) encountered", re.IGNORECASE)


@dataclass(slots=True)
class SummaryLog:
    """What one summary says.

    Args:
        path: the file.
        validity: VALID or INVALID, empty where there is none (accuracy runs, cut files).
        scenario: as LoadGen writes it.
        mode: as LoadGen writes it.
        sut_name: the name of the system under test.
        flags: constraints met or missed, under the detail log's keys.
        numbers: numbers, under the detail log's keys.
        errors: how many errors there were, None where the file was cut before it.
        warnings: how many warnings there were.
    """

    path: Path
    validity: str = ""
    scenario: str = ""
    mode: str = ""
    sut_name: str = ""
    flags: dict[str, bool] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    errors: int | None = None
    warnings: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the file has its last line, the number of errors."""
        return self.errors is not None

    def results(self) -> Mapping[str, float]:
        """The measured numbers, without settings."""
        return {key: value for key, value in self.numbers.items() if key.startswith("result_")}


def read_summary(path: Path) -> SummaryLog:
    """Read a summary.

    Raises:
        ParseError: if the file cannot be read or is no LoadGen summary.
    """
    try:
        with path.open("rb") as file:
            text = plain(file.read(_SIZE_LIMIT).decode("utf-8", "replace"))
    except OSError as error:
        raise ParseError(f"cannot read the summary: {error.strerror}", where=str(path)) from error
    log = SummaryLog(path)
    per_query = False
    for line in text.split("\n"):
        if counted := _COUNT.match(line.strip()):
            _count(log, counted)
            continue
        name, separator, value = (part.strip() for part in line.partition(":"))
        if name.lower() == "per-query latency":
            per_query = True
        elif separator and value:
            _take(log, name.lower(), value, per_query=per_query)
    if not (log.numbers or log.validity or log.complete):
        raise ParseError("is no LoadGen summary, or it was cut before any number", where=str(path))
    return log


def _count(log: SummaryLog, counted: re.Match[str]) -> None:
    number = 0 if counted[1].lower() == "no" else int(counted[1])
    if counted[2].lower().startswith("error"):
        log.errors = number
    else:
        log.warnings = number


def _take(log: SummaryLog, name: str, value: str, *, per_query: bool) -> None:
    if name == "result is" and value in {"VALID", "INVALID"}:
        log.validity = value
    elif name == "scenario":
        log.scenario = value.replace(" ", "")
    elif name == "mode":
        log.mode = value
    elif name == "sut name":
        log.sut_name = value
    elif name in _MET:
        log.flags[_MET[name]] = value.lower() == "yes"
    elif (key := _key(name, per_query=per_query)) and (number := _number(value)) is not None:
        log.numbers[key] = number


def _key(name: str, *, per_query: bool) -> str | None:
    """The detail log's key for a name of the summary, None where no metric follows from it."""
    if key := _RATES.get(name) or _SETTINGS.get(name):
        return key
    for pattern, key in _TIMES:
        if found := pattern.fullmatch(name):
            return _per_query(key.format(found[1])) if per_query else key.format(found[1])
    return f"effective_{name}" if re.fullmatch(r"[a-z_]+", name) else None


def _per_query(key: str) -> str:
    """The key of MultiStream's latencies, whose names in the summary are those of the samples."""
    if "percentile" in key:
        return key.replace("percentile_latency", "percentile_per_query_latency")
    return key.replace("_latency_ns", "_query_latency_ns")


def _number(value: str) -> float | None:
    """A finite number, None for anything else."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
