"""Checks that the numbers of a performance run follow from each other, as LoadGen computes them.

Source: loadgen/results.cc (PerformanceSummary::LogSummary, LogDetail, MinDurationMet). Other checks miss a
digit that is lost in both logs, or in one that stands alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.loadgen.versions import GENERATED_IS_ISSUED_SINCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.loadgen.detail import DetailLog

_NS = 1e9
_TOLERANCE = 0.02
"""LoadGen prints six digits, a summary two decimals; a lost digit is a factor of ten."""
_ROUNDED = 0.01
"""Rounding of two rates with two decimals."""
_TOKEN_TOLERANCE = 0.5
"""The same for a mean of products that is compared with a product of means."""
_MOST_NS = 2.0**63
_CLOCK_S = 0.1
"""Tolerance of times that LoadGen takes at different places."""


def impossible(log: DetailLog) -> Iterator[str]:
    """Yield the numbers that cannot belong to one run."""
    if log.mode != "PerformanceOnly":
        return
    yield from {
        "Offline": _offline,
        "Server": _server,
        "SingleStream": _single_stream,
    }.get(log.scenario, _nothing)(log)
    if log.scenario != "Offline":
        yield from _queries(log)


def overflowed(log: DetailLog, key: str) -> bool:
    """Return True if a mean of latencies is not one: LoadGen adds them up in 64 bits, which may overflow."""
    if key != "result_mean_latency_ns" or log.scenario != "Offline":
        return False
    rate, longest_ns = log.number("result_samples_per_second"), log.number("result_max_latency_ns")
    return (rate or 0.0) * (longest_ns or 0.0) ** 2 / _NS > _MOST_NS


def _nothing(_: DetailLog) -> Iterator[str]:
    return iter(())


def _offline(log: DetailLog) -> Iterator[str]:
    rate, longest_ns = log.number("result_samples_per_second"), log.number("result_max_latency_ns")
    least, most = _sent(log)
    if rate and longest_ns and most:
        samples = rate * longest_ns / _NS
        if not least * (1 - _TOLERANCE) <= samples <= most * (1 + _TOLERANCE):
            sent = f"{least:.15g}" if least == most else f"{least:.15g} to {most:.15g}"
            yield (
                f"result_samples_per_second is {rate:g}, which is {samples:.4g} samples in the longest "
                f"latency, {longest_ns / _NS:.4g} s; {sent} were sent"
            )
    yield from _few_tokens(rate, log.number("result_tokens_per_second"), "result_tokens_per_second")


def _sent(log: DetailLog) -> tuple[float, float]:
    """Return bounds of the number of samples: older versions permute whole sets without recording it."""
    asked = log.number("effective_samples_per_query") or 0.0
    generated = float(log.samples_generated or asked)
    if not log.is_summary and log.version_parts >= GENERATED_IS_ISSUED_SINCE:
        return generated, generated
    each = log.number("effective_performance_sample_count") or 0.0
    return min(asked or generated, generated), max(asked, generated) + each


def _few_tokens(samples_per_s: float | None, tokens_per_s: float | None, name: str) -> Iterator[str]:
    if samples_per_s and tokens_per_s and tokens_per_s < samples_per_s * (1 - _TOLERANCE) - _ROUNDED:
        yield f"{name} is {tokens_per_s:g}, less than the samples per second, {samples_per_s:g}"


def _server(log: DetailLog) -> Iterator[str]:
    scheduled = log.number("result_scheduled_samples_per_sec")
    completed = log.number("result_completed_samples_per_sec")
    queries = log.number("result_query_count")
    longest_ns = log.number("result_max_latency_ns")
    if scheduled and completed and completed > scheduled * (1 + _TOLERANCE) + _ROUNDED:
        yield (
            f"result_completed_samples_per_sec is {completed:g}, more than "
            f"result_scheduled_samples_per_sec, {scheduled:g}"
        )
    elif scheduled and completed and queries and longest_ns:
        late_s = (queries - 1) / completed - (queries - 1) / scheduled
        most_s = longest_ns / _NS + (queries - 1) / completed * _TOLERANCE + _CLOCK_S
        if late_s > most_s:
            yield (
                f"result_completed_samples_per_sec is {completed:g}, result_scheduled_samples_per_sec "
                f"{scheduled:g}: the last sample would have ended {late_s:.4g} s after it was due"
            )
    tokens = log.number("result_completed_tokens_per_second")
    yield from _few_tokens(completed, tokens, "result_completed_tokens_per_second")
    if completed and tokens:
        # LoadGen counts all tokens, but one sample less than there are; a summary does not say how many.
        yield from _tokens(log, tokens / completed * ((queries - 1) / queries if queries else 1))


def _tokens(log: DetailLog, each: float) -> Iterator[str]:
    """Compare the mean number of tokens of a sample with what its times say.

    Args:
        log: the log.
        each: completed tokens per completed sample.
    """
    latency_ns, first_ns = (log.number(f"result_{name}mean_latency_ns") for name in ("", "first_token_"))
    throughput = log.number("result_token_throughput")  # not in a summary
    if latency_ns and throughput and not _near(throughput * latency_ns, each):
        yield (
            f"result_token_throughput is {throughput:g}, {throughput * latency_ns:.4g} tokens in a mean "
            f"latency; a sample has {each:.4g}"
        )
    fastest, slowest = (log.number(f"result_time_to_output_token_{name}") for name in ("min", "max"))
    if not (latency_ns and first_ns and fastest and slowest):
        return
    least_ns, most_ns = ((each - 1) * step for step in (fastest, slowest))
    after_ns = latency_ns - first_ns
    if not least_ns * (1 - _TOKEN_TOLERANCE) <= after_ns <= most_ns / (1 - _TOKEN_TOLERANCE):
        yield (
            f"samples take {after_ns:.4g} ns after their first token, but have {each:.4g} tokens, "
            f"each of {fastest:g} to {slowest:g} ns"
        )


def _single_stream(log: DetailLog) -> Iterator[str]:
    mean_ns, rate = log.number("result_mean_latency_ns"), log.number("result_qps_without_loadgen_overhead")
    if mean_ns and rate and abs(rate - _NS / mean_ns) > _TOLERANCE * rate + _ROUNDED:
        yield f"result_qps_without_loadgen_overhead is {rate:g}, the mean latency {mean_ns / _NS:.4g} s"


def _queries(log: DetailLog) -> Iterator[str]:
    """Compare the number of queries with the minimum, and with the time that they took."""
    queries, least = log.number("result_query_count"), log.number("effective_min_query_count")
    if queries is None:
        return
    if least and log.flag("result_min_queries_met") is True and queries < least:
        yield f"result_query_count is {queries:g}, less than effective_min_query_count, {least:g}"
    name = {
        "Server": "result_scheduled_samples_per_sec", "SingleStream": "result_qps_with_loadgen_overhead"
    }.get(log.scenario)  # fmt: skip
    rate, least_ms = log.number(name) if name else None, log.number("effective_min_duration_ms")
    if rate and least_ms and log.flag("result_min_duration_met") is True:
        took_s = (queries - 1) / rate
        if took_s * (1 + _TOLERANCE) + _CLOCK_S < least_ms / 1000:
            yield (
                f"{queries:g} queries at {rate:g}/s ({name}) took {took_s:.4g} s, less than the minimum, "
                f"{least_ms / 1000:g} s"
            )


def _near(value: float, expected: float) -> bool:
    return abs(value - expected) <= _TOLERANCE * max(abs(value), abs(expected))
