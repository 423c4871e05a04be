"""Check the performance run of a result: proof of VALID, the round's seeds, limits, samples and duration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from actions.submission.findings import Figure, Finding, note
from actions.submission.rounds import FIXED_SIZE, LEAST_DURATION_MS, known_rounds
from actions.submission.user_conf import loadgen_names, settings_in
from agent.core.errors import ParseError
from agent.core.records import Validity
from parsers.loadgen import DETAIL_NAME, compare_settings, parse_folder, read_detail
from parsers.loadgen.constraints import duration_s
from parsers.loadgen.metrics import metric_of, seconds_between
from parsers.loadgen.score import score_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actions.submission.rounds import Benchmark, Limits, Round
    from actions.submission.tree import Place
    from agent.core.records import ParsedOutput
    from parsers.loadgen import DetailLog

_ROUNDING = 1e-5  # LoadGen logs six significant digits
_SEEDS = ("qsl", "sample_index", "schedule")
_LEAST_PERCENTILE = {"Server": 0.99, "SingleStream": 0.9, "MultiStream": 0.99}
_INFERRED = {("SingleStream", "MultiStream"), ("SingleStream", "Offline"), ("MultiStream", "Offline")}
_RATES = (
    ("result_tokens_per_second", "result_samples_per_second"),
    ("result_completed_tokens_per_second", "result_completed_samples_per_sec"),
)
"""Rates of tokens, and of the samples that had them."""
_RATES_DIFFER = 1.01
_LOADED = ("effective_performance_sample_count", "qsl_reported_performance_count")
_INFERRED_TOKENS = "gptj"
"""Beginning of the benchmarks whose tokens LoadGen counts as a constant for each sample, since v4.0."""
_ENDPOINT_CONFIGS = ("config.yaml", "config.yml")


def scenario_of(place: Place) -> str:
    """Return LoadGen's scenario of a result: Interactive is Server with tighter limits."""
    return "Server" if place.official_scenario == "Interactive" else place.official_scenario


def read_run(folder: Path, what: str) -> tuple[DetailLog | None, ParsedOutput | None, list[Finding]]:
    """Return a run's detail log and the parser's output; findings if it has no logs.

    Args:
        folder: the folder with LoadGen's logs.
        what: performance or accuracy, for messages.
    """
    if not (folder / DETAIL_NAME).is_file():
        is_endpoint = any((folder.parents[1] / name).is_file() for name in _ENDPOINT_CONFIGS)
        if is_endpoint:
            text = "it was measured by MLPerf's endpoints client, whose logs vcagent does not judge"
            return None, None, [Finding("endpoints", text, "check it only with the official checker")]
        text = f"the {what} run has no {DETAIL_NAME}"
        return None, None, [Finding(f"{what}_missing", text, f"add LoadGen's logs to {folder}")]
    try:
        return read_detail(folder / DETAIL_NAME), parse_folder(folder), []
    except ParseError as error:
        return None, None, [Finding(f"{what}_unreadable", error.message, error.remedy or "")]


def figure_of(log: DetailLog) -> Figure | None:
    """Return the number by which the round ranks a run; None if the log does not have it."""
    key = score_key(log)
    value = log.number(key) if key else None
    if value is not None and key.startswith("early_stopping_latency"):
        return Figure(value / 1e9, "seconds")
    metric = metric_of(key, value) if value is not None else None
    return Figure(metric.value, metric.unit) if metric else None


def performance_findings(
    place: Place, asked: Benchmark | None, official: str, log: DetailLog, output: ParsedOutput
) -> Iterator[Finding]:
    """Yield faults of a performance run.

    Args:
        place: the result.
        asked: the round's requirements for the benchmark; None if it is not one of the round's.
        official: the benchmark's official name.
        log: the run's detail log.
        output: the parser's output for its logs.
    """
    yield from verdict_findings(output, "performance")
    yield from _right_test(place, log)
    yield from seed_findings(place.round, log, "performance")
    yield from _duration(official, log)
    if asked is None:
        return
    yield from _samples(place, asked, log)
    yield from _score(place, asked, log)
    is_inferred = official.startswith(_INFERRED_TOKENS) and log.scenario in {"Offline", "Server"}
    if is_inferred and not score_key(log).startswith("result_inferred_"):
        text = f"the log has no inferred tokens per second, by which {place.round.name} ranks {official}"
        yield Finding("score", text, "use LoadGen's own name of the model")
    limits = asked.limits.get(place.official_scenario)
    if limits is not None and log.scenario == "Server":
        yield from _limits(limits, log)
    if asked.tokens and not log.token_latencies:
        text = "token latencies are off: a run of a language model without them has no limit and no score"
        yield Finding(
            "token_latencies", text, "set use_token_latencies, with LoadGen's own name of the model"
        )


