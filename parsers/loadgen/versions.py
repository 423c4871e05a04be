"""The records and summary lines that each version of LoadGen writes in each scenario of a performance run.

One table for all versions, read from the history of mlcommons/inference (loadgen/results.cc and
test_settings_internal.cc, before v3.0 loadgen.cc) and checked against the logs of the published rounds. A
commit often changes the output before the version's number changes, so a row names two versions: the first
that may write it, and the first that always does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


Version = tuple[int, ...]
_Span = tuple[Version, Version]

_OLD_NAME = ".5a1"
"""The version that LoadGen 0.5, 0.7 and 1.0 report; of these only 1.0 writes ``:::MLLOG`` records."""
NEWEST: Version = (6, 0, 17)
"""The newest release that the table was checked against."""
GENERATED_IS_ISSUED_SINCE = (5, 0, 11)
"""Before, generated_samples_per_query is the setting if samples are permuted."""
SCENARIOS = frozenset({"SingleStream", "MultiStream", "Server", "Offline"})
_NOT_OFFLINE = SCENARIOS - {"Offline"}
STREAMS = frozenset({"SingleStream", "MultiStream"})
_SINGLE, _MULTI = frozenset({"SingleStream"}), frozenset({"MultiStream"})
_SERVER, _OFFLINE = frozenset({"Server"}), frozenset({"Offline"})

# Each change of the output: the first version that may have it, and the first that always has it.
_FIRST: _Span = ((1, 0), (1, 0))
_NEVER: _Span = ((999,), (999,))
_STREAM_LATENCY: _Span = ((1, 1), (2, 0))  # MultiStream issues query after query, and is scored by latency
_EARLY_STOPPING: _Span = ((1, 1), (2, 0))
_TOKENS: _Span = ((3, 1), (4, 1))
_COMPLETED_TOKENS: _Span = ((4, 0), (4, 1))
_INFERRED_TOKENS: _Span = ((4, 0), (999,))  # only with infer_token_latencies, which is never logged
_ONE_DECIMAL: _Span = ((5, 0, 14), (5, 0, 15))  # 90.0th
_NUM_ERRORS: _Span = ((5, 0, 15), (5, 0, 16))
_PER_OUTPUT_TOKEN: _Span = ((5, 1, 0), (5, 1, 1))  # "Time per Output Token" instead of "Time to"
_ACCURACY_SAMPLES: _Span = ((6, 0, 5), (6, 0, 6))

_LARGEST_INTEGER = 1 << 64
_PERCENTILES = ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")


class Kind(Enum):
    """Kinds of values."""

    TEXT = "text"
    VERDICT = "VALID or INVALID"
    FLAG = "true or false"
    COUNT = "a whole number of 64 bits, not negative"
    RATE = "a finite number, not negative"
    LATENCY = "a positive number of nanoseconds"
    ESTIMATE = "a number of nanoseconds, 0 for none"


@dataclass(frozen=True, slots=True)
class _Row:
    """Describes which versions and runs write a record or line.

    Args:
        name: the record's key, or the line's name in lower case.
        kind: the kind of its value.
        scenarios: the scenarios that have it.
        tokens: True if only runs with token latencies have it, False if only those without; None if both.
        since: the first version that may write it, and the first that always does.
        until: the first version that may no longer write it, and the first that never does.
    """

    name: str
    kind: Kind
    scenarios: frozenset[str] = SCENARIOS
    tokens: bool | None = None
    since: _Span = _FIRST
    until: _Span = _NEVER

    def may(self, version: Version, scenario: str, *, tokens: bool) -> bool:
        """Return True if such a run may have it."""
        fits = scenario in self.scenarios and self.tokens in {None, tokens}
        return fits and self.since[0] <= version < self.until[1]

    def must(self, version: Version, scenario: str, *, tokens: bool) -> bool:
        """Return True if every such run that ended has it."""
        return self.may(version, scenario, tokens=tokens) and self.since[1] <= version < self.until[0]


@dataclass(frozen=True, slots=True)
class Record(_Row):
    """One record of the detail log that a verdict depends on; it occurs once in a run."""


@dataclass(frozen=True, slots=True)
class Line(_Row):
    """One line of the summary.

    Args:
        key: the detail log's key for the same fact; empty if it has none.
        is_needed: True if a complete summary always has it. Other lines only hint at the version.
        times: how often it may occur with the same value.
        follows: the line before it; a complete summary that has that line also has this one.
    """

    key: str = ""
    is_needed: bool = False
    times: int = 1
    follows: str = ""


RECORDS: tuple[Record, ...] = (
    Record("result_validity", Kind.VERDICT),
    Record("result_perf_constraints_met", Kind.FLAG, _SERVER),
    Record("result_perf_constraints_met", Kind.FLAG, _MULTI, until=_STREAM_LATENCY),
    Record("result_min_duration_met", Kind.FLAG),
    Record("result_min_queries_met", Kind.FLAG),
    Record("early_stopping_met", Kind.FLAG, since=_EARLY_STOPPING),
    Record("early_stopping_result", Kind.TEXT, tokens=False, since=_EARLY_STOPPING),
    Record("early_stopping_ttft_result", Kind.TEXT, tokens=True, since=_TOKENS),
    Record("early_stopping_tpot_result", Kind.TEXT, tokens=True, since=_TOKENS),
    Record("early_stopping_latency_ss", Kind.ESTIMATE, _SINGLE, since=_EARLY_STOPPING),
    Record("early_stopping_latency_ms", Kind.ESTIMATE, STREAMS, since=_EARLY_STOPPING),
    Record("result_query_count", Kind.COUNT, since=_EARLY_STOPPING),
    Record("result_overlatency_query_count", Kind.COUNT, _SERVER, since=_EARLY_STOPPING),
    Record("result_samples_per_second", Kind.RATE, _OFFLINE),
    Record("result_scheduled_samples_per_sec", Kind.RATE, _SERVER),
    Record("result_completed_samples_per_sec", Kind.RATE, _SERVER),
    Record("result_qps_with_loadgen_overhead", Kind.RATE, _SINGLE),
    Record("result_qps_without_loadgen_overhead", Kind.RATE, _SINGLE),
    Record("result_99.00_percentile_per_query_latency_ns", Kind.LATENCY, _MULTI),
    Record("result_90.00_percentile_latency_ns", Kind.LATENCY),
    Record("result_99.00_percentile_latency_ns", Kind.LATENCY),
    Record("result_99.90_percentile_latency_ns", Kind.LATENCY),
    Record("result_first_token_99.00_percentile_latency_ns", Kind.LATENCY, _NOT_OFFLINE, True, _TOKENS),
    Record("result_time_per_output_token_99.00_percentile_ns", Kind.LATENCY, _NOT_OFFLINE, True, _TOKENS),
    Record("result_time_to_output_token_mean", Kind.LATENCY, _NOT_OFFLINE, True, _TOKENS),
    Record("result_completed_tokens_per_second", Kind.RATE, _NOT_OFFLINE, True, _COMPLETED_TOKENS),
    Record("result_tokens_per_second", Kind.RATE, _OFFLINE, True, _TOKENS),
    Record("result_inferred_tokens_per_second", Kind.RATE, _OFFLINE, since=_INFERRED_TOKENS),
    Record("result_inferred_completed_tokens_per_second", Kind.RATE, _SERVER, since=_INFERRED_TOKENS),
    Record("num_errors", Kind.COUNT, since=_NUM_ERRORS),
)  # fmt: skip


def _latency_lines() -> Iterator[Line]:
    for name in ("min", "max", "mean"):
        yield Line(f"{name} latency (ns)", Kind.LATENCY, key=f"result_{name}_latency_ns")
    for percentile in _PERCENTILES:
        key = f"result_{percentile}_percentile_latency_ns"
        yield Line(f"{percentile} percentile latency (ns)", Kind.LATENCY, key=key)


def _token_lines() -> Iterator[Line]:
    for name in ("min", "max", "mean"):
        first = f"result_first_token_{name}_latency_ns"
        yield Line(f"{name} first token latency (ns)", Kind.LATENCY, _NOT_OFFLINE, True, _TOKENS, key=first)
        each = f"result_time_to_output_token_{name}"
        for word, since, until in (("to", _TOKENS, _PER_OUTPUT_TOKEN), ("per", _PER_OUTPUT_TOKEN, _NEVER)):
            line = f"{name} time {word} output token (ns)"
            yield Line(line, Kind.LATENCY, _NOT_OFFLINE, True, since, until, key=each)
    for percentile in _PERCENTILES:
        first = f"result_first_token_{percentile}_percentile_latency_ns"
        line = f"{percentile} percentile first token latency (ns)"
        yield Line(line, Kind.LATENCY, _NOT_OFFLINE, True, _TOKENS, key=first)
        each = f"result_time_per_output_token_{percentile}_percentile_ns"
        line = f"{percentile} percentile time to output token (ns)"
        yield Line(line, Kind.LATENCY, _NOT_OFFLINE, True, _TOKENS, key=each)


def _settings_lines() -> Iterator[Line]:
    for name in (
        "samples_per_query", "target_qps", "max_async_queries", "min_query_count", "max_query_count",
        "qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed", "accuracy_log_rng_seed",
        "accuracy_log_probability", "accuracy_log_sampling_target", "print_timestamps",
        "performance_issue_unique", "performance_issue_same", "performance_issue_same_index",
        "performance_sample_count",
    ):  # fmt: skip
        yield Line(name, Kind.TEXT, key=f"effective_{name}")
    for name in ("min_duration", "max_duration"):
        yield Line(f"{name} (ms)", Kind.TEXT, key=f"effective_{name}_ms")
    yield Line("target_latency (ns)", Kind.TEXT, tokens=False, key="effective_target_latency_ns")
    for name in ("ttft", "tpot"):
        key = f"requested_server_{name}_latency"
        yield Line(f"{name}_latency (ns)", Kind.TEXT, tokens=True, since=_TOKENS, key=key)
    key = "effective_accuracy_sample_count"
    before = "performance_sample_count"
    yield Line(
        "accuracy_sample_count", Kind.TEXT, since=_ACCURACY_SAMPLES, key=key, is_needed=True, follows=before
    )


LINES: tuple[Line, ...] = (
    Line("scenario", Kind.TEXT, key="effective_scenario", is_needed=True),
    Line("mode", Kind.TEXT, key="effective_test_mode", is_needed=True),
    # "#" in a line's name stands for the target percentile, with no or one decimal: 90th, 99.0th, 99.9th
    Line("#th percentile latency (ns)", Kind.LATENCY, _SINGLE, until=_ONE_DECIMAL, is_needed=True),
    Line("#th percentile latency (ns)", Kind.LATENCY, _MULTI, None, _STREAM_LATENCY, _ONE_DECIMAL,
         is_needed=True),
    Line("#.#th percentile latency (ns)", Kind.LATENCY, STREAMS, since=_ONE_DECIMAL, is_needed=True),
    Line("samples per query", Kind.COUNT, _MULTI, until=_STREAM_LATENCY, key="effective_samples_per_query",
         is_needed=True),
    Line("#th first token percentile latency (ns)", Kind.LATENCY, STREAMS, True, _TOKENS, _ONE_DECIMAL),
    Line("#.#th first token percentile latency (ns)", Kind.LATENCY, STREAMS, True, _ONE_DECIMAL),
    Line("samples per second", Kind.RATE, _OFFLINE, key="result_samples_per_second", is_needed=True),
    Line("scheduled samples per second", Kind.RATE, _SERVER, key="result_scheduled_samples_per_sec",
         is_needed=True),
    Line("completed samples per second", Kind.RATE, _SERVER, key="result_completed_samples_per_sec",
         is_needed=True),
    Line("tokens per second", Kind.RATE, _OFFLINE, True, _TOKENS, key="result_tokens_per_second",
         is_needed=True),
    Line("completed tokens per second", Kind.RATE, _SERVER, True, _TOKENS,
         key="result_completed_tokens_per_second", is_needed=True, times=2),
    Line("tokens per second (inferred)", Kind.RATE, _OFFLINE, None, _INFERRED_TOKENS,
         key="result_inferred_tokens_per_second"),
    Line("completed tokens per second (inferred)", Kind.RATE, _SERVER, None, _INFERRED_TOKENS,
         key="result_inferred_completed_tokens_per_second"),
    Line("result is", Kind.VERDICT, key="result_validity", is_needed=True),
    Line("performance constraints satisfied", Kind.FLAG, _SERVER, key="result_perf_constraints_met",
         is_needed=True),
    Line("performance constraints satisfied", Kind.FLAG, _MULTI, until=_STREAM_LATENCY,
         key="result_perf_constraints_met", is_needed=True),
    Line("min duration satisfied", Kind.FLAG, key="result_min_duration_met", is_needed=True),
    Line("min queries satisfied", Kind.FLAG, key="result_min_queries_met", is_needed=True),
    Line("early stopping satisfied", Kind.FLAG, since=_EARLY_STOPPING, key="early_stopping_met",
         is_needed=True),
    Line("early stopping result", Kind.TEXT, _NOT_OFFLINE, False, _EARLY_STOPPING,
         key="early_stopping_result", is_needed=True),
    Line("ttft early stopping result", Kind.TEXT, _NOT_OFFLINE, True, _TOKENS,
         key="early_stopping_ttft_result", is_needed=True),
    Line("tpot early stopping result", Kind.TEXT, _NOT_OFFLINE, True, _TOKENS,
         key="early_stopping_tpot_result", is_needed=True),
    Line("qps w/ loadgen overhead", Kind.RATE, _SINGLE, key="result_qps_with_loadgen_overhead"),
    Line("qps w/o loadgen overhead", Kind.RATE, _SINGLE, key="result_qps_without_loadgen_overhead"),
    Line("tps w/ loadgen overhead", Kind.RATE, _SINGLE, True, _TOKENS,
         key="result_token_throughput_with_loadgen_overhead"),
    # per second, although the record is per nanosecond
    Line("tps w/o loadgen overhead", Kind.RATE, _SINGLE, True, _TOKENS),
    Line("intervals between each issuequery", Kind.TEXT, _MULTI, until=_STREAM_LATENCY),
    Line("per-query latency", Kind.TEXT, _MULTI),
    Line("per-sample latency", Kind.TEXT, _MULTI, until=_STREAM_LATENCY),
    *_latency_lines(),
    *_token_lines(),
    *_settings_lines(),
)  # fmt: skip


@cache
def records_of(version: Version, scenario: str, *, tokens: bool) -> Mapping[str, tuple[Kind, bool]]:
    """Return the possible records of a performance run: by key its kind, and True if every run writes it."""
    return {
        row.name: (row.kind, row.must(version, scenario, tokens=tokens))
        for row in RECORDS
        if row.may(version, scenario, tokens=tokens)
    }


@cache
def lines_of(version: Version, scenario: str, *, tokens: bool) -> Mapping[str, tuple[Line, bool]]:
    """Return the possible lines of such a run's summary: by name, and True if a complete summary needs it."""
    return {
        row.name: (row, row.is_needed and row.must(version, scenario, tokens=tokens))
        for row in LINES
        if row.may(version, scenario, tokens=tokens)
    }


