"""Reads ``metadata.json`` of NVIDIA's MLPerf harness (inference_results_v4.1, closed/NVIDIA): one per run.

Each file states its mode (performance or accuracy), benchmark and scenario, so a stale file cannot be
mistaken for something else. VirtualClient's names (its MLPerfMetricsParser.cs) are kept beside our own, with
the tag ``virtualclient``; under these names Offline and Server share one name.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Parser, Reason, Relativity, Validity, Verdict
from parsers.json_text import read_json
from parsers.loadgen.metrics import metric_of
from parsers.numbers import finite
from parsers.trees import beginning, files_in, json_of, parse_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FORMAT = "mlperf_metadata"
TOOL = "NVIDIA MLPerf harness"
ALIAS = ("virtualclient",)
OFFICIAL_DURATION_MS = 600_000
_KEYS = ("test_mode", "scenario_key", "benchmark_full")
_SIZE_LIMIT = 4 << 20
# Accuracy metrics that the harness reports in percent; DICE is a ratio, lengths are counts.
_PERCENT = ("f1", "rouge", "map", "acc", "clip", "auc", "exact_match")
_MORE_IS_BETTER = ("f1", "rouge", "map", "acc", "auc", "exact_match", "dice")
_DETAILS = (
    "benchmark_full", "benchmark_short", "config_name", "system_name", "scenario", "scenario_key",
    "test_mode", "summary_string", "tensorrt_version", "effective_min_duration_ms",
    "effective_min_query_count", "effective_samples_per_query", "early_stopping_met",
    "satisfies_query_constraint", "result_validity",
)  # fmt: skip


def parse_metadata(text: str, source: str = "") -> ParsedOutput:
    """Return the metrics and the verdict of one run.

    Args:
        text: the file's text.
        source: the file that the text comes from, for errors.

    Raises:
        ParseError: if it is incomplete, not from the harness, or lacks the numbers of its mode.
    """
    try:
        data = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"is not JSON or incomplete: {str(error)[:200]}", where=source or None) from error
    return _parse_data(data, source)


def _parse_data(data: object, source: str) -> ParsedOutput:
    if not isinstance(data, dict) or any(not isinstance(data.get(key), str) for key in _KEYS):
        raise ParseError(
            f"is not a metadata.json of the harness: it lacks {', '.join(_KEYS)}", where=source or None
        )
    mode = data["test_mode"]
    if mode == "PerformanceOnly":
        metrics, verdict = judge_performance(data, source)
    elif mode == "AccuracyOnly":
        metrics, verdict = judge_accuracy(data, source)
    else:
        raise ParseError(
            f"test_mode {mode!r} is neither PerformanceOnly nor AccuracyOnly", where=source or None
        )
    what = "performance" if mode == "PerformanceOnly" else "accuracy"
    return ParsedOutput(
        format=FORMAT,
        tool_name=TOOL,
        tool_version=str(data.get("tensorrt_version", "")),
        scenario=f"{data['benchmark_full']}/{data.get('scenario', '')}/{what}",
        metrics=metrics,
        verdict=verdict,
        details={key: data[key] for key in _DETAILS if _is_scalar(data.get(key))},
        sources=(source,) if source else (),
    )


def judge_performance(data: Mapping[str, Any], source: str) -> tuple[tuple[Metric, ...], Verdict]:
    """Return the metrics and the verdict of a performance run.

    Args:
        data: ``scenario_key``, the value under that name, ``result_validity``, and any other known fields.
        source: the file that the data comes from, for errors.

    Raises:
        ParseError: if the value or the validity is missing.
    """
    key, said = data["scenario_key"], data.get("result_validity")
    value = finite(data.get(key))
    if value is None:
        value = _from_summary(str(data.get("summary_string", "")), key)
    metric = metric_of(key, value) if value is not None else None
    if metric is None or value is None or not isinstance(said, str):
        raise ParseError(f"lacks {key} or result_validity, so there is no result", where=source or None)
    if value < 0:
        raise ParseError(f"{key} is {value:g}, which is below 0", where=source or None)
    valid = said == "VALID"
    latency = "latency" in key
    alias = f"{'latency_ns' if latency else 'samples_per_second'}{_suffix(data)}"
    metrics = [
        metric,
        _alias(f"PerformanceMode{_suffix(data)}", float(valid), "VALID/INVALID", Relativity.HIGHER),
        _alias(alias, value, "nanoseconds" if latency else "samples/s", Relativity.UNDEFINED),
    ]
    reasons = [] if valid and data.get("early_stopping_met") is not False else list(_reasons(data, said))
    validity = Validity.INVALID if reasons else Validity.VALID
    return _in_context(data, metrics), Verdict(validity, tuple(reasons), tuple(_duration_warnings(data)))


def _reasons(data: Mapping[str, Any], said: str) -> Iterator[Reason]:
    if data.get("early_stopping_met") is False:
        yield Reason(
            "early stopping missed: too few queries for its percentile",
            "raise min_query_count in the system's configuration",
            "min_query_count",
            code="early_stopping",
        )
    if "runtime requirement met: False" in str(data.get("summary_string", "")):
        least = finite(data.get("effective_min_duration_ms")) or OFFICIAL_DURATION_MS
        yield Reason(
            f"minimum duration of {least / 1000:g} s missed",
            "raise the scenario's expected or target QPS in the system's configuration",
            "offline_expected_qps" if data.get("scenario") == "Offline" else "server_target_qps",
            code="min_duration",
        )
    if said != "VALID":
        yield Reason(
            f"LoadGen judged the result {said}",
            "parse mlperf_log_detail.txt beside it, which shows the missed constraint and by how much",
            code="loadgen_invalid",
        )


def _duration_warnings(data: Mapping[str, Any]) -> Iterator[str]:
    duration_ms = finite(data.get("effective_min_duration_ms"))
    if duration_ms is not None and duration_ms < OFFICIAL_DURATION_MS:
        official_s = OFFICIAL_DURATION_MS / 1000
        yield f"min_duration was {duration_ms / 1000:g} s; official results need {official_s:g} s"


def judge_accuracy(data: Mapping[str, Any], source: str) -> tuple[tuple[Metric, ...], Verdict]:
    """Return the metrics and the verdict of an accuracy run.

    Args:
        data: ``accuracy``, a list of name, value, threshold, pass and, for some, upper_limit; and any other
            known fields. An entry without a value fails, whatever its ``pass`` says.
        source: the file that the data comes from, for errors.

    Raises:
        ParseError: if no value was judged.
    """
    entries = data.get("accuracy")
    entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    if not entries or not isinstance(entries[0].get("pass"), bool):
        raise ParseError("an accuracy run without accuracy[0].pass has no result", where=source or None)
    metrics: list[Metric] = []
    reasons = []
    for entry in entries:
        metrics += _accuracy_metrics(entry)
        if finite(entry.get("value")) is None:
            reasons.append(_without_value(entry))
        elif entry.get("pass") is not True or _contradicts_itself(entry):
            reasons.append(_missed(entry))
    if not metrics:
        raise ParseError("the accuracy run's value is missing or not a number", where=source or None)
    warnings = []
    overall = data.get("accuracy_pass")
    if isinstance(overall, bool) and overall is not all(entry.get("pass") is True for entry in entries):
        warnings.append(f"accuracy_pass says {overall}, accuracy[].pass {not overall}; the latter counts")
    validity = Validity.INVALID if reasons else Validity.VALID
    metrics += _accuracy_aliases(entries[0], _suffix(data))
    return _in_context(data, metrics), Verdict(validity, tuple(reasons), tuple(warnings))


def _accuracy_metrics(entry: Mapping[str, Any]) -> Iterator[Metric]:
    name = _name(entry)
    value, threshold = finite(entry.get("value")), finite(entry.get("threshold"))
    if value is None:
        return
    percent = name.startswith(_PERCENT)
    unit = "ratio" if percent or name == "dice" else "count"
    for suffix, number, verbosity in (("", value, 1), ("_threshold", threshold, 2)):
        if number is not None:
            own: dict[str, str | float] = {"tool_value": number, "tool_unit": "percent"} if percent else {}
            yield Metric(
                name=f"accuracy_{name}{suffix}",
                value=number / 100 if percent else number,
                unit=unit,
                relativity=Relativity.UNDEFINED if suffix or unit == "count" else Relativity.HIGHER,
                description="accuracy" if not suffix else "accuracy that is required",
                verbosity=verbosity,
                metadata=own,
            )
    if threshold:
        text = "accuracy divided by what is required"
        yield Metric(f"accuracy_{name}_margin", value / threshold, "ratio", Relativity.HIGHER, text, 2)


def _contradicts_itself(entry: Mapping[str, Any]) -> bool:
    """Return True if an entry that passed is out of its range, or below its threshold if higher is better."""
    value, threshold, most = (finite(entry.get(key)) for key in ("value", "threshold", "upper_limit"))
    if value is None:
        return False
    if most is not None and value > most and not math.isclose(value, most):
        return True
    if threshold is None or (most is None and not _name(entry).startswith(_MORE_IS_BETTER)):
        return False
    return value < threshold and not math.isclose(value, threshold)


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name", "accuracy")).lower().replace("-", "_").replace(" ", "_")


def _missed(entry: Mapping[str, Any]) -> Reason:
    value, threshold, most = (entry.get(key) for key in ("value", "threshold", "upper_limit"))
    target = f"its target {threshold}" if most is None else f"its range {threshold} to {most}"
    return Reason(
        f"accuracy {entry.get('name', '')} is {value}, which fails {target}",
        "check the engine's precision, and that it was built from the calibrated, unchanged model",
        code="accuracy",
    )


def _without_value(entry: Mapping[str, Any]) -> Reason:
    return Reason(
        f"accuracy {entry.get('name', '')} has no value",
        "see the accuracy script's output in the harness's log: it did not print this metric",
        code="accuracy",
    )


def _accuracy_aliases(entry: Mapping[str, Any], suffix: str) -> Iterator[Metric]:
    value, threshold = finite(entry.get("value")), finite(entry.get("threshold"))
    yield _alias(f"AccuracyMode{suffix}", float(entry["pass"]), "PASS/FAIL", Relativity.HIGHER)
    if threshold is not None:
        yield _alias(f"ThresholdValue{suffix}", threshold, "points", Relativity.UNDEFINED)
    if value is not None:
        yield _alias(f"AccuracyValue{suffix}", value, "points", Relativity.UNDEFINED)
    if value is not None and threshold:
        yield _alias(f"AccuracyThresholdRatio{suffix}", value / threshold, "ratio", Relativity.HIGHER)


def _alias(name: str, value: float, unit: str, relativity: Relativity) -> Metric:
    return Metric(name, value, unit, relativity, "under VirtualClient's name", verbosity=4, tags=ALIAS)


def _suffix(data: Mapping[str, Any]) -> str:
    """Return VirtualClient's suffix, which is always _p99 because it looks for 99_9 in the scenario."""
    return "_p99_9" if "99_9" in str(data.get("scenario", "")) else "_p99"


