"""The validator on trees built from real logs: accepted if complete, rejected for each broken part."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from actions.submission.checking import check_tree
from actions.submission.rounds import find_round
from agent.core.errors import UsageError
from tests.actions.submission.conftest import LOGS, add_power, edit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actions.submission.building import Built
    from tests.actions.submission.conftest import RunMaker

    BuildTree = Callable[..., tuple[Path, Built]]

ROUND = find_round("v6.1")
OFFLINE = "closed/Demo/results/1xH100/llama3.1-8b/Offline"
SERVER = "closed/Demo/results/1xH100/llama3.1-8b/Server"
PERFORMANCE = "performance/run_1/mlperf_log_detail.txt"
ACCURACY = "accuracy/mlperf_log_detail.txt"


@pytest.fixture
def tree(make_run: RunMaker, build_tree: BuildTree, compliance: Path) -> Path:
    root, _ = build_tree(make_run("datacenter"), compliance=compliance)
    return root


def codes(root: Path) -> set[str]:
    """Return the codes of all errors."""
    checked = check_tree(root, ROUND)
    found = {finding.code for result in checked.results for finding in result.errors}
    return found | {finding.code for _, finding in checked.findings if finding.is_error}


def test_a_whole_tree_is_accepted(tree: Path) -> None:
    checked = check_tree(tree, ROUND)
    assert checked.is_accepted
    assert [result.place.scenario for result in checked.results] == ["Offline", "Server"]
    assert all(result.figure and result.figure.unit == "tokens/s" for result in checked.results)


def test_an_interactive_result_is_judged_by_its_own_limits(tree: Path) -> None:
    (tree / SERVER).rename(tree / SERVER.replace("Server", "Interactive"))
    assert codes(tree) == {"limits"}


@pytest.mark.parametrize(
    ("path", "old", "new", "code"),
    [
        (f"{OFFLINE}/{PERFORMANCE}", '"result_validity", "value": "VALID"',
         '"result_validity", "value": "INVALID"', "loadgen_invalid"),
        (f"{OFFLINE}/{PERFORMANCE}", '"effective_min_duration_ms", "value": 600000',
         '"effective_min_duration_ms", "value": 60000', "min_duration_setting"),
        (f"{OFFLINE}/{PERFORMANCE}", '"result_max_latency_ns", "value": 6',
         '"result_max_latency_ns", "value": 5', "duration"),
        (f"{OFFLINE}/{PERFORMANCE}", '"effective_qsl_rng_seed", "value": 2085463073848966840',
         '"effective_qsl_rng_seed", "value": 7', "seeds"),
        (f"{OFFLINE}/{ACCURACY}", '"effective_qsl_rng_seed", "value": 2085463073848966840',
         '"effective_qsl_rng_seed", "value": 7', "seeds"),
        (f"{OFFLINE}/{PERFORMANCE}", '"effective_performance_sample_count", "value": 13368',
         '"effective_performance_sample_count", "value": 100', "performance_samples"),
        (f"{OFFLINE}/{PERFORMANCE}", '"generated_samples_per_query", "value": 13368',
         '"generated_samples_per_query", "value": 13367', "offline_samples"),
        (f"{OFFLINE}/{ACCURACY}", '"effective_accuracy_sample_count", "value": 13368',
         '"effective_accuracy_sample_count", "value": 13000', "accuracy_samples"),
        (f"{SERVER}/{PERFORMANCE}", '"requested_server_ttft_latency", "value": 2000000000',
         '"requested_server_ttft_latency", "value": 3000000000', "limits"),
        (f"{SERVER}/{ACCURACY}", '"requested_server_ttft_latency", "value": 2000000000',
         '"requested_server_ttft_latency", "value": 1900000000', "configuration"),
        (f"{OFFLINE}/{ACCURACY}", '"sut_name", "value": "PySUT"', '"sut_name", "value": "Another"',
         "configuration"),
        (f"{OFFLINE}/{PERFORMANCE}", '"effective_performance_issue_same", "value": false',
         '"effective_performance_issue_same", "value": true', "audit"),
        (f"{OFFLINE}/accuracy/accuracy.txt", "38.8", "38.0", "accuracy"),
        (f"{OFFLINE}/accuracy/accuracy.txt", "hash=", "sum=", "accuracy_hash"),
        (f"{OFFLINE}/measurements.json", '"weight_data_types": "fp8"', '"weight_data_types": ""',
         "measurements"),
        (f"{OFFLINE}/TEST06/verify_accuracy.txt", "EOS check pass: True", "EOS check pass: False",
         "compliance"),
        ("closed/Demo/systems/1xH100.json", '"cooling": "air-cooled"', '"cooling": ""', "system_fields"),
        ("closed/Demo/systems/1xH100.json", '"submitter": "Demo"', '"submitter": "Other"',
         "system_submitter"),
        ("closed/Demo/systems/1xH100.json", '"status": "available"', '"status": "soon"', "system_status"),
        ("closed/Demo/systems/1xH100.json", '"system_type": "datacenter"', '"system_type": "edge"',
         "category"),
    ],
)  # fmt: skip
def test_one_broken_thing_rejects(tree: Path, path: str, old: str, new: str, code: str) -> None:
    edit(tree / path, (old, new))
    assert code in codes(tree)


def test_a_valid_log_with_errors_rejects(tree: Path) -> None:
    for path in (LOGS.with_name("logs_with_errors") / "Server-performance").glob("mlperf_log_*"):
        shutil.copyfile(path, tree / SERVER / "performance/run_1" / path.name)
    assert "Result is : VALID" in (tree / SERVER / "performance/run_1/mlperf_log_summary.txt").read_text()
    assert codes(tree) == {"contradiction", "errors"}  # a first token before its query


def test_performance_logs_in_the_accuracy_folder_reject(tree: Path) -> None:
    for path in (tree / OFFLINE / "performance/run_1").iterdir():
        shutil.copyfile(path, tree / OFFLINE / "accuracy" / path.name)
    assert codes(tree) == {"mode"}


def test_the_seeds_of_another_round_are_named(tree: Path) -> None:
    found = check_tree(tree, find_round("v6.0")).results[0].errors
    (seeds,) = {
        finding.message for finding in found if finding.code == "seeds" and "performance" in finding.message
    }
    assert seeds == "the performance run has the seeds of v6.1, not of v6.0"


def test_a_log_that_is_not_cut(tree: Path) -> None:
    path = tree / OFFLINE / "accuracy/mlperf_log_accuracy.json"
    path.write_bytes(b"0" * 10241)
    assert codes(tree) == {"accuracy_log_not_cut"}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{OFFLINE}/performance", "performance_missing"),
        (f"{OFFLINE}/accuracy", "accuracy_missing"),
        (f"{OFFLINE}/TEST06", "compliance"),
        (SERVER, "scenarios"),
        ("closed/Demo/src", "source"),
    ],
)
def test_a_missing_folder_rejects(tree: Path, path: str, code: str) -> None:
    shutil.rmtree(tree / path)
    assert code in codes(tree)


@pytest.mark.parametrize("name", ["user.conf", "README.md", "measurements.json"])
def test_a_missing_paper_rejects(tree: Path, name: str) -> None:
    (tree / OFFLINE / name).unlink()
    assert codes(tree) == {"measurements"}


def test_an_empty_submission_is_rejected(tree: Path) -> None:
    shutil.rmtree(tree / "closed/Demo/results")
    assert "empty" in codes(tree)


def test_a_folder_that_is_no_submission(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the root of a submission"):
        check_tree(tmp_path, ROUND)


def test_the_open_division_asks_for_less(tree: Path) -> None:
    (tree / "closed").rename(tree / "open")
    offline = tree / OFFLINE.replace("closed", "open")
    edit(tree / "open/Demo/systems/1xH100.json", ('"closed"', '"open"'))
    edit(offline / "accuracy/accuracy.txt", ("38.8", "20.0"))
    shutil.rmtree(offline / "TEST06")
    checked = check_tree(tree, ROUND)
    assert checked.is_accepted
    assert "accuracy" in {finding.code for finding in checked.results[0].findings}


def test_scenario_folders_may_be_in_small_letters(tree: Path) -> None:
    (tree / OFFLINE).rename(tree / OFFLINE.replace("Offline", "offline"))
    assert codes(tree) == set()


def test_another_user_conf_is_a_note(tree: Path) -> None:
    (tree / OFFLINE / "user.conf").write_text("llama3_1-8b.Offline.target_qps = 3\n*.Server.target_qps = 7\n")
    result = check_tree(tree, ROUND).results[0]
    assert result.is_accepted
    (said,) = [finding.message for finding in result.findings]
    assert "target_qps was requested as 3" in said


def test_an_own_model_stands_for_a_benchmark(make_run: RunMaker, build_tree: BuildTree) -> None:
    root, built = build_tree(
        make_run("datacenter", model="mine"), division="open", benchmarks={"mine": "llama3.1-8b"}
    )
    assert [result.place.benchmark for result in built.filed] == ["mine", "mine"]
    assert json.loads((root / "open/Demo/model_mapping.json").read_text()) == {"mine": "llama3.1-8b"}
    assert check_tree(root, ROUND).is_accepted


@pytest.fixture
def measured(tree: Path) -> Path:
    """Return the performance folder of a result with a power measurement, in MLCommons' layout."""
    folder = tree / OFFLINE / "performance"
    add_power(folder)
    return folder


