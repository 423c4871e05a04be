"""The search for the highest load: on modelled systems, and by the real LoadGen on one of known capacity."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.mlperf.harness.tuning import Search, Tuning, drift

if TYPE_CHECKING:
    from collections.abc import Callable


@given(capacity=st.floats(0.05, 5000), start=st.floats(0.05, 5000))
def test_the_search_ends_at_the_capacity_whatever_it_starts_from(capacity: float, start: float) -> None:
    search = Search(start, Tuning(most_trials=200, precision=0.02))
    while (rate := search.next_rate()) is not None:
        search.tell(rate, holds=rate <= capacity)
    assert search.highest_good is not None
    assert search.highest_good <= capacity <= search.highest_good * 1.03
    assert len(search.tried) == len(set(search.tried))


def test_the_search_keeps_to_its_number_of_trials() -> None:
    search = Search(1000.0, Tuning(most_trials=4))
    while (rate := search.next_rate()) is not None:
        search.tell(rate, holds=False)
    assert len(search.tried) == 4
    assert search.highest_good is None
    assert search.tried == sorted(search.tried, reverse=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trial_s": 0}, "trial_s"),
        ({"most_trials": 0}, "most_trials"),
        ({"precision": 1.0}, "precision"),
        ({"start_qps": -1.0}, "start_qps"),
    ],
)
def test_a_search_that_could_not_end_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tuning(**values)


def test_drift_is_the_growth_of_the_wait() -> None:
    issued = [number / 100 for number in range(3000)]
    scatter = random.Random(3)  # noqa: S311 - no secret
    waited = [0.2 + 0.03 * at + scatter.uniform(0, 0.05) for at in issued]
    assert drift(issued, waited) == pytest.approx(0.03, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_scatter_is_no_drift(seed: int) -> None:
    scatter = random.Random(seed)  # noqa: S311 - no secret
    issued = [number / 100 for number in range(3000)]
    assert drift(issued, [scatter.uniform(0.1, 0.3) for _ in issued]) == 0.0


def test_too_few_samples_tell_no_drift() -> None:
    assert drift([0.0, 1.0, 2.0], [0.1, 5.0, 9.0]) == 0.0


@pytest.mark.engine
def test_the_real_loadgen_finds_what_a_system_can_do(harness: Callable[..., Any]) -> None:
    """Eight answers at once, each in 20 ms: 400 queries/s at the most."""
    outcome = harness(
        backend={"type": "null", "tokens": 4, "first_token_delay_s": 0.01, "delay_s": 0.02, "slots": 8},
        scenario="Server",
        settings={"ttft_latency": 100, "tpot_latency": 50, "min_duration": 2500},
        tuning={"trial_s": 1.0, "trial_queries": 500, "precision": 0.1, "most_trials": 6},
    )
    assert outcome.exit_code == 0, outcome.stderr
    found = outcome.result["tuning"]
    assert 100 <= found["target_qps"] <= 400
    assert outcome.detail()["effective_target_qps"] == pytest.approx(found["target_qps"])
    assert outcome.detail()["effective_min_duration_ms"] == 2500
    for trial in found["trials"]:
        assert (outcome.output_dir / trial["folder"] / "mlperf_log_detail.txt").exists()
        assert (outcome.output_dir / trial["folder"] / "samples.csv").exists()
        assert trial["holds"] or trial["why"]
    assert f"target_qps = {found['target_qps']:g}" in (outcome.output_dir / "user.conf").read_text()


@pytest.mark.engine
def test_a_system_that_keeps_no_limit_at_any_rate_says_so(harness: Callable[..., Any]) -> None:
    outcome = harness(
        backend={"type": "null", "tokens": 4, "first_token_delay_s": 0.05, "delay_s": 0.06},
        scenario="Server",
        settings={"ttft_latency": 20, "tpot_latency": 50, "min_duration": 1000},
        tuning={"start_qps": 400, "trial_s": 0.5, "trial_queries": 100, "most_trials": 2},
    )
    assert outcome.exit_code == 1
    assert outcome.error["kind"] == "load"
    assert "first token latency 0.0" in outcome.error["message"]
    assert len(outcome.result["tuning"]["trials"]) == 2