def _in_context(data: Mapping[str, Any], metrics: list[Metric]) -> tuple[Metric, ...]:
    names = ("benchmark_full", "benchmark_short", "config_name", "scenario")
    context = {name: data[name] for name in names if isinstance(data.get(name), str)}
    return tuple(replace(metric, metadata={**context, **metric.metadata}) for metric in metrics)


def _from_summary(text: str, key: str) -> float | None:
    """Return the number in ``key: number, Result is …``."""
    name, _, rest = text.partition(": ")
    return finite(rest.split(",")[0]) if name == key else None


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bool) or finite(value) is not None


def _is_metadata(path: Path) -> bool:
    return path.suffix == ".json" and all(f'"{key}"' in beginning(path, _SIZE_LIMIT) for key in _KEYS)


def recognise(path: Path) -> bool:
    """Return True if the path is such a file, or a folder that contains one at any depth."""
    return any(map(_is_metadata, files_in(path)))


def parse(path: Path) -> list[ParsedOutput]:
    """Return the run of a file, or the runs of all such files in a tree.

    Raises:
        ParseError: if there is none, or the only one cannot be read.
    """
    return parse_files(
        path, FORMAT, TOOL, _is_metadata, lambda file: [_parse_data(json_of(file), str(file))], always=False
    )


PARSER = Parser(
    name=FORMAT,
    description="metadata.json of NVIDIA's MLPerf harness",
    recognise=recognise,
    parse=parse,
)
