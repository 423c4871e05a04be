"""Finds the number that the submission checker uses as a run's score."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parsers.loadgen.detail import DetailLog
    from parsers.loadgen.versions import Version

_COMPLETED_IS_SCORE: Version = (4, 0)


def score_key(log: DetailLog) -> str:
    """Return the key of the number that the submission checker uses as the run's score; empty if none.

    The names are those of RESULT_FIELD_NEW and RESULT_FIELD_BENCHMARK_OVERWRITE in each round's checker.
    """
    percent = 100 * (log.number("effective_target_latency_percentile") or 0.9)
    percentile = f"result_{percent:.2f}_percentile_latency_ns"
    is_old = scheduled_is_score(log.version_parts)
    samples = "result_scheduled_samples_per_sec" if is_old else "result_completed_samples_per_sec"
    offline = ["result_inferred_tokens_per_second", "result_tokens_per_second", "result_samples_per_second"]
    server = ["result_inferred_completed_tokens_per_second", "result_completed_tokens_per_second", samples]
    candidates = {
        "Offline": offline,
        "Server": server,
        # with token latencies the estimate is that of the first token
        "SingleStream": [percentile] if log.token_latencies else ["early_stopping_latency_ss", percentile],
        "MultiStream": ["early_stopping_latency_ms", "effective_samples_per_query"],
    }.get(log.scenario, [])
    return next((key for key in candidates if log.number(key) is not None), "")


def scheduled_is_score(version: Version) -> bool:
    """Return True if Server's score was still the scheduled rate."""
    return bool(version) and version < _COMPLETED_IS_SCORE
