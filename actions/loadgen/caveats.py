"""Add warnings that logs do not contain: what was not measured, and the client's share of the latencies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.core.mlperf import NO_RESULT, NOT_VERIFIED
from agent.core.records import Metric, Relativity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.core.records import Reason

_IN_MS = ("ttft_latency", "tpot_latency", "target_latency", "min_duration")
_LIMITS = {
    "ttft_limit": "ttft_latency_s",
    "tpot_limit": "tpot_latency_s",
    "latency_limit": "target_latency_s",
}
"""Code of a missed limit, and the path of the limit in the parsed log's details."""
_LARGE_SHARE = 0.2
_MS_PER_S = 1000
_CLIENT = (
    (
        "client_queue_peak",
        "queue_peak",
        "count",
        "most samples that waited in the client because of max_in_flight",
    ),
    (
        "client_queue_wait_max",
        "queue_wait_max_s",
        "seconds",
        "longest such wait, which the latencies include",
    ),
    ("client_loop_lag_max", "loop_lag_max_s", "seconds", "maximum delay of the client's event loop"),
    ("client_loop_lag_p99", "loop_lag_p99_s", "seconds", "its 99th percentile"),
)


def caveats(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the warnings that follow from ``harness_result.json``."""
    if result.get("cached_tokens") is None:
        yield (
            "cache use unknown: the server reports no cached tokens, so a prefix cache would go unseen. "
            "Switch it off (vLLM: --no-enable-prefix-caching; SGLang: --disable-radix-cache; llama.cpp: "
            "request {cache_prompt: false}), or let the server report it (vLLM: "
            "--enable-prompt-tokens-details, which only reports numbers above 0)"
        )
    if count := (result.get("token_count_sources") or {}).get("chunks"):
        yield (
            f"the tokens of {count} answers were counted by the parts of the stream, because the server "
            "reports no usage: a part may hold several tokens, or half of one"
        )
    if missed := _missed_limits(result):
        yield f"not the benchmark's limits, so no MLPerf result: {missed}"
    if retries := result.get("retries"):
        yield (
            f"the server closed the connection of {retries} of {result.get('issued')} requests before any "
            "reply; each was sent once more while its time ran on: it may be shedding load"
        )
    if found := result.get("tuning"):
        yield from _wide(found)


def mlperf_standing(result: Mapping[str, Any]) -> str:
    """Return in words whether a test has the settings of MLPerf's benchmark."""
    if not result.get("benchmark_limits"):
        return f"{NO_RESULT}: LoadGen has no benchmark for this model, and the limits are the profile's own"
    if missed := _missed_limits(result):
        return f"{NO_RESULT}: {missed}"
    engine = result.get("engine") or {}
    if engine.get("load_format") == "dummy":
        return f"{NO_RESULT}: the weights are random"
    return f"Measured with the settings of MLPerf's benchmark; {NOT_VERIFIED}"


def _missed_limits(result: Mapping[str, Any]) -> str:
    """Return the settings that are easier than the benchmark's, in words; empty if all are met."""
    compared: Mapping[str, Mapping[str, Any]] = result.get("benchmark_limits") or {}
    return ", ".join(
        f"{_shown(name, values['in_effect'])} instead of {_shown(name, values['benchmark']).split(' ', 1)[1]}"
        for name, values in compared.items()
        if not values["is_met"]
    )


def _wide(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield reasons why the rate found by a search may not be the highest valid one."""
    rate, bad, asked = found["target_qps"], found["lowest_invalid_qps"], found["precision"]
    if bad is None:
        yield (
            f"{rate:g} queries/s is valid, but not the highest valid rate: all {len(found['trials'])} trials "
            "were valid, so no limit was found; raise mostTrials"
        )
    elif bad / rate - 1 > asked:
        yield (
            f"the highest valid rate is between {rate:g} and {bad:g} queries/s, {bad / rate - 1:.1%} apart "
            f"where {asked:.1%} was asked for; mostTrials bounds the search"
        )


def _shown(name: str, value: float | None) -> str:
    """Format a setting for people: ``ttft_latency 2 s``."""
    if value is None:
        return f"no {name}"
    if name not in _IN_MS:
        return f"{name} {value:.10g}"
    in_seconds = value >= _MS_PER_S or name == "min_duration"
    return f"{name} {value / _MS_PER_S:g} s" if in_seconds else f"{name} {value:g} ms"


def client_metrics(client: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the harness's own share of the latencies.

    Args:
        client: the client's part of ``harness_result.json``.
    """
    for name, key, unit, text in _CLIENT:
        if key in client:
            yield Metric(name, float(client[key]), unit, Relativity.LOWER, text, verbosity=3)


def blame_client(
    reasons: Iterable[Reason], client: Mapping[str, Any], details: Mapping[str, Any]
) -> Iterator[Reason]:
    """Return the reasons; add the client's possible share to missed latency limits.

    Args:
        reasons: the reasons why the result is not valid.
        client: the harness's own share, from ``harness_result.json``.
        details: details of the parsed log, with the limits in seconds.
    """
    for reason in reasons:
        limit_s = float(details.get(_LIMITS.get(reason.code, ""), 0.0))
        is_tpot = reason.code == "tpot_limit"  # a mean over an answer's tokens: one stall hardly changes it
        wait_s = 0.0 if is_tpot else float(client.get("queue_wait_max_s", 0.0))
        lag_s = float(client.get("loop_lag_p99_s" if is_tpot else "loop_lag_max_s", 0.0))
        parts, remedies = [], []
        if limit_s and wait_s > _LARGE_SHARE * limit_s:
            parts.append(f"requests waited up to {wait_s:.3g} s in the client because of max_in_flight")
            remedies.append("raise max_in_flight if the server can take more concurrent requests")
        if limit_s and lag_s > _LARGE_SHARE * limit_s:
            parts.append(f"the client's event loop was up to {lag_s:.3g} s late")
            remedies.append("give the client processors of its own")
        if not parts:
            yield reason
            continue
        yield replace(
            reason,
            message=f"{reason.message}; part of it is the client's: {' and '.join(parts)}",
            remedy="; ".join([*remedies, reason.remedy] if reason.remedy else remedies),
        )
