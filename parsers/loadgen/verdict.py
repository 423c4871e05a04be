"""Whether a LoadGen run counts. Stricter than LoadGen, which says VALID with 400 errors and no token.

VALID needs all of: LoadGen's VALID, no error in the log, tokens where token latencies are in use, latency
limits that are not LoadGen's fallbacks, the settings that were asked for, a summary of the same run. The logs
of an accuracy run do not hold its accuracy: at best it is NOT_APPLICABLE.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agent.core.records import Reason, Validity, Verdict
from parsers.loadgen.constraints import missed_constraints
from parsers.loadgen.settings import compare_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parsers.loadgen.detail import DetailLog, Value
    from parsers.loadgen.summary import SummaryLog

__all__ = ["ACCURACY_NOT_JUDGED", "gaps", "judge"]

ACCURACY_NOT_JUDGED = (
    "the accuracy is not judged by these logs: they say only that every sample was answered, not how well"
)
"""The warning on a whole accuracy run; who knows the right answers puts a verdict of its own in its place."""

# What LoadGen applies where its configuration does not know the model (mlperf.conf, *.Server.target_latency)
# and where no configuration was read (loadgen/test_settings.h), in ns.
FALLBACK_LATENCIES_NS = {10_000_000: "its fallback for a model it does not know", 100_000_000: "its default"}
FALLBACK_TOKEN_LATENCY_NS = 100_000_000
LONGEST_LIMIT_NS = 600e9  # the longest of any model is 20 s
NUM_ERRORS_SINCE = (5, 0, 16)
COMPLETED_TOKENS_SINCE = (4, 1)
# Detail has six significant digits, summary two decimals.
_SAME_RELATIVE, _SAME_ABSOLUTE = 1e-4, 0.0051

_SCORES = {
    "Server": "result_completed_samples_per_sec",
    "Offline": "result_samples_per_second",
    "SingleStream": "result_90.00_percentile_latency_ns",
    "MultiStream": "result_99.00_percentile_per_query_latency_ns",
}
_ERROR_REMEDIES = (
    ("Number of tokens need to be greater than 1",
     "give QuerySampleResponse the number of output tokens, which is at least 2: TPOT needs a second token"),
    ("n_tokens argument missing", "give QuerySampleResponse the number of output tokens"),
    ("before it's first token latency", "call FirstTokenComplete before QuerySamplesComplete"),
    ("Ran out of generated queries",
     "set target_latency (target_qps in Server) to what was measured, so that enough queries are prepared"),
    ("Too many outstanding queries",
     "lower target_qps: the system falls behind; or remove max_async_queries, which ends the test then"),
    ("Max query count reached", "remove max_query_count: it ends the test early"),
    ("Max test duration reached", "remove max_duration: it ends the test early"),
    ("Multiple conf files", "load user.conf alone: since 5.0 LoadGen has mlperf.conf built in"),
    ("can't open file", "correct the path of the configuration"),
    ("value needs to be integer or double", "correct that line of user.conf: model.Scenario.name = number"),
    ("expected 'key=value'", "correct that line of user.conf: blanks around the equals sign are needed"),
    ("uncommitted changes", "use a released LoadGen, or build it from a clean checkout"),
    ("incomplete samples", "the harness did not answer every query: see its own log"),
    ("complete a sample twice", "the harness answers a query twice: see its own log"),
    ("differ by more than 1%", "the host's clocks disagree: fix time synchronisation"),
)  # fmt: skip


def gaps(log: DetailLog, summary: SummaryLog | None) -> list[str]:
    """What a whole log would have and this one has not; empty where it is whole."""
    missing = ["the end of its last line"] if log.cut else []
    if not log.scenario or not log.mode:
        return [*missing, "the scenario and mode"]
    if log.mode == "AccuracyOnly":
        return missing + _accuracy_gaps(log)
    needed = ["result_validity", "result_min_duration_met", "result_min_queries_met", "early_stopping_met"]
    needed += ["result_perf_constraints_met"] if log.scenario == "Server" else []
    needed += [_SCORES.get(log.scenario, "result_query_count"), *_last_keys(log, summary)]
    return missing + [
        key for key in dict.fromkeys(needed) if key not in log.values and key not in log.not_finite
    ]


def _accuracy_gaps(log: DetailLog) -> list[str]:
    missing = []
    if log.rounds_ended < max(log.sample_sets, 1):
        missing.append("power_end, the end of the last round")
    expected = log.number("effective_accuracy_sample_count") or log.number("qsl_reported_total_count")
    if expected and log.samples_generated < expected:
        missing.append(f"{expected - log.samples_generated:g} of {expected:g} samples")
    return missing


def _last_keys(log: DetailLog, summary: SummaryLog | None) -> list[str]:
    """The keys that LoadGen of this version writes last."""
    if log.version_parts >= NUM_ERRORS_SINCE:
        return ["num_errors"]
    last = ["result_99.90_percentile_latency_ns"]
    if log.token_latencies and log.scenario == "Offline":
        last.append("result_tokens_per_second")
    elif log.token_latencies:
        old = log.version_parts < COMPLETED_TOKENS_SINCE
        last.append("result_time_to_output_token_mean" if old else "result_completed_tokens_per_second")
    if summary is not None:
        last += [key for key in summary.results() if key.startswith("result_inferred")]
    return last


def judge(
    log: DetailLog, summary: SummaryLog | None, missing: list[str], asked: Mapping[str, Value] | None = None
) -> Verdict:
    """The verdict on a run.

    Args:
        log: its detail log.
        summary: its summary, where there is one.
        missing: what the detail log lacks, from `gaps`.
        asked: the settings that were asked for, under the names and in the units of user.conf.
    """
    performance = log.mode != "AccuracyOnly"
    reasons = [_cut(log, missing)] if missing else []
    reasons += [_several(log)] if log.runs > 1 else []
    constraints = missed_constraints(log) if performance and "result_validity" in log.values else []
    reasons += _errors(log, summary, [reason.code for reason in constraints])
    reasons += constraints
    if performance:
        reasons += [*_tokens(log), *_limits(log, asked or {}), *_contradictions(log, summary)]
    reasons += compare_settings(log, asked) if asked else []
    no_result = bool(missing) or log.runs > 1
    validity = _validity(log, reasons, no_result=no_result)
    warnings = [ACCURACY_NOT_JUDGED] if not performance and validity is Validity.NOT_APPLICABLE else []
    return Verdict(validity, tuple(reasons), (*warnings, *_warnings(log, summary)))


def _validity(log: DetailLog, reasons: list[Reason], *, no_result: bool) -> Validity:
    if no_result:
        return Validity.FAILED
    audit = _is_audit(log) and {reason.code for reason in reasons} <= {
        "min_duration",
        "min_queries",
        "early_stopping",
    }
    if audit:
        return Validity.NOT_APPLICABLE
    if reasons:
        return Validity.INVALID
    return Validity.NOT_APPLICABLE if log.mode == "AccuracyOnly" else Validity.VALID


def _is_audit(log: DetailLog) -> bool:
    """Whether this is TEST04's run, whose INVALID is expected: it repeats one sample or each but once."""
    return any(log.flag(f"effective_performance_issue_{how}") for how in ("same", "unique"))


