"""The search for the highest load: on modelled systems, and with real LoadGen on a known capacity."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.loadgen.in_environment.harness.tuning import Search, Tuning, drift
from agent.core.yaml_data import yaml_data

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = yaml_data(
    (Path(__file__).parents[3] / "cases" / "load_search" / "searches.yaml").read_text(encoding="utf-8")
)


def searched(start: float, capacity: float, tuning: Tuning) -> Search:
    """Return a finished search on a system that sustains every rate up to its capacity."""
    search = Search(start, tuning)
    while (rate := search.next_rate()) is not None:
        search.tell(rate, holds=rate <= capacity)
    return search


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_searches(case: dict[str, Any]) -> None:
    search = searched(case["start"], case["capacity"], Tuning(most_trials=case.get("most_trials", 12)))
    assert search.tried == case["tried"]
    assert str(search) == case["known"]


@given(capacity=st.floats(0.05, 5000), start=st.floats(0.05, 5000))
def test_the_search_ends_at_the_capacity_whatever_it_starts_from(capacity: float, start: float) -> None:
    search = searched(start, capacity, Tuning(most_trials=200))
    assert search.highest_good is not None
    assert search.lowest_bad is not None
    assert search.highest_good <= capacity < search.lowest_bad <= search.highest_good * 1.02
    assert len(search.tried) == len(set(search.tried))


@given(capacity=st.floats(0.05, 5000), share=st.floats(1 / 15, 15))
def test_the_trials_do_for_a_start_that_is_far_off(capacity: float, share: float) -> None:
    search = searched(capacity * share, capacity, Tuning())
    assert search.highest_good is not None
    assert search.lowest_bad is not None
    assert search.highest_good <= capacity < search.lowest_bad <= search.highest_good * 1.02


@given(capacity=st.floats(1e-3, 1e6), start=st.floats(1e-3, 1e6), trials=st.integers(1, 12))
def test_the_bracket_holds_the_capacity_however_few_the_trials(
    capacity: float, start: float, trials: int
) -> None:
    search = searched(start, capacity, Tuning(most_trials=trials))
    assert len(search.tried) <= trials
    assert (search.highest_good or 0.0) <= capacity < (search.lowest_bad or float("inf"))
    assert (search.lowest_bad is None) == all(rate <= capacity for rate in search.tried)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trial_s": 0}, "trial_s is 0; it must be above 0"),
        ({"trial_queries": 0}, "trial_queries is 0; it must be above 0"),
        ({"most_trials": 0}, "most_trials is 0; it must be above 0"),
        ({"final_attempts": 0}, "final_attempts is 0; it must be above 0"),
        ({"precision": 0}, "precision is 0; it must be between 0 and 1"),
        ({"precision": 1.0}, r"precision is 1\.0; it must be between 0 and 1"),
        ({"start_qps": 0.0}, r"start_qps is 0\.0; it must be above 0"),
        ({"start_qps": -1.0}, r"start_qps is -1\.0; it must be above 0"),
    ],
)
def test_a_search_that_could_not_end_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^tuning: {message}$"):
        Tuning(**values)


def test_a_bracket_of_exactly_the_precision_is_small_enough() -> None:
    assert Search(40.0, Tuning(precision=0.02), 50.0, 51.0, [50.0, 51.0]).next_rate() is None


def test_the_least_values_of_a_search_are_accepted() -> None:
    Tuning(start_qps=0.5, trial_s=0.5, trial_queries=1, precision=0.001, most_trials=1, final_attempts=1)


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


@pytest.mark.parametrize("samples", [0, 3, 89])
def test_too_few_samples_tell_no_drift(samples: int) -> None:
    issued = [float(number) for number in range(samples)]
    assert drift(issued, [0.1 + 3 * at for at in issued]) == 0.0


def test_drift_is_exact_where_nothing_scatters() -> None:
    """Compare the medians of the first and the last third, not those of the middle."""
    issued = [float(number) for number in range(90)]
    waited = [1.0] * 30 + [50.0] * 30 + [4.0] * 30
    assert drift(issued, waited) == pytest.approx(3 / 60)
    assert drift([at / 128 for at in issued], waited) == pytest.approx(3 * 128 / 60)
    assert drift(issued, waited[::-1]) == 0.0
    assert drift([5.0] * 90, waited) == 0.0  # all at once: no time passed


@pytest.mark.parametrize(("growth", "counts"), [(0.3, False), (0.45, True)])
def test_growth_counts_beyond_four_times_the_scatter_of_the_median(growth: float, *, counts: bool) -> None:
    """Scatter 36 waits at a distance of 0.6 s from their median, whose scatter is then 0.6 / 6 s."""
    issued = [number / 2 for number in range(108)]
    first = [1.4, 2.6] * 18
    waited = first + [2.0] * 36 + [2.0 + growth] * 36
    assert drift(issued, waited) == (pytest.approx(growth / 36) if counts else 0.0)


@pytest.mark.engine
def test_the_real_loadgen_finds_what_a_system_can_do(harness: Callable[..., Any]) -> None:
    """Expect 200 queries/s from twenty answers of 100 ms at once, and 20 % more until 0.5 s of waiting."""
    outcome = harness(
        backend={"type": "null", "tokens": 4, "first_token_delay_s": 0.05, "delay_s": 0.1, "slots": 20},
        scenario="Server",
        settings={"ttft_latency": 500, "tpot_latency": 250, "min_duration": 2500},
        tuning={"trial_s": 1.0, "trial_queries": 500, "precision": 0.1, "most_trials": 6},
    )
    assert outcome.exit_code == 0, outcome.stderr
    found = outcome.result["tuning"]
    assert 50 <= found["target_qps"] <= 240
    assert outcome.detail()["effective_target_qps"] == pytest.approx(found["target_qps"])
    assert outcome.detail()["effective_min_duration_ms"] == 2500
    assert found["lowest_invalid_qps"] > found["target_qps"]
    for trial in found["trials"]:
        assert (outcome.output_dir / trial["folder"] / "mlperf_log_detail.txt").exists()
        assert (outcome.output_dir / trial["folder"] / "samples.csv").exists()
        assert trial["holds"] or trial["why"]
    assert f"target_qps = {found['target_qps']:g}" in (outcome.output_dir / "user.conf").read_text()


@pytest.mark.engine
def test_a_system_that_keeps_no_limit_at_any_rate_says_so(harness: Callable[..., Any]) -> None:
    outcome = harness(
        backend={"type": "null", "tokens": 4, "first_token_delay_s": 1.2, "delay_s": 1.21},
        scenario="Server",
        settings={"ttft_latency": 20, "tpot_latency": 50, "min_duration": 1000},
        tuning={"start_qps": 400, "trial_s": 0.5, "trial_queries": 100, "most_trials": 2},
    )
    assert outcome.exit_code == 1
    assert outcome.error["kind"] == "load"
    assert "first token latency 1." in outcome.error["message"]
    assert len(outcome.result["tuning"]["trials"]) == 2
