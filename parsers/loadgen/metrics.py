"""Turns LoadGen's numbers into metrics: one table from its keys to names, base units and directions.

The keys are those of mlcommons/inference, loadgen/results.cc, v1.0 to v6.0.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.core.records import Metric, Relativity
from parsers.loadgen.arithmetic import overflowed
from parsers.loadgen.score import scheduled_is_score, score_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.loadgen.detail import DetailLog

NANOSECONDS = 1e9  # in a second
_SCORED_ESTIMATES = {
    "SingleStream": ("early_stopping_latency_ss",),
    "MultiStream": ("early_stopping_latency_ms",),
}


@dataclass(frozen=True, slots=True)
class _Rule:
    """Rule that turns a key into a metric.

    Args:
        key: a pattern for the whole key; its group is the percentile or the statistic.
        name: the metric's name, with ``{}`` for the group.
        unit: the metric's unit.
        relativity: which direction is better.
        description: what the metric means.
        factor: multiply the tool's number by this.
        divisor: divide the tool's number by this.
        tool_unit: the tool's own unit, if it differs from the metric's.
    """

    key: re.Pattern[str]
    name: str
    unit: str
    relativity: Relativity
    description: str
    factor: float = 1.0
    divisor: float = 1.0
    tool_unit: str = ""


def _rate(key: str, name: str, unit: str, description: str) -> _Rule:
    return _Rule(re.compile(key), name, unit, Relativity.HIGHER, description)


def _latency(key: str, name: str, description: str) -> _Rule:
    return _Rule(
        re.compile(key), name, "seconds", Relativity.LOWER, description, divisor=NANOSECONDS, tool_unit="ns"
    )


def _count(key: str, name: str, description: str, relativity: Relativity = Relativity.UNDEFINED) -> _Rule:
    return _Rule(re.compile(key), name, "count", relativity, description)


_PERCENTILE = r"(\d+\.\d+)_percentile"
_STATISTIC = r"(min|max|mean)"
_RULES = (
    _rate("result_samples_per_second", "samples_per_second", "samples/s", "samples completed per second"),
    _rate("result_completed_samples_per_sec", "samples_per_second", "samples/s",
          "samples completed per second"),
    _rate("result_scheduled_samples_per_sec", "scheduled_samples_per_second", "samples/s",
          "samples per second as scheduled"),
    _rate("result_tokens_per_second", "tokens_per_second", "tokens/s", "output tokens per second"),
    _rate("result_completed_tokens_per_second", "tokens_per_second", "tokens/s", "output tokens per second"),
    _rate("result_inferred(?:_completed)?_tokens_per_second", "inferred_tokens_per_second", "tokens/s",
          "samples per second times the data set's mean tokens per sample; not counted"),
    _rate("result_qps_with_loadgen_overhead", "queries_per_second_with_loadgen_overhead", "queries/s",
          "queries per second, LoadGen's own time included"),
    _rate("result_qps_without_loadgen_overhead", "queries_per_second_without_loadgen_overhead", "queries/s",
          "queries per second by the mean latency"),
    _rate("result_token_throughput_with_loadgen_overhead", "tokens_per_second_with_loadgen_overhead",
          "tokens/s", "output tokens per second of issuing"),
    # results.cc divides by a latency in nanoseconds without a conversion
    _Rule(re.compile("result_token_throughput"), "tokens_per_second_without_loadgen_overhead",
          "tokens/s", Relativity.HIGHER, "output tokens of a query per second of its latency",
          factor=1e9, tool_unit="tokens/ns"),
    _latency(f"result_{_STATISTIC}_latency_ns", "latency_{}", "latency of a sample"),
    _latency(f"result_{_PERCENTILE}_latency_ns", "latency_{}", "latency of a sample"),
    _latency(f"result_{_STATISTIC}_query_latency_ns", "query_latency_{}", "latency of a query"),
    _latency(f"result_{_PERCENTILE}_per_query_latency_ns", "query_latency_{}", "latency of a query"),
    _latency(f"result_first_token_{_STATISTIC}_latency_ns", "ttft_{}", "time to first token"),
    _latency(f"result_first_token_{_PERCENTILE}_latency_ns", "ttft_{}", "time to first token"),
    _latency(f"result_time_to_output_token_{_STATISTIC}", "tpot_{}", "time per output token"),
    _latency(f"result_time_(?:per|to)_output_token_{_PERCENTILE}_ns", "tpot_{}", "time per output token"),
    _count("result_query_count", "query_count", "queries issued"),
    _count("result_overlatency_query_count", "overlatency_query_count", "queries over the latency limit",
           Relativity.LOWER),
    _count("num_errors", "loadgen_error_count", "errors that LoadGen itself counted", Relativity.LOWER),
    _count("generated_query_count", "generated_query_count", "queries that LoadGen prepared"),
    _count("generated_samples_per_query", "samples_per_query", "samples in one query, as issued"),
    _Rule(re.compile("generated_query_duration"), "generated_query_duration", "seconds", Relativity.UNDEFINED,
          "time over which the prepared queries were scheduled", divisor=NANOSECONDS, tool_unit="ns"),
    _Rule(re.compile("get_sut_name_duration_ns"), "get_sut_name_duration", "seconds", Relativity.LOWER,
          "time of one call into the system under test", divisor=NANOSECONDS, tool_unit="ns"),
    _count(r"(logger_\w+)", "{}", "contention in LoadGen's logger", Relativity.LOWER),
)  # fmt: skip
_UNKNOWN_UNITS = (
    ("_ns", "seconds", NANOSECONDS, Relativity.LOWER),
    ("tokens_per_second", "tokens/s", 1.0, Relativity.HIGHER),
    ("_per_sec", "1/s", 1.0, Relativity.HIGHER),
    ("_per_second", "1/s", 1.0, Relativity.HIGHER),
    ("", "count", 1.0, Relativity.UNDEFINED),
)
_EXPLAINING = {
    "latency_mean", "latency_p50", "latency_p90", "latency_p99", "query_latency_mean", "query_latency_p99",
    "ttft_mean", "ttft_p99", "tpot_mean", "tpot_p99", "scheduled_samples_per_second", "samples_per_second",
    "queries_per_second_with_loadgen_overhead", "queries_per_second_without_loadgen_overhead",
    "tokens_per_second_with_loadgen_overhead", "tokens_per_second_without_loadgen_overhead", "query_count",
    "samples_per_query", "overlatency_query_count", "error_count", "warning_count", "test_duration",
}  # fmt: skip


def run_metrics(log: DetailLog, duration_s: float | None) -> tuple[Metric, ...]:
    """Return every number of a run, each under one name, beginning with the submission checker's score.

    Args:
        log: the detail log.
        duration_s: duration of the test in seconds; None if the log does not give it.
    """
    metrics: dict[str, Metric] = {}
    for metric in (*_derived(log, duration_s), *_logged(log)):
        metrics.setdefault(metric.name, metric)
    score = score_key(log)
    score = {"effective_samples_per_query": "generated_samples_per_query"}.get(score, score)
    return tuple(
        sorted(
            metrics.values(),
            key=lambda metric: (metric.metadata.get("loadgen_key") != score, metric.verbosity),
        )
    )


def _logged(log: DetailLog) -> Iterator[Metric]:
    headlines = _headlines(log)
    for key in log.values:
        value = log.number(key)
        if value is None or overflowed(log, key):
            continue
        if key.startswith("early_stopping_latency_"):
            yield from _early_stopping(log, key, value)
            continue
        if key == "result_overlatency_query_count" and log.token_latencies:
            continue  # counts against a limit of 0, so it always equals the number of queries
        if found := metric_of(key, value):
            level = 1 if found.name in headlines else 2 if found.name in _EXPLAINING else 3
            yield replace(found, verbosity=level)


def metric_of(key: str, value: float) -> Metric | None:
    """Return one number of LoadGen's under its own key, or None if it is not a measurement.

    Args:
        key: LoadGen's key, such as ``result_90.00_percentile_latency_ns``.
        value: its number, in LoadGen's unit.
    """
    rule, group = _rule(key)
    if rule is None or (rule.unit == "seconds" and value <= 0):
        return None  # LoadGen writes a duration of 0 if it measured nothing
    converted = value * rule.factor / rule.divisor
    if not math.isfinite(converted):
        return None
    return Metric(
        name=rule.name.replace("{}", group),
        value=converted,
        unit=rule.unit,
        relativity=rule.relativity,
        description=_describe(rule.description, group),
        metadata=_origin(key, value, rule.tool_unit),
    )


def _derived(log: DetailLog, duration_s: float | None) -> Iterator[Metric]:
    lower = Relativity.LOWER
    yield Metric("error_count", log.errors.count, "count", lower, "errors in the detail log", 2)
    yield Metric("warning_count", log.warnings.count, "count", lower, "warnings in the detail log", 2)
    if log.mode == "AccuracyOnly" and log.samples_generated:
        text = "samples issued over all rounds"
        yield Metric("sample_count", log.samples_generated, "count", Relativity.UNDEFINED, text, 1)
    if duration_s is not None:
        text = "from the first query to the last completion"
        yield Metric("test_duration", duration_s, "seconds", Relativity.UNDEFINED, text, 2)


def _early_stopping(log: DetailLog, key: str, value: float) -> Iterator[Metric]:
    """Yield LoadGen's conservative percentile estimates; 0 means too few queries.

    With token latencies, SingleStream's estimate is that of the time to first token, because results.cc
    computes it last. ``ms`` is MultiStream: in a SingleStream run it is the estimate for an inferred
    MultiStream.
    """
    if value <= 0:
        return
    percentile = log.number("effective_target_latency_percentile")
    if key.endswith("_ms") and log.scenario == "SingleStream":
        percentile = 0.99  # hard-coded in results.cc
    what = "query_latency" if log.scenario == "MultiStream" else "ttft" if log.token_latencies else "latency"
    suffix = f"_{_percentile_name(percentile * 100)}" if percentile else ""
    yield Metric(
        name=f"early_stopping_{what}{suffix}",
        value=value / NANOSECONDS,
        unit="seconds",
        relativity=Relativity.LOWER,
        description="estimate that holds with 99 % confidence",
        verbosity=1 if key in _SCORED_ESTIMATES.get(log.scenario, ()) else 2,
        metadata=_origin(key, value, "ns"),
    )


def _headlines(log: DetailLog) -> set[str]:
    """Return the names of the metrics that score this run or that its limits apply to."""
    percentile = log.number("effective_target_latency_percentile") or (
        0.9 if log.scenario == "SingleStream" else 0.99
    )
    target = _percentile_name(percentile * 100)
    names = {"tokens_per_second", "inferred_tokens_per_second"}
    if log.scenario == "SingleStream":
        return names | {f"latency_{target}"} | ({f"ttft_{target}"} if log.token_latencies else set())
    if log.scenario == "MultiStream":
        by_samples = score_key(log) == "effective_samples_per_query"
        return names | ({"samples_per_query"} if by_samples else {f"query_latency_{target}"})
    if log.scenario != "Server":
        return names | {"samples_per_second"}
    names.add(
        "scheduled_samples_per_second" if scheduled_is_score(log.version_parts) else "samples_per_second"
    )
    return names | ({f"ttft_{target}", f"tpot_{target}"} if log.token_latencies else {f"latency_{target}"})


def _rule(key: str) -> tuple[_Rule | None, str]:
    for rule in _RULES:
        if found := rule.key.fullmatch(key):
            group = found[1] if rule.key.groups else ""
            return rule, _percentile_name(float(group)) if group[:1].isdigit() else group
    if not key.startswith(("result_", "early_stopping_")):
        return None, ""
    for ending, unit, divisor, relativity in _UNKNOWN_UNITS:
        if key.endswith(ending):
            name = re.sub(r"\W+", "_", key.removeprefix("result_").removesuffix("_ns"), flags=re.ASCII)
            if not name.strip("_"):
                break
            tool_unit = "ns" if divisor != 1 else ""
            return _Rule(re.compile(re.escape(key)), name, unit, relativity, key, 1.0, divisor, tool_unit), ""
    return None, ""


def _percentile_name(percent: float) -> str:
    """Return ``p99`` for 99.00, ``p99_9`` for 99.90."""
    return "p" + f"{percent:.4f}".rstrip("0").rstrip(".").replace(".", "_")


def _describe(what: str, group: str) -> str:
    if group.startswith("p") and group[1:2].isdigit():
        return f"{what}, {group[1:].replace('_', '.')}th percentile"
    return f"{what}, {group}" if group in {"min", "max", "mean"} else what


def _origin(key: str, value: float, tool_unit: str) -> dict[str, str | int | float | bool]:
    origin: dict[str, str | int | float | bool] = {"loadgen_key": key}
    if tool_unit:
        origin |= {"tool_value": value, "tool_unit": tool_unit}
    return origin


def seconds_between(log: DetailLog) -> float | None:
    """Return how long the system was busy in seconds, from power_begin and power_end (same clock, ms)."""
    from datetime import datetime

    try:
        begin, end = (
            datetime.strptime(log.text(key), "%m-%d-%Y %H:%M:%S.%f")  # noqa: DTZ007 (a difference)
            for key in ("power_begin", "power_end")
        )
    except ValueError:
        return None
    seconds = (end - begin).total_seconds()
    return seconds if seconds > 0 else None