@cache
def epochs() -> tuple[Version, ...]:
    """Return the versions that changed something, newest first: each represents all up to the next."""
    rows: tuple[_Row, ...] = (*RECORDS, *LINES)
    changes = {version for row in rows for span in (row.since, row.until) for version in span}
    return tuple(sorted((version for version in changes if version <= NEWEST), reverse=True))


def read_version(text: str) -> Version | None:
    """Return the version of ``loadgen_version`` without its commit, or None if it is not a version.

    Args:
        text: such as ``6.0.10 @ NA``, or ``.5a1 @ 6958607d52``, which is 1.0.
    """
    name = text.partition("@")[0].strip()
    if name == _OLD_NAME:
        return (1, 0)
    return (
        tuple(int(part) for part in name.split("."))
        if re.fullmatch(r"\d{1,3}(\.\d{1,4}){1,2}", name)
        else None
    )


def is_well_formed(kind: Kind, value: object) -> bool:
    """Return True if LoadGen can have written such a value."""
    if kind is Kind.FLAG:
        return isinstance(value, bool)
    if kind is Kind.TEXT:
        return isinstance(value, str)
    if kind is Kind.VERDICT:
        return value in {"VALID", "INVALID"}
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST_INTEGER:
        return False
    if kind is Kind.LATENCY:
        return value > 0
    return value >= 0 and (kind is Kind.RATE or float(value).is_integer())
