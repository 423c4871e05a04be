"""Finds which of LoadGen's own constraints was missed, by how much, and which setting would meet it.

The rules are those of mlcommons/inference: loadgen/results.cc (MinDurationMet, PerfConstraintsMet,
EarlyStopping) and loadgen/test_settings_internal.cc (the number of samples that a setting makes).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from agent.core.records import Reason
from parsers.loadgen.early_stopping import REASONABLE_GROWTH, late_allowed, queries_at_same_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.loadgen.detail import DetailLog

MINIMUM_QUERIES = {
    "Server": 459,
    "SingleStream": 64,
    "MultiStream": 662,
}  # early stopping, if no query is over the limit
LOAD_STEP = 0.9  # fraction of the load to keep if no better value is known

FAR_BELOW = 0.5  # of the minimum duration: too short to measure the rate

_LARGEST_COUNT = 10**9  # more queries than any run has: a larger number is garbled
_ENDED_EARLY = {
    "Too many outstanding queries": "max_async_queries",
    "Max query count reached": "max_query_count",
    "Max test duration reached": "max_duration",
}  # loadgen/issue_query_controller.cc
_MORE = re.compile(r"Processed (\d+) queries.*?at least (\d+) more queries", re.DOTALL)
_TOTAL = re.compile(r"Only processed (\d+) queries.*?at least (\d+) queries", re.DOTALL)


def missed_constraints(log: DetailLog) -> list[Reason]:
    """Return the constraints that a performance run missed, each with its remedy.

    Args:
        log: the detail log of a run that ended.
    """
    late = list(_latency_limits(log))
    reasons = [*_min_duration(log), *late, *_min_queries(log), *_early_stopping(log, too_slow=bool(late))]
    if not reasons and log.text("result_validity") == "INVALID":
        told = log.text("result_invalid_reason").strip()
        said = f", saying: {told}" if told else " without a reason"
        reasons.append(
            Reason(
                f"LoadGen judged the result INVALID{said}",
                "see the constraints in mlperf_log_summary.txt",
                code="loadgen_invalid",
            )
        )
    return reasons


def _min_duration(log: DetailLog) -> Iterator[Reason]:
    required_ms = log.number("effective_min_duration_ms") or 0.0
    took_s = duration_s(log)
    short = log.scenario == "Offline" and took_s is not None and took_s * 1000 < required_ms
    if log.flag("result_min_duration_met") is not False and not short:
        return
    took = (
        f"took {_seconds(took_s)} of {_seconds(required_ms / 1000)}"
        if took_s is not None and required_ms
        else "ran too short"
    )
    message = f"minimum duration missed: the test {took}"
    if log.scenario == "Offline":
        rate = log.number("result_samples_per_second")
        if rate:
            target = round_up(rate)
            remedy = f"set target_qps to at least {target:.15g}: samples are 1.1 * min_duration * target_qps"
            if took_s is not None and took_s * 1000 < FAR_BELOW * required_ms:
                remedy += (
                    "; a run this short tells the rate only roughly: go on with the rate that the next one "
                    "measures, until one is long enough"
                )
            yield Reason(message, remedy, "target_qps", target, "min_duration")
            return
        yield Reason(message, "raise target_qps", "target_qps", None, "min_duration")
    elif early := _early_end(log):
        yield Reason(message, early[1], early[0], 0, "min_duration")
    elif log.scenario == "Server":
        rate = log.number("result_scheduled_samples_per_sec") or log.number("effective_target_qps") or 0.0
        count = math.ceil(1.1 * rate * required_ms / 1000) or None
        number = f"set min_query_count to {count}, which is" if count else "raise min_query_count to"
        remedy = f"{number} 1.1 * scheduled rate * min_duration"
        yield Reason(message, remedy, "min_query_count", count, "min_duration")
    else:
        mean_ns = log.number("result_mean_query_latency_ns") or log.number("result_mean_latency_ns")
        value = round_down(LOAD_STEP * mean_ns / 1e6) if mean_ns else None
        number = f"{value:g} ms, below the measured mean," if value else "less than the measured latency"
        remedy = f"set target_latency to {number} so that LoadGen prepares enough queries"
        yield Reason(message, remedy, "target_latency", value, "min_duration")


def _early_end(log: DetailLog) -> tuple[str, str] | None:
    """Return the setting that ended the test early, with its remedy; for each setting, 0 means no limit."""
    if log.scenario == "Offline":
        return None  # one query, issued at once
    told = log.errors.distinct
    cause = next(
        (name for text, name in _ENDED_EARLY.items() if any(text in error for error in told)),
        None,
    )
    if cause is None:  # the error may be missing, for example if only a summary exists
        queries, most = log.number("result_query_count"), log.number("effective_max_query_count")
        took_s, longest_ms = duration_s(log), log.number("effective_max_duration_ms")
        if queries and most and queries >= most:
            cause = "max_query_count"
        elif took_s and longest_ms and took_s * 1000 >= LOAD_STEP * longest_ms:
            cause = "max_duration"
    if cause is None:
        return None
    value = log.number(f"effective_{cause}" + ("_ms" if cause == "max_duration" else ""))
    limit = cause if value is None else f"{cause} ({value:.15g})"
    if cause == "max_async_queries":
        return cause, f"remove {limit}, or lower target_qps: more queries waited, which ended the test early"
    return cause, f"remove {limit}: it ends the test early"


def duration_s(log: DetailLog) -> float | None:
    """Return the duration that LoadGen compares with min_duration, in seconds; it differs by scenario."""
    if log.scenario == "Offline":
        longest_ns = log.number("result_max_latency_ns")
        return longest_ns / 1e9 if longest_ns is not None else None
    queries = log.number("result_query_count")
    rate = log.number(
        "result_scheduled_samples_per_sec" if log.scenario == "Server" else "result_qps_with_loadgen_overhead"
    )
    return (queries - 1) / rate if queries and rate else None


def _latency_limits(log: DetailLog) -> Iterator[Reason]:
    if log.scenario != "Server":
        if log.flag("result_perf_constraints_met") is False:  # MultiStream until 1.1
            told = log.text("result_invalid_reason").strip()
            text = f"latency constraint missed: {told}".rstrip(": ")
            yield Reason(text, "lower samples_per_query", "samples_per_query", None, "latency_limit")
        return
    percentile = _target_percentile(log)
    number = f"{percentile * 100:.2f}_percentile"
    limits = [("latency", f"result_{number}_latency_ns", "effective_target_latency_ns")]
    if log.token_latencies:
        limits = [
            ("TTFT", f"result_first_token_{number}_latency_ns", "requested_server_ttft_latency"),
            ("TPOT", f"result_time_per_output_token_{number}_ns", "requested_server_tpot_latency"),
        ]
    found = False
    value = _lower_load(log)
    remedy = f"set target_qps to {value:.15g} or less" if value else "lower target_qps"
    for name, measured_key, limit_key in limits:
        measured, limit = log.number(measured_key), log.number(limit_key)
        if measured is None or limit is None or measured <= limit:
            continue
        found = True
        shown, allowed = _seconds(measured / 1e9), _seconds(limit / 1e9)
        if shown == allowed:
            shown, allowed = f"{measured:.15g} ns", f"{limit:.15g} ns"
        message = f"{name} p{percentile * 100:g} is {shown}, over the limit of {allowed}"
        yield Reason(message, remedy, "target_qps", value, f"{name.lower()}_limit")
    if not found and log.flag("result_perf_constraints_met") is False:
        told = log.text("result_invalid_reason").strip()
        yield Reason(
            f"latency constraint missed: {told}".rstrip(": "), remedy, "target_qps", value, "latency_limit"
        )


def _target_percentile(log: DetailLog) -> float:
    percentile = log.number("effective_target_latency_percentile")
    return percentile if percentile is not None and 0 < percentile < 1 else 0.99


def _lower_load(log: DetailLog) -> float | None:
    """Return a load to try after a missed latency limit: a tenth less, or the completed load if smaller."""
    target = log.number("effective_target_qps")
    completed = log.number("result_completed_samples_per_sec")
    candidates = [LOAD_STEP * target] if target else []
    candidates += [0.95 * completed] if completed else []
    return round_down(min(candidates)) if candidates else None


def _min_queries(log: DetailLog) -> Iterator[Reason]:
    if log.flag("result_min_queries_met") is not False:
        return
    issued, needed = log.number("result_query_count"), log.number("effective_min_query_count")
    by = f": {issued:.15g} of {needed:.15g} queries" if issued is not None and needed is not None else ""
    message = f"minimum query count missed{by}; the test ended early"
    if early := _early_end(log):
        yield Reason(message, early[1], early[0], 0, "min_queries")
        return
    yield Reason(message, "look for the error in the log that ended the test", code="min_queries")


def _early_stopping(log: DetailLog, *, too_slow: bool) -> Iterator[Reason]:
    """Yield early stopping's reason: too few queries for 99 % confidence in the percentile.

    With token latencies LoadGen checks TPOT first, and leaves the text of TTFT empty if that failed.
    """
    if log.flag("early_stopping_met") is not False:
        return
    texts = {
        "TPOT": log.text("early_stopping_tpot_result"),
        "TTFT": log.text("early_stopping_ttft_result"),
        "latency": log.text("early_stopping_result"),
    }
    needs = [(name, found) for name, text in texts.items() if (found := _queries_needed(text))]
    if not needs:
        least = MINIMUM_QUERIES.get(log.scenario)
        known = f": at least {least} are needed" if least else ""
        yield Reason(
            f"early stopping missed{known}; LoadGen gives no number",
            "raise min_query_count",
            "min_query_count",
            least,
            "early_stopping",
        )
    for name, (processed, needed) in needs:
        message = f"early stopping ({name}): {processed} queries are too few, needs {needed - processed} more"
        if name == "TPOT" and not texts["TTFT"].strip() and log.scenario != "Offline":
            message += "; TTFT was not checked, because TPOT failed first"
        if too_slow:
            value = _lower_load(log)
            remedy = f"lower target_qps first: with the latency met, fewer than {needed} queries are enough"
            yield Reason(message, remedy, "target_qps", value, "early_stopping")
        elif early := _early_end(log):
            yield Reason(message, early[1], early[0], 0, "early_stopping")
        elif log.scenario == "Server":
            yield _server_early_stopping(log, message, processed, needed)
        else:
            remedy = f"set min_query_count to {needed}"
            yield Reason(message, remedy, "min_query_count", needed, "early_stopping")


def _server_early_stopping(log: DetailLog, message: str, processed: int, needed: int) -> Reason:
    """Return the reason and its remedy, assuming that the share of queries over the limit stays the same."""
    percentile = _target_percentile(log)
    late, count = None, None
    if needed < _LARGEST_COUNT:
        late = max(0, late_allowed(needed, percentile))
        count = queries_at_same_share(processed, late, percentile)
    if count is not None:
        remedy = f"set min_query_count to {count}"
        if late:
            message += f"; that is if none of them is over the limit, as {late} were"
            remedy += ", which is enough if as large a share is over the limit again; or lower target_qps"
        return Reason(message, remedy, "min_query_count", count, "early_stopping")
    value = _lower_load(log)
    share = f"{late} of {processed} queries" if late else "that many queries"
    lower = f"set target_qps to {value:.15g} or less" if value else "lower target_qps"
    remedy = f"{lower}: with {share} over the limit, not even {REASONABLE_GROWTH} times as many are enough"
    return Reason(message, remedy, "target_qps", value, "early_stopping")


def _queries_needed(text: str) -> tuple[int, int] | None:
    """Return the processed queries and the needed queries from LoadGen's advice."""
    if found := _MORE.search(text):
        return int(found[1]), int(found[1]) + int(found[2])
    if found := _TOTAL.search(text):
        return int(found[1]), int(found[2])
    return None


def round_up(value: float, digits: int = 3) -> float:
    """Return the next larger number with that many significant digits; 0 if the value is not positive."""
    return -_floor(-value, digits) if value > 0 else 0.0


def round_down(value: float, digits: int = 3) -> float:
    """Return the next smaller number with that many significant digits; 0 if the value is not positive."""
    return _floor(value, digits) if value > 0 else 0.0


def _floor(value: float, digits: int) -> float:
    exponent = math.floor(math.log10(abs(value))) - digits + 1
    return round(math.floor(value / 10.0**exponent + 1e-9) * 10.0**exponent, -exponent)


def _seconds(value: float) -> str:
    """Return a readable duration, such as 5.002 s or 12.3 ms."""
    return f"{value:.4g} s" if value >= 1 else f"{value * 1000:.4g} ms"
