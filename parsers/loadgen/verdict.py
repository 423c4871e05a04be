"""Judges whether a LoadGen run counts. Stricter than LoadGen, which says VALID with 400 errors and no token.

VALID is proven, never assumed. It needs all of these: each record that the run's version and scenario write,
once and well formed (`parsers.loadgen.versions`); LoadGen's VALID and each of its constraints met; no error;
tokens if token latencies are in use; latency limits that are not LoadGen's fallbacks; the requested settings;
and, if a summary exists, a complete one that agrees. The logs of an accuracy run do not contain its accuracy:
at best it is NOT_APPLICABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.counts import count_of
from agent.core.records import Reason, Validity, Verdict
from parsers.loadgen.agreement import contradictions, differences
from parsers.loadgen.constraints import missed_constraints
from parsers.loadgen.score import score_key
from parsers.loadgen.settings import compare_settings
from parsers.loadgen.versions import NEWEST
from parsers.loadgen.whole import foreign_lines, foreign_records, malformed, repeated_lines, summary_gaps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parsers.loadgen.detail import DetailLog, Value
    from parsers.loadgen.summary import SummaryLog

ACCURACY_NOT_JUDGED = (
    "these logs do not show the accuracy: they show only that every sample was answered, not how well"
)
"""The warning for a complete accuracy run; a judge that knows the right answers replaces this verdict."""

# Limits in ns that LoadGen applies if its configuration does not know the model (mlperf.conf,
# *.Server.target_latency) and, with seeds of 0, if no configuration was read (loadgen/test_settings.h).
# 100 ms is also the limit of models such as retinanet.
FALLBACK_LATENCY_NS = 10_000_000
DEFAULT_LATENCY_NS = 100_000_000
LONGEST_LIMIT_NS = 600e9  # the longest limit of any model is 20 s
_TOKEN_RATES = (
    "result_tokens_per_second",
    "result_completed_tokens_per_second",
    "result_token_throughput_with_loadgen_overhead",
)
_SHOWN = 4

_EXPECTED_IN_AUDIT = ("Ran out of generated queries", "Multiple conf files")
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
    ("expected 'key=value'", "correct that line of user.conf: the equals sign needs blanks around it"),
    ("uncommitted changes", "use a released LoadGen, or build it from a clean checkout"),
    ("incomplete samples", "the harness did not answer every query: see its own log"),
    ("complete a sample twice", "the harness answers a query twice: see its own log"),
    ("differ by more than 1%", "the host's clocks disagree: fix time synchronisation"),
)  # fmt: skip


def judge(
    log: DetailLog, summary: SummaryLog | None, missing: list[str], asked: Mapping[str, Value] | None = None
) -> Verdict:
    """Return the verdict on a run.

    Args:
        log: the run's detail log.
        summary: the run's summary, if it exists.
        missing: the records missing from the logs, from `gaps`.
        asked: the requested settings, with the names and units of user.conf.
    """
    performance = log.mode != "AccuracyOnly"
    broken = list(_broken(log, summary, missing))
    constraints = missed_constraints(log) if performance and "result_validity" in log.values else []
    errors = list(_errors(log, summary, [reason.code for reason in constraints]))
    others = [*_no_score(log), *_tokens(log), *_limits(log, asked or {})] if performance else []
    others += _disagreements(log, summary)
    others += compare_settings(log, asked) if asked else []
    validity = _validity(log, errors, constraints, [*broken, *others], has_result=not broken)
    warnings = [ACCURACY_NOT_JUDGED] if not performance and validity is Validity.NOT_APPLICABLE else []
    reasons = (*broken, *errors, *constraints, *others)
    return Verdict(validity, reasons, (*warnings, *_warnings(log, summary)))


def _validity(
    log: DetailLog, errors: list[Reason], constraints: list[Reason], others: list[Reason], *, has_result: bool
) -> Validity:
    if not has_result:
        return Validity.FAILED
    is_expected = _is_audit(log) and (not errors or _are_expected_in_audit(log))
    if others or (not is_expected and (errors or constraints)):
        return Validity.INVALID
    if log.mode == "AccuracyOnly" or errors or constraints or _repeats_samples(log):
        return Validity.NOT_APPLICABLE
    return Validity.VALID if log.values.get("result_validity") == "VALID" else Validity.INVALID


def _is_audit(log: DetailLog) -> bool:
    """Return True for a compliance run, whose INVALID is expected.

    TEST04 repeats one sample, or issues each once; TEST01, 06, 07, 08 and 09 keep a share of the answers of a
    performance run, and some of them end after a number of queries (compliance/*/audit.config).
    """
    keeps_answers = any(
        log.number(f"effective_accuracy_log_{how}") for how in ("sampling_target", "probability")
    )
    return log.mode == "PerformanceOnly" and (keeps_answers or _repeats_samples(log))


def _repeats_samples(log: DetailLog) -> bool:
    return any(log.flag(f"effective_performance_issue_{how}") for how in ("same", "unique"))


def _are_expected_in_audit(log: DetailLog) -> bool:
    """Return True if a compliance run may have these errors; a summary gives only their number."""
    return log.is_summary or all(
        any(part in text for part in _EXPECTED_IN_AUDIT) for text in log.errors.distinct
    )


def _broken(log: DetailLog, summary: SummaryLog | None, missing: list[str]) -> Iterator[Reason]:
    """Yield the reasons why the logs do not contain a result."""
    if missing:
        yield _cut(log, missing)
    if more := log.repeated():
        yield _several("this log", log.runs, list(more))
    if summary is not None and (lines := repeated_lines(summary)):
        yield _several("the summary", max(summary.titles, 2), lines)
    if wrong := malformed(log):
        text = f"the detail log is garbled: {'; '.join(wrong[:_SHOWN])}"
        yield Reason(text, "run the test again: the log was changed or damaged", code="garbled_log")
    if log.is_summary or summary is None:
        return
    if log.mode != "AccuracyOnly" and not summary.is_of_accuracy_run:
        lacks = summary_gaps(summary, log.version_parts)
        if (lacks and summary.scenario in {"", log.scenario}) or not summary.complete:
            text = f"mlperf_log_summary.txt is incomplete: it lacks {', '.join(lacks[:_SHOWN])}"
            yield Reason(
                text,
                "use the unchanged summary of the same run, or remove it",
                code="incomplete_log",
            )


def _cut(log: DetailLog, missing: list[str]) -> Reason:
    what = (
        "the summary is incomplete"
        if log.is_summary
        else f"the detail log is incomplete after {log.records} records"
    )
    return Reason(
        f"{what}: it lacks {', '.join(missing)}",
        "the test was killed, still runs, or the disk is full: see the harness's own log, then run it again",
        code="incomplete_log",
    )


def _several(where: str, runs: int, twice: list[str]) -> Reason:
    return Reason(
        f"several runs in {where} ({runs}), {', '.join(twice[:_SHOWN])} more than once: "
        "results and settings may belong to different runs",
        "give each run a folder of its own, and do not append logs to each other",
        code="several_runs",
    )


def _no_score(log: DetailLog) -> Iterator[Reason]:
    key = score_key(log)
    if key and "tokens" not in key and not log.number(key) and log.values.get("result_validity") == "VALID":
        text = f"LoadGen says VALID, but {key}, the score, is 0"
        yield Reason(text, "see the detail log: too few queries were issued", code="no_score")


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
        text = f"LoadGen counted {count_of(int(told), 'error')}"
        text += f", but {log.errors.count} of them are in the detail log" if log.errors.count else ""
        yield Reason(text, "see the detail log", code="errors")


def _tokens(log: DetailLog) -> Iterator[Reason]:
    if not log.token_latencies:
        return
    rates = [log.number(key) for key in _TOKEN_RATES if key in log.values]
    is_told = bool(rates) or not log.is_summary or log.scenario != "MultiStream"  # whose summary has no rate
    if "result_validity" in log.values and is_told and not (rates and all(rates)):
        yield Reason(
            "token latencies are in use, but no token was counted (0 tokens/s)",
            "give QuerySampleResponse the number of output tokens",
            code="no_tokens",
        )


def _limits(log: DetailLog, asked: Mapping[str, Value]) -> Iterator[Reason]:
    """Yield limits that no benchmark has: LoadGen's fallbacks, or limits longer than any."""
    if log.scenario != "Server":
        return
    names = {str(name).rpartition(".")[2] for name in asked}
    latency_ns = log.number("effective_target_latency_ns")
    limits = {"": latency_ns}
    if log.token_latencies:
        limits = {name: log.number(f"requested_server_{name}_latency") for name in ("ttft", "tpot")}
        not_asked = {name.upper(): limit for name, limit in limits.items() if f"{name}_latency" not in names}
        # one of the two alone may be a model's own: llama3_1-8b has 2 s and 100 ms
        if not_asked and set(not_asked.values()) == {DEFAULT_LATENCY_NS}:
            yield _fallback(f"a {' and '.join(not_asked)} limit of 100 ms, LoadGen's default")
    elif "target_latency" not in names:
        if latency_ns == FALLBACK_LATENCY_NS:
            yield _fallback("a latency limit of 10 ms, its fallback for a model it does not know")
        elif latency_ns == DEFAULT_LATENCY_NS and _has_no_seeds(log):
            yield _fallback("a latency limit of 100 ms, its default")
    for limit in limits.values():
        if limit is not None and limit > LONGEST_LIMIT_NS:
            message = f"a latency limit of {limit / 1e9:g} s was applied, longer than any model's limit"
            yield Reason(message, "set the model's own limit, in ms", code="limits_implausible")


def _has_no_seeds(log: DetailLog) -> bool:
    """Return True if all seeds are 0, as in a run without any configuration."""
    return [log.number(f"effective_{name}_rng_seed") for name in ("qsl", "sample_index", "schedule")] == [
        0,
        0,
        0,
    ]


def _fallback(what: str) -> Reason:
    return Reason(
        f"{what}, was applied instead of the model's own limits",
        "use LoadGen's own name of the model, such as llama3_1-8b (a dot matches nothing), load the "
        "configuration once a process, or set the limits in user.conf",
        code="limits_default",
    )


def _disagreements(log: DetailLog, summary: SummaryLog | None) -> Iterator[Reason]:
    if len(log.validities) > 1:
        text = f"the detail log holds several verdicts: {', '.join(log.validities)}"
        yield Reason(text, "give each run a folder of its own", code="logs_disagree")
    if log.is_summary and summary is not None and (lines := foreign_lines(summary, log.version_parts)):
        shown = ", ".join(map(repr, lines[:_SHOWN]))
        text = f"no version of LoadGen writes such a summary: {shown} do not belong there"
        yield Reason(text, "use the unchanged summary of one run", code="foreign_records")
    if log.version_parts and not log.is_summary and (foreign := foreign_records(log)):
        text = f"LoadGen {log.version} does not write {', '.join(foreign[:_SHOWN])} in {log.scenario} runs"
        yield Reason(
            text,
            "the log holds records of another run: use the unchanged log of each run",
            code="foreign_records",
        )
    if inner := list(contradictions(log)):
        text = f"the log contradicts itself ({count_of(len(inner), 'time')}): {inner[0]}"
        yield Reason(text, "run the test again: the log was changed or damaged", code="contradiction")
    if summary is None or log.is_summary:
        return
    if differing := differences(log, summary):
        text = f"summary and detail log are not of the same run ({len(differing)} differ): {differing[0]}"
        yield Reason(text, "put the two logs of one run together", code="logs_disagree")


def _warnings(log: DetailLog, summary: SummaryLog | None) -> Iterator[str]:
    for text, count in log.warnings.distinct.items():
        yield f"LoadGen warns: {text}" + (f" ({count} times)" if count > 1 else "")
    yield from _left_out(log)
    if log.version_parts[:2] > NEWEST[:2]:
        yield f"LoadGen {log.version} is newer than this parser knows: judged as {'.'.join(map(str, NEWEST))}"
    if summary is None:
        yield "there is no mlperf_log_summary.txt beside the detail log"
    elif not summary.complete:
        yield "mlperf_log_summary.txt is incomplete"
    if _has_no_seeds(log):
        yield "all seeds are 0: LoadGen read no mlperf.conf, so this is not an official run"
    if _repeats_samples(log):
        yield "an audit run (samples repeated, or issued once): INVALID is expected"
    elif _is_audit(log):
        yield "an audit run (it keeps answers): its INVALID is expected, and its score is not the result"


def _left_out(log: DetailLog) -> Iterator[str]:
    """Yield a warning for each kind of line or number that was ignored."""
    if log.broken_lines:
        yield f"{log.broken_lines} lines of the detail log are not LoadGen records"
    if log.not_finite:
        yield f"not a finite number, so left out: {', '.join(sorted(log.not_finite))}"
    if negative := _negative(log):
        yield f"negative, so left out: {', '.join(negative)}: the host's clock went back during the test"


def _negative(log: DetailLog) -> list[str]:
    """Return the measured numbers that are below zero."""
    return [
        f"{key} ({number:g})"
        for key in log.values
        if key.startswith("result_") and (number := log.number(key)) is not None and number < 0
    ]