def _cut(log: DetailLog, missing: list[str]) -> Reason:
    return Reason(
        f"the detail log is incomplete after {log.records} records: it lacks {', '.join(missing)}",
        "the test was killed, still runs, or the disk is full: see the harness's own log, then run it again",
        code="incomplete_log",
    )


def _several(log: DetailLog) -> Reason:
    return Reason(
        f"several runs in this log ({log.runs}): results and settings may be of different ones",
        "give each run a folder of its own, and let no tool append logs to each other",
        code="several_runs",
    )


def _errors(log: DetailLog, summary: SummaryLog | None, other_codes: list[str]) -> Iterator[Reason]:
    said = log.text("result_validity")
    verdict = f"LoadGen says {said}, but the log" if said == "VALID" else "the log"
    for text, count in log.errors.distinct.items():
        times = f"{count} times" if count > 1 else "once"
        remedy = next((advice for part, advice in _ERROR_REMEDIES if part in text), "see the detail log")
        if "Ran out of generated queries" in text and "min_duration" in other_codes:
            remedy = "as for the minimum duration"
        yield Reason(f"{verdict} holds the error {text!r} ({times})", remedy, code="errors")
    told = max(log.number("num_errors") or 0, (summary.errors or 0) if summary is not None else 0)
    if told > log.errors.count:
        more = f", but {log.errors.count} of them are in the detail log" if log.errors.count else ""
        yield Reason(f"LoadGen counted {told:g} errors{more}", "see the detail log", code="errors")