def verdict_findings(output: ParsedOutput, what: str) -> Iterator[Finding]:
    """Yield the reasons why a run's logs do not prove that it is valid."""
    verdict = output.verdict
    if verdict is None or verdict.validity is Validity.VALID:
        return
    is_error = verdict.validity in {Validity.INVALID, Validity.FAILED}
    for reason in verdict.reasons:
        text = f"the {what} run is {verdict.validity.value}: {reason.message}"
        yield Finding(reason.code or "not_valid", text, reason.remedy, is_error=is_error)
    if is_error and not verdict.reasons:
        yield Finding("not_valid", f"the {what} run is {verdict.validity.value}")


def _right_test(place: Place, log: DetailLog) -> Iterator[Finding]:
    wanted = scenario_of(place)
    if log.mode != "PerformanceOnly":
        yield Finding("mode", f"the performance run's mode is {log.mode}", "run PerformanceOnly")
    if log.scenario == wanted:
        pass
    elif (log.scenario, wanted) in _INFERRED:
        yield note("inferred", f"the {wanted} result is inferred from a {log.scenario} run")
    else:
        yield Finding(
            "scenario", f"the performance run is of {log.scenario}, but its folder is {place.scenario}"
        )
    for name in ("performance_issue_same", "performance_issue_unique"):
        if log.flag(f"effective_{name}"):
            yield Finding("audit", f"{name} is on: it is an audit's run", "file it as a compliance run")
    least = _LEAST_PERCENTILE.get(log.scenario)
    percentile = log.number("effective_target_latency_percentile")
    if least is not None and percentile is not None and percentile < least - _ROUNDING:
        yield Finding("percentile", f"the target percentile is {percentile:g}, the rules require {least:g}")


def seed_findings(mlperf_round: Round, log: DetailLog, what: str) -> Iterator[Finding]:
    """Yield a finding if a run's seeds are not the round's."""
    used = {name: log.values.get(f"effective_{name}_rng_seed") for name in _SEEDS}
    wrong = [name for name in _SEEDS if used[name] != mlperf_round.seeds[name]]
    if not wrong:
        return
    whose = [each.name for each in known_rounds().values() if dict(each.seeds) == used]
    if whose:
        text = f"the {what} run has the seeds of {whose[0]}, not of {mlperf_round.name}"
        yield Finding("seeds", text, f"check it with --round {whose[0]}, or run it with LoadGen of the round")
        return
    shown = ", ".join(f"{name} {used[name]}" for name in wrong)
    yield Finding(
        "seeds", f"the {what} run has no seeds of {mlperf_round.name}: {shown}", "use the round's LoadGen"
    )


def _duration(official: str, log: DetailLog) -> Iterator[Finding]:
    if official in FIXED_SIZE:
        return
    asked_ms = log.number("effective_min_duration_ms")
    if asked_ms is not None and asked_ms < LEAST_DURATION_MS:
        text = f"min_duration is {asked_ms / 1000:g} s, the rules require {LEAST_DURATION_MS / 1000:g} s"
        yield Finding(
            "min_duration_setting",
            text,
            "leave min_duration to LoadGen: remove it from the test and from user.conf",
        )
    # MultiStream's log has no rate from which to compute it
    took_s = duration_s(log) or seconds_between(log)
    if took_s is None:
        yield Finding("duration", "the log does not contain the run's duration")
    elif took_s * 1000 < LEAST_DURATION_MS * (1 - _ROUNDING):
        text = f"the run itself took {took_s:.4g} s, the rules require {LEAST_DURATION_MS / 1000:g} s"
        yield Finding("duration", text, "raise target_qps (lower target_latency in SingleStream)")


