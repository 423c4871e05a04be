"""The number of a run that the submission checker uses as its score."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.loadgen import DetailLog
from parsers.loadgen.score import score_key

OFFLINE = ("result_inferred_tokens_per_second", "result_tokens_per_second", "result_samples_per_second")
SERVER = (
    "result_inferred_completed_tokens_per_second",
    "result_completed_tokens_per_second",
    "result_completed_samples_per_sec",
    "result_scheduled_samples_per_sec",
)
SINGLE = ("early_stopping_latency_ss", "result_90.00_percentile_latency_ns")
MULTI = ("early_stopping_latency_ms", "effective_samples_per_query")


@pytest.mark.parametrize(
    ("version", "scenario", "keys", "score"),
    [
        *(("6.0.17", "Offline", OFFLINE[first:], OFFLINE[first]) for first in range(3)),
        *(("4.0", "Server", SERVER[first:], SERVER[first]) for first in range(3)),
        ("3.1", "Server", SERVER[2:], SERVER[3]),
        ("", "Server", SERVER[2:], SERVER[2]),
        *(("6.0.17", "SingleStream", SINGLE[first:], SINGLE[first]) for first in range(2)),
        *(("6.0.17", "MultiStream", MULTI[first:], MULTI[first]) for first in range(2)),
        ("6.0.17", "Server", SERVER[3:], ""),
        ("6.0.17", "Other", (*OFFLINE, *SERVER, *SINGLE, *MULTI), ""),
    ],
)
def test_the_score_is_the_first_number_that_the_run_has(
    version: str, scenario: str, keys: tuple[str, ...], score: str
) -> None:
    names = {"loadgen_version": version, "effective_scenario": scenario}
    assert score_key(DetailLog(Path(), values={**names, **dict.fromkeys(keys, 1)})) == score


@pytest.mark.parametrize(("percentile", "key"), [(0.95, "95.00"), (0.999, "99.90"), (None, "90.00")])
@pytest.mark.parametrize("tokens", [True, False])
def test_the_score_of_a_single_stream_is_the_target_percentile(
    percentile: float | None, key: str, *, tokens: bool
) -> None:
    score = f"result_{key}_percentile_latency_ns"
    log = DetailLog(Path(), values={"effective_scenario": "SingleStream", score: 1})
    log.values["early_stopping_latency_ss" if tokens else "result_97.00_percentile_latency_ns"] = 1
    log.values["requested_use_token_latencies"] = tokens
    if percentile is not None:
        log.values["effective_target_latency_percentile"] = percentile
    assert score_key(log) == score