def _tokens(log: DetailLog) -> Iterator[Reason]:
    if not log.token_latencies:
        return
    key = "result_tokens_per_second" if log.scenario == "Offline" else "result_completed_tokens_per_second"
    if log.values and key not in log.values and log.version_parts < COMPLETED_TOKENS_SINCE:
        key = "result_token_throughput_with_loadgen_overhead"
    if "result_validity" in log.values and not log.number(key):
        yield Reason(
            "token latencies are in use, but no token was counted (0 tokens/s)",
            "give QuerySampleResponse the number of output tokens",
            code="no_tokens",
        )


def _limits(log: DetailLog, asked: Mapping[str, Value]) -> Iterator[Reason]:
    """Limits that no benchmark has: LoadGen's fallbacks, or longer than any."""
    if log.scenario != "Server":
        return
    names = {str(name).rsplit(".", 1)[-1] for name in asked}
    limits = [log.number("effective_target_latency_ns")]
    if log.token_latencies:
        limits = [log.number(f"requested_server_{name}_latency") for name in ("ttft", "tpot")]
        not_asked = {
            name.upper(): limit
            for name, limit in zip(("ttft", "tpot"), limits, strict=True)
            if f"{name}_latency" not in names
        }
        # one alone may be a model's own: llama3_1-8b has 2 s and 100 ms
        if not_asked and set(not_asked.values()) == {FALLBACK_TOKEN_LATENCY_NS}:
            yield _fallback(f"a {' and '.join(not_asked)} limit of 100 ms, LoadGen's default")
    elif (limits[0] in FALLBACK_LATENCIES_NS) and "target_latency" not in names:
        yield _fallback(f"a latency limit of {limits[0] / 1e6:g} ms, {FALLBACK_LATENCIES_NS[int(limits[0])]}")
    for limit in limits:
        if limit is not None and limit > LONGEST_LIMIT_NS:
            message = f"a latency limit of {limit / 1e9:g} s was applied, which is no limit"
            yield Reason(message, "set the model's own limit, in ms", code="limits_implausible")


def _fallback(what: str) -> Reason:
    return Reason(
        f"{what}, was applied: the model's own limits were not",
        "use LoadGen's own name of the model, such as llama3_1-8b (a dot matches nothing), load the "
        "configuration once a process, or set the limits in user.conf",
        code="limits_default",
    )


def _contradictions(log: DetailLog, summary: SummaryLog | None) -> Iterator[Reason]:
    if len(log.validities) > 1:
        text = f"the detail log holds several verdicts: {', '.join(log.validities)}"
        yield Reason(text, "give each run a folder of its own", code="logs_disagree")
    if summary is None:
        return
    differing = [
        f"{key} is {value:g} and {logged:g}"
        for key, value in summary.results().items()
        if (logged := log.number(key)) is not None
        and not math.isclose(value, logged, rel_tol=_SAME_RELATIVE, abs_tol=_SAME_ABSOLUTE)
    ]
    if summary.validity and log.validities and summary.validity != log.validities[-1]:
        differing.insert(0, f"the verdict is {summary.validity} and {log.validities[-1]}")
    if differing:
        text = f"summary and detail log are not of the same run ({len(differing)} differ): {differing[0]}"
        yield Reason(text, "put the two logs of one run together", code="logs_disagree")


def _warnings(log: DetailLog, summary: SummaryLog | None) -> Iterator[str]:
    for text, count in log.warnings.distinct.items():
        yield f"LoadGen warns: {text}" + (f" ({count} times)" if count > 1 else "")
    if log.broken_lines:
        yield f"{log.broken_lines} lines of the detail log are no LoadGen record"
    if log.not_finite:
        yield f"not a finite number, so left out: {', '.join(sorted(log.not_finite))}"
    if summary is None:
        yield "there is no mlperf_log_summary.txt beside the detail log"
    elif not summary.complete:
        yield "mlperf_log_summary.txt is cut"
    seeds = [log.number(f"effective_{name}_rng_seed") for name in ("qsl", "sample_index", "schedule")]
    if seeds == [0, 0, 0]:
        yield "all seeds are 0: LoadGen read no mlperf.conf, so this is no official run"
    if _is_audit(log):
        yield "an audit run (samples repeated, or issued once): INVALID is expected"