def _samples(place: Place, asked: Benchmark, log: DetailLog) -> Iterator[Finding]:
    least = asked.performance_samples or asked.samples
    loaded = log.number("effective_performance_sample_count")
    if loaded is not None and loaded < least:
        text = f"performance_sample_count is {loaded:g}, the round requires {least}"
        yield Finding(
            "performance_samples",
            text,
            "use the whole data set of the benchmark, without performance_sample_count_override",
        )
    if log.scenario != "Offline":
        return
    least = asked.offline_samples or asked.samples
    issued = log.number("generated_samples_per_query") or log.number("effective_samples_per_query")
    if issued is not None and issued < least:
        is_error = place.submitter.division != "open"
        text = f"the Offline query has {issued:g} samples, the round requires {least}"
        yield Finding("offline_samples", text, "raise min_query_count", is_error=is_error)


def _score(place: Place, asked: Benchmark, log: DetailLog) -> Iterator[Finding]:
    """Yield findings for rates that the log's other numbers do not allow, such as edited ones.

    Offline's rate is the number of samples by the largest latency (loadgen/results.cc); some versions log the
    number before it is rounded up to a multiple of the loaded samples. In the open division answers may be
    longer than the benchmark's. Published logs of Server count the first token twice, and their two rates do
    not end with the same sample.
    """
    most = asked.most_tokens if place.submitter.division != "open" else None
    remedy = "file the logs as LoadGen wrote them"
    count, slowest_ns = log.number("generated_samples_per_query"), log.number("result_max_latency_ns")
    rate = log.number("result_samples_per_second")
    if log.scenario == "Offline" and rate and count and slowest_ns:
        loaded = [number for key in _LOADED if (number := log.number(key))]
        counts = (count, math.ceil(count / min(loaded)) * min(loaded) if loaded else count)
        if not any(is_close(rate, each * 1e9 / slowest_ns) for each in counts):
            text = f"result_samples_per_second is {rate:g}, but {count:g} samples in {slowest_ns / 1e9:g} s"
            yield Finding("score", f"{text} are {count * 1e9 / slowest_ns:.6g}", remedy)
    for tokens_key, samples_key in _RATES:
        tokens, samples = log.number(tokens_key), log.number(samples_key)
        if most and tokens and samples and tokens > samples * (most + 1) * _RATES_DIFFER:
            text = f"{tokens_key} is {tokens:g} with {tokens / samples:.4g} tokens a sample"
            yield Finding("score", f"{text}, the benchmark's answers have at most {most}", remedy)


def _limits(limits: Limits, log: DetailLog) -> Iterator[Finding]:
    percentile = log.number("effective_target_latency_percentile") or 0.99
    number = f"{percentile * 100:.2f}_percentile"
    rows = [
        ("TTFT", limits.ttft_ms, "requested_server_ttft_latency", f"result_first_token_{number}_latency_ns"),
        ("TPOT", limits.tpot_ms, "requested_server_tpot_latency",
         f"result_time_per_output_token_{number}_ns"),
        ("latency", limits.latency_ms, "effective_target_latency_ns", f"result_{number}_latency_ns"),
    ]  # fmt: skip
    for name, limit_ms, setting, measured in rows:
        if limit_ms is None:
            continue
        applied, found = log.number(setting), log.number(measured)
        if applied is None or applied / 1e6 > limit_ms * (1 + _ROUNDING):
            shown = "none" if applied is None else f"{applied / 1e6:g} ms"
            text = f"the {name} limit that LoadGen applied is {shown}, the round's is {limit_ms} ms"
            yield Finding("limits", text, "remove the limits, and use LoadGen's own name of the model")
        if found is None:
            yield Finding("limits", f"the log has no {measured}")
        elif found / 1e6 > limit_ms:
            text = f"p99 {name} is {found / 1e6:.4g} ms, the round's limit {limit_ms} ms"
            yield Finding("limits", text, "lower target_qps")


def user_conf_findings(place: Place, official: str, log: DetailLog, what: str) -> Iterator[Finding]:
    """Yield a note for each setting of LoadGen that differs from the result's user.conf.

    The settings themselves are judged by the values that LoadGen used.
    """
    path = place.measurements / "user.conf"
    asked = settings_in(path, loadgen_names(official, place.official_scenario), log.scenario)
    for reason in compare_settings(log, asked):
        yield note("user_conf", f"user.conf differs from the {what} run: {reason.message}", reason.remedy)


def is_close(first: float | None, second: float | None) -> bool:
    """Return True if two printed numbers can be the same number."""
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=_ROUNDING)
