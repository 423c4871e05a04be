"""Every scenario with the real LoadGen."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from tests.actions.loadgen.in_environment.harness.conftest import PROMPTS, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.engine


FEW = {"min_query_count": 500, "min_duration": 800}
SETTINGS = {
    "Offline": {"target_qps": 1000, "min_duration": 300, "min_query_count": 100},
    "Server": {**FEW, "target_qps": 800, "ttft_latency": 5000, "tpot_latency": 900},
    "Interactive": {**FEW, "target_qps": 800, "ttft_latency": 3000, "tpot_latency": 500},
    "SingleStream": {"target_latency": 0.01, "min_duration": 400, "min_query_count": 100},
    "MultiStream": {
        "target_latency": 0.1,
        "min_duration": 400,
        "min_query_count": 700,
        "samples_per_query": 4,
    },
}


@pytest.mark.parametrize("scenario", SETTINGS)
def test_a_performance_run_is_valid_and_complete(harness: Callable[..., Outcome], scenario: str) -> None:
    settings = SETTINGS[scenario]
    delay_s = 0.4 if scenario == "Offline" else 0.0005
    outcome = harness(scenario=scenario, settings=settings, backend={"type": "null", "delay_s": delay_s})

    assert (outcome.exit_code, outcome.stderr) == (0, "")
    result, detail, samples = outcome.result, outcome.detail(), outcome.samples()
    assert (result["status"], result["error"]) == ("completed", None)
    assert detail["result_validity"] == "VALID"
    assert detail["num_errors"] == 0
    assert detail["effective_scenario"] == {"Interactive": "Server"}.get(scenario, scenario)
    assert result["issued"] == result["completed"] == len(samples)
    assert result["output_tokens"] == 8 * result["issued"]
    assert result["asked"] | settings == result["asked"]
    assert result["versions"]["loadgen"] == "6.0.17"
    for sample in samples:
        assert (
            0 <= float(sample["issued_s"]) <= float(sample["first_token_s"]) <= float(sample["completed_s"])
        )
        assert sample["output_tokens"] == "8"
    if scenario == "MultiStream":
        assert result["issued"] == 4 * detail["result_query_count"]


def test_times_of_samples_agree_with_loadgen(harness: Callable[..., Outcome]) -> None:
    outcome = harness(
        scenario="SingleStream",
        settings={"target_latency": 20, "min_duration": 400, "min_query_count": 100},
        backend={"type": "null", "first_token_delay_s": 0.005, "delay_s": 0.02},
    )

    detail, samples = outcome.detail(), outcome.samples()
    latencies = [float(sample["completed_s"]) - float(sample["issued_s"]) for sample in samples]
    firsts = [float(sample["first_token_s"]) - float(sample["issued_s"]) for sample in samples]
    assert math.isclose(sum(latencies) / len(latencies), detail["result_mean_latency_ns"] / 1e9, rel_tol=0.05)
    assert math.isclose(
        sum(firsts) / len(firsts), detail["result_first_token_mean_latency_ns"] / 1e9, rel_tol=0.1
    )


def test_progress_is_counted_and_rare(harness: Callable[..., Outcome]) -> None:
    outcome = harness()

    phases = [event["phase"] for event in outcome.events]
    assert phases[:2] == ["connect", "warmup"]
    assert "run" in phases
    assert len(outcome.events) < 8
    last = outcome.events[-1]
    assert 0 < last["completed"] <= last["issued"]
    assert last["expected"] == 160
    assert last["tokens"] == 8 * last["completed"]


@pytest.mark.parametrize("scenario", ["Offline", "SingleStream"])
def test_an_accuracy_run_keeps_every_answer_as_text(
    harness: Callable[..., Outcome], mock_server: Callable[..., str], scenario: str
) -> None:
    outcome = harness(
        scenario=scenario,
        mode="accuracy",
        settings={},
        backend={"type": "openai", "url": mock_server(), "model": "mock"},
    )

    assert outcome.exit_code == 0, outcome.stderr
    rows = [json.loads(line) for line in (outcome.output_dir / "outputs.jsonl").read_text().splitlines()]
    assert sorted(row["sample_index"] for row in rows) == list(range(PROMPTS))
    by_index = {row["sample_index"]: row for row in rows}
    assert by_index[3]["id"] == "q3"
    assert by_index[3]["text"] == " sample 3 of a set sample 3 of"
    log = json.loads((outcome.output_dir / "mlperf_log_accuracy.json").read_text())
    logged = {entry["qsl_idx"]: bytes.fromhex(entry["data"]).decode() for entry in log}
    assert logged == {index: row["text"] for index, row in by_index.items()}
    assert outcome.result["effective"]["use_token_latencies"] is False


@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
def test_an_empty_answer_of_an_accuracy_run_is_an_answer(
    harness: Callable[..., Outcome], mock_server: Callable[..., str], scenario: str
) -> None:
    url = mock_server(fault="no_tokens", fault_after=7, fault_count=1)

    outcome = harness(
        scenario=scenario,
        mode="accuracy",
        settings={"target_qps": 100} if scenario == "Server" else {},
        backend={"type": "openai", "url": url},
        warmup_samples=0,
    )

    assert outcome.exit_code == 0, outcome.stderr
    rows = [json.loads(line) for line in (outcome.output_dir / "outputs.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows].count("") == 1
    assert '"is_error": true' not in (outcome.output_dir / "mlperf_log_detail.txt").read_text()


def test_one_token_is_enough_in_an_accuracy_run(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    outcome = harness(
        scenario="Offline",
        mode="accuracy",
        settings={},
        backend={"type": "openai", "url": mock_server(tokens=1)},
    )

    assert outcome.exit_code == 0, outcome.stderr
    assert '"is_error": true' not in (outcome.output_dir / "mlperf_log_detail.txt").read_text()


@pytest.mark.parametrize(
    ("scenario", "name"),
    [("Offline", "target_qps"), ("Server", "target_qps"), ("SingleStream", "target_latency")],
)
def test_the_load_follows_from_the_warm_up(
    harness: Callable[..., Outcome], mock_server: Callable[..., str], scenario: str, name: str
) -> None:
    limits = {"ttft_latency": 500, "tpot_latency": 200} if scenario == "Server" else {}
    outcome = harness(
        scenario=scenario,
        load_share=0.5,
        settings={"min_duration": 300, "min_query_count": 10, **limits},
        backend={"type": "openai", "url": mock_server(first_token_s=0.02), "max_in_flight": 4},
    )

    assert outcome.exit_code == 0, outcome.stderr
    result = outcome.result
    asked = result["asked"][name]
    if name == "target_qps":  # four at a time, 20 ms each, minus the cost of client and server
        assert 0.5 * 40 < asked < 0.5 * 200
        assert math.isclose(asked, 0.5 * result["warmup"]["samples_per_second"], rel_tol=1e-3)
    else:
        assert 0.5 * 20 < asked < 0.5 * 100
    assert result["load_share"]["share"] == 0.5
    detail = outcome.detail()
    assert math.isclose(
        detail["effective_target_qps"], asked if name == "target_qps" else 1000 / asked, rel_tol=1e-3
    )


def test_interactive_has_loadgens_interactive_limits(harness: Callable[..., Outcome]) -> None:
    outcome = harness(
        scenario="Interactive",
        model="llama3_1-8b",
        settings={"target_qps": 200, "min_duration": 300, "min_query_count": 10},
    )

    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.result["loadgen_model"] == "llama3_1-8b-interactive"
    detail = outcome.detail()
    assert detail["requested_server_ttft_latency"] == 500e6
    assert detail["requested_server_tpot_latency"] == 30e6
    assert detail["requested_use_token_latencies"] is True


def test_a_user_conf_of_the_base_model_holds_in_interactive(
    harness: Callable[..., Outcome], tmp_path: Path
) -> None:
    theirs = tmp_path / "mine.conf"
    theirs.write_text("llama3_1-8b.Server.target_qps = 70\n")

    outcome = harness(
        scenario="Interactive",
        model="llama3_1-8b",
        settings={"target_qps": 600, "min_duration": 300, "min_query_count": 10},
        user_conf=str(theirs),
    )

    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.detail()["effective_target_qps"] == 70


def test_a_limit_of_whole_answers_is_loadgens(harness: Callable[..., Outcome]) -> None:
    outcome = harness(
        model="gptj",
        settings={"target_qps": 600, "min_duration": 800, "min_query_count": 470, "target_latency": 20000},
    )

    assert outcome.exit_code == 0, outcome.stderr
    detail = outcome.detail()
    assert outcome.result["effective"]["use_token_latencies"] is False
    assert detail["effective_target_latency_ns"] == 20e9
    assert detail["result_validity"] == "VALID"


def test_what_is_easier_than_the_benchmark_is_told(harness: Callable[..., Outcome]) -> None:
    outcome = harness(
        model="llama3_1-8b",
        settings={"target_qps": 600, "min_duration": 800, "min_query_count": 10, "ttft_latency": 60000},
    )

    assert outcome.exit_code == 0, outcome.stderr
    compared = outcome.result["benchmark_limits"]
    assert compared["ttft_latency"] == {"benchmark": 2000, "in_effect": 60000, "is_met": False}
    assert compared["tpot_latency"] == {"benchmark": 100, "in_effect": 100, "is_met": True}
    assert compared["min_duration"] == {"benchmark": 600_000, "in_effect": 800, "is_met": False}
    assert compared["performance_sample_count_override"]["benchmark"] == 13368
    assert compared["performance_sample_count_override"]["is_met"] is False


@pytest.mark.parametrize(
    ("model", "scenario", "wanted"),
    [
        ("llama3_1-8b", "Offline", {"min_duration": 600_000, "min_query_count": 13368}),
        ("gptj", "Server", {"target_latency": 20_000, "min_duration": 600_000}),
    ],
)
def test_a_benchmarks_settings_are_loadgens_own(
    harness: Callable[..., Outcome], model: str, scenario: str, wanted: dict[str, int]
) -> None:
    limits = {"ttft_latency": 500, "tpot_latency": 200} if scenario == "Server" else {}
    outcome = harness(
        scenario=scenario,
        model=model,
        settings={"target_qps": 200, "min_duration": 200, "min_query_count": 10, **limits},
    )

    assert outcome.exit_code == 0, outcome.stderr
    compared = outcome.result["benchmark_limits"]
    assert {name: compared[name]["benchmark"] for name in wanted} == wanted
    assert not any(compared[name]["is_met"] for name in wanted)
    assert "ttft_latency" not in compared


def test_a_model_of_ones_own_has_no_benchmark(harness: Callable[..., Outcome]) -> None:
    assert harness().result["benchmark_limits"] is None


def test_the_users_user_conf_wins(harness: Callable[..., Outcome], tmp_path: Path) -> None:
    theirs = tmp_path / "mine.conf"
    theirs.write_text("# mine\n*.*.min_duration = 500\ntiny.Server.target_qps = 300.5\n")

    outcome = harness(user_conf=str(theirs))

    assert outcome.exit_code == 0, outcome.stderr
    asked, detail = outcome.result["asked"], outcome.detail()
    assert (asked["min_duration"], asked["target_qps"], asked["min_query_count"]) == (500, 300.5, 100)
    assert detail["effective_min_duration_ms"] == 500
    assert detail["effective_target_qps"] == 300.5


def test_an_audit_config_is_read_only_when_asked_for(harness: Callable[..., Outcome], tmp_path: Path) -> None:
    audit = tmp_path / "audit.config"  # the working directory of the harness
    audit.write_text("*.*.accuracy_log_sampling_target = 100\n*.*.accuracy_log_rng_seed = 7\n")

    without = harness(output_dir=str(tmp_path / "without"))
    asked_for = harness(output_dir=str(tmp_path / "with"), audit_config=str(audit))

    assert without.detail()["effective_accuracy_log_sampling_target"] == 0
    assert asked_for.detail()["effective_accuracy_log_sampling_target"] == 100


def test_an_earlier_runs_files_are_gone(harness: Callable[..., Outcome], tmp_path: Path) -> None:
    output_dir = tmp_path / "out"
    output_dir.mkdir()
    (output_dir / "mlperf_log_summary.txt").write_text("Result is : VALID")
    (output_dir / "samples.csv").write_text("old")

    outcome = harness(backend={"type": "openai", "url": "http://127.0.0.1:9", "connect_timeout_s": 0})

    assert outcome.exit_code == 1
    assert not (output_dir / "mlperf_log_summary.txt").exists()
    assert not (output_dir / "samples.csv").exists()


def test_unrecorded_samples_are_not_written(harness: Callable[..., Outcome]) -> None:
    outcome = harness(record_samples=False)

    assert outcome.exit_code == 0
    assert not (outcome.output_dir / "samples.csv").exists()