def test_a_power_measurement_is_averaged_and_left_to_the_official_checker(tree: Path, measured: Path) -> None:
    (offline, server) = check_tree(tree, ROUND).results
    (said,) = offline.findings
    assert (said.code, said.is_error) == ("power", False)
    assert said.message.startswith("the average power is 2200 W; vcagent does not judge")
    assert measured.is_dir()
    assert server.findings == ()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("power/client.json", "the power measurement has no client.json in performance/power"),
        ("ranging/spl.txt", "the power measurement has no spl.txt in performance/ranging"),
        ("run_1/spl.txt", "the power measurement has no spl.txt in performance/run_1"),
    ],
)
def test_an_incomplete_power_measurement_rejects(tree: Path, measured: Path, path: str, message: str) -> None:
    (measured / path).unlink()
    (offline, _) = check_tree(tree, ROUND).results
    assert message in [finding.message for finding in offline.errors]


def test_a_power_measurement_of_ranging_alone_rejects(tree: Path, measured: Path) -> None:
    shutil.rmtree(measured / "power")
    assert codes(tree) == {"power"}


def test_files_that_are_not_of_a_power_measurement_reject(tree: Path, measured: Path) -> None:
    (measured / "power/core").write_text("")
    (measured / "ranging/mlperf_log_accuracy.json").write_text("")
    (offline, _) = check_tree(tree, ROUND).results
    assert [finding.message for finding in offline.errors] == [
        "performance/power has files that are not of a measurement: core"
    ]


def test_power_samples_of_another_time_reject(tree: Path, measured: Path) -> None:
    samples = measured / "run_1/spl.txt"
    samples.write_text(samples.read_text().splitlines(keepends=True)[0])
    assert codes(tree) == {"power"}


def test_an_accuracy_run_need_not_measure_token_latencies(tree: Path) -> None:
    path = tree / SERVER / ACCURACY
    keys = ("requested_use_token_latencies", "requested_server_ttft_latency", "requested_server_tpot_latency")
    lines = [line for line in path.read_text().splitlines() if not any(f'"{key}"' in line for key in keys)]
    path.write_text("\n".join(lines) + "\n")
    (_, server) = check_tree(tree, ROUND).results
    assert server.is_accepted
    assert "token latencies are off in the accuracy run" in [finding.message for finding in server.findings]


def test_a_benchmark_of_inferred_tokens_needs_their_rate(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter", model="mine", round_name="v5.0")
    wanted = find_round("v5.0")
    root, built = build_tree(run, mlperf_round=wanted, division="open", benchmarks={"mine": "gptj-99"})
    assert not root.exists()
    assert {each.why for each in built.missing} == {
        "the log has no inferred tokens per second, by which v5.0 ranks gptj-99"
    }
