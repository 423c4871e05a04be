"""Trees built from runs with real logs."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from actions.submission.rounds import LAYOUTS_SINCE, find_round
from actions.submission.system_description import read_description
from agent.core.errors import UsageError
from tests.actions.submission.conftest import (
    ENGINE,
    MEASUREMENTS,
    SAID,
    TEST06,
    add_power,
    edit,
    write_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actions.submission.building import Built
    from tests.actions.submission.conftest import RunMaker

    BuildTree = Callable[..., tuple[Path, Built]]


def test_a_closed_datacenter_tree(make_run: RunMaker, build_tree: BuildTree, compliance: Path) -> None:
    run = make_run("datacenter")
    root, built = build_tree(run, compliance=compliance)
    assert built.missing == ()
    place = root / "closed/Demo/results/1xH100/llama3.1-8b/Offline"
    files = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    assert files == {
        "measurements.json", "user.conf", "README.md", "TEST06/verify_accuracy.txt",
        "performance/run_1/mlperf_log_detail.txt", "performance/run_1/mlperf_log_summary.txt",
        "accuracy/accuracy.txt", "accuracy/mlperf_log_accuracy.json", "accuracy/mlperf_log_detail.txt",
        "accuracy/mlperf_log_summary.txt",
    }  # fmt: skip
    whole = (run / "mlperf/offline-accuracy/mlperf_log_accuracy.json").read_bytes()
    cut = (place / "accuracy/mlperf_log_accuracy.json").read_bytes()
    assert cut == whole[:4096] + b"\n\n...\n\n" + whole[-4096:]
    assert f"\nhash={hashlib.sha256(whole).hexdigest()}\n" in (place / "accuracy/accuracy.txt").read_text()
    assert json.loads((place / "measurements.json").read_text()) == MEASUREMENTS


def test_the_system_description_is_of_the_facts(
    make_run: RunMaker, build_tree: BuildTree, compliance: Path
) -> None:
    root, _ = build_tree(make_run("datacenter"), compliance=compliance)
    system = json.loads((root / "closed/Demo/systems/1xH100.json").read_text())
    told = {
        "host_processor_model_name": "AMD EPYC 9575F", "host_processors_per_node": "2",
        "host_processor_core_count": "64", "host_memory_capacity": "1024 GiB", "host_storage_type": "NVMe",
        "accelerators_per_node": "1", "accelerator_model_name": "NVIDIA H100 80GB HBM3",
        "accelerator_memory_capacity": "80 GiB", "framework": "MLPerf LoadGen 6.0.17",
        "operating_system": "Ubuntu 24.04.2 LTS, Linux 6.8.0-45-generic",
        "other_software_stack": "Python 3.11, NVIDIA driver 570.86.15", "division": "closed",
    }  # fmt: skip
    assert {name: system[name] for name in told} == told
    assert len(system) == 35


def test_a_host_without_accelerators(make_run: RunMaker, build_tree: BuildTree) -> None:
    make_run.facts["gpus"] = []
    said = {name: value for name, value in SAID.items() if not name.startswith("accelerator")}
    root, _ = build_tree(make_run("datacenter"), division="open", said=said)
    system = json.loads((root / "open/Demo/systems/1xH100.json").read_text())
    assert (system["accelerators_per_node"], system["accelerator_model_name"]) == ("0", "N/A")


def test_what_no_fact_tells_is_asked_for(make_run: RunMaker, build_tree: BuildTree, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read from the host") as caught:
        build_tree(make_run("datacenter"), said={}, measurements={})
    asked = [line.split(":")[0] for line in caught.value.details]
    assert asked[:2] == ["status", "host_memory_configuration"]
    assert asked[-5:] == [f"measurements.{name}" for name in MEASUREMENTS]
    assert not (tmp_path / "tree").exists()


def test_the_layout_before_v6(make_run: RunMaker, build_tree: BuildTree, compliance: Path) -> None:
    run = make_run("datacenter", round_name="v5.1")
    root, built = build_tree(run, mlperf_round=find_round("v5.1"), compliance=compliance)
    assert built.missing == ()
    below = root / "closed/Demo"
    assert (below / "measurements/1xH100/llama3.1-8b/Offline/1xH100.json").is_file()
    assert (below / "measurements/1xH100/llama3.1-8b/Offline/user.conf").is_file()
    assert (below / "compliance/1xH100/llama3.1-8b/Offline/TEST06/verify_accuracy.txt").is_file()
    assert (below / "code/README.md").is_file()
    assert sorted(path.name for path in (below / "results/1xH100/llama3.1-8b/Offline").iterdir()) == [
        "accuracy", "performance",
    ]  # fmt: skip


def test_nothing_is_written_over(make_run: RunMaker, build_tree: BuildTree, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        build_tree(make_run("datacenter"))
    assert list((tmp_path / "tree").iterdir()) == []


def test_an_invalid_run_is_not_filed(make_run: RunMaker, build_tree: BuildTree, compliance: Path) -> None:
    run = make_run("datacenter")
    edit(
        run / "mlperf/server-performance/mlperf_log_detail.txt",
        ('"result_validity", "value": "VALID"', '"result_validity", "value": "INVALID"'),
    )
    root, built = build_tree(run, compliance=compliance)
    assert built.filed == ()
    assert not root.exists()
    assert built.missing[0].what == "llama3.1-8b Server"
    assert any("Server or Interactive is missing" in each.why for each in built.missing)
    assert [path.name for path in root.parent.iterdir() if path.name.startswith(".tree")] == []


def test_the_open_division_takes_a_single_scenario(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter", skip=("Server-performance", "Server-accuracy"))
    _, built = build_tree(run, division="open")
    assert [result.place.scenario for result in built.filed] == ["Offline"]
    assert built.missing == ()


def test_a_missing_accuracy_run_is_to_be_run(make_run: RunMaker, build_tree: BuildTree) -> None:
    _, built = build_tree(make_run("datacenter", skip=("Server-accuracy",)), division="open")
    assert [each.what for each in built.missing] == ["llama3.1-8b Server accuracy"]
    assert [result.place.scenario for result in built.filed] == ["Offline"]


def test_compliance_runs_are_asked_for(make_run: RunMaker, build_tree: BuildTree) -> None:
    _, built = build_tree(make_run("datacenter"))
    assert {each.why for each in built.missing} >= {"TEST06 is missing"}
    assert built.filed == ()


def test_compliance_runs_of_the_profile_are_filed(make_run: RunMaker, build_tree: BuildTree) -> None:
    root, built = build_tree(make_run("datacenter", test06=TEST06))
    assert built.missing == ()
    place = root / "closed/Demo/results/1xH100/llama3.1-8b/Server/TEST06"
    assert (place / "verify_accuracy.txt").read_text() == TEST06
    assert (place / "accuracy/mlperf_log_accuracy.json").is_file()


def test_the_owners_compliance_runs_come_first(
    make_run: RunMaker, build_tree: BuildTree, compliance: Path
) -> None:
    root, built = build_tree(make_run("datacenter", test06="nothing\n"), compliance=compliance)
    assert built.missing == ()
    place = root / "closed/Demo/results/1xH100/llama3.1-8b/Server/TEST06"
    assert [path.name for path in place.iterdir()] == ["verify_accuracy.txt"]


def test_a_compliance_run_that_failed_is_not_filed(make_run: RunMaker, build_tree: BuildTree) -> None:
    failed = TEST06.replace("EOS check pass: True", "EOS check pass: False")
    _, built = build_tree(make_run("datacenter", test06=failed))
    assert built.filed == ()
    assert any("TEST06 did not pass" in each.why for each in built.missing)


def test_the_open_division_has_no_compliance_runs(make_run: RunMaker, build_tree: BuildTree) -> None:
    root, built = build_tree(make_run("datacenter", test06=TEST06), division="open")
    assert (len(built.filed), list(root.rglob("TEST06"))) == (2, [])


_RUN = "vcagent --profile PERF-GPU-MLPERF-LLAMA3 --parameters Form=full"


def test_commands_run_the_missing_compliance_tests(make_run: RunMaker, build_tree: BuildTree) -> None:
    _, built = build_tree(make_run("datacenter"))
    switched = f"{_RUN} --parameters Compliance=true --scenarios"
    assert built.commands == [f"{switched} offline-test06,server-test06"]


def test_commands_run_a_missing_mode_and_a_missing_scenario(
    make_run: RunMaker, build_tree: BuildTree, compliance: Path
) -> None:
    _, built = build_tree(make_run("datacenter", skip=("Server-accuracy",)), compliance=compliance)
    assert [each.why for each in built.missing] == [
        "no run has this test",
        "1xH100/llama3.1-8b: Server or Interactive is missing, but required for datacenter systems",
    ]
    assert built.commands == [f"{_RUN} --scenarios server-accuracy"]
    switched = f"{_RUN} --parameters Compliance=true --scenarios"
    run = make_run("datacenter", "c", skip=("Server-accuracy", "Server-performance"))
    _, built = build_tree(run, compliance=compliance, output="c")
    assert built.commands == [f"{switched} server-performance,server-accuracy,server-test06"]


def test_a_faulty_run_is_to_be_repeated(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter")
    edit(
        run / "mlperf/server-performance/mlperf_log_detail.txt",
        ('"result_validity", "value": "VALID"', '"result_validity", "value": "INVALID"'),
    )
    _, built = build_tree(run, division="open")
    assert built.commands == [f"{_RUN} --scenarios server-performance"]


def test_runs_of_an_unknown_profile_have_no_commands(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter")
    for sources in ([], ["/nowhere/X.yaml"], ["https://example.org/X.yaml"]):
        document = json.loads((run / "run.json").read_text())
        document["profile"]["sources"] = sources
        (run / "run.json").write_text(json.dumps(document))
        _, built = build_tree(run)
        assert built.missing
        assert built.commands == []


def test_parts_of_a_submission_may_be_of_several_runs(
    make_run: RunMaker, build_tree: BuildTree, compliance: Path
) -> None:
    first = make_run("datacenter", "first", skip=("Server-performance", "Server-accuracy"))
    second = make_run("datacenter", "second", skip=("Offline-performance", "Offline-accuracy"))
    root, built = build_tree(first, second, compliance=compliance)
    assert len(built.filed) == 2
    assert sorted(path.name for path in (root / "closed/Demo/src").iterdir()) == [
        "README.md", "first.json", "second.json",
    ]  # fmt: skip


def test_runs_of_different_systems_are_refused(make_run: RunMaker, build_tree: BuildTree) -> None:
    first = make_run("datacenter", "first")
    make_run.facts["gpus"] = []
    with pytest.raises(UsageError, match="different systems"):
        build_tree(first, make_run("datacenter", "second"))


def test_the_best_valid_run_is_filed(make_run: RunMaker, build_tree: BuildTree, compliance: Path) -> None:
    runs = [make_run("datacenter", name) for name in ("slow", "fast", "wrong")]
    for run, rate, validity in zip(runs, (1000, 2000, 3000), ("VALID", "VALID", "INVALID"), strict=True):
        path = run / "mlperf/offline-performance/summary.json"
        metric = {
            "name": "tokens_per_second",
            "value": rate,
            "unit": "tokens/s",
            "relativity": "HigherIsBetter",
        }
        head = {"throughput": {"metric": "tokens_per_second", "value": rate, "unit": "tokens/s"}}
        path.write_text(json.dumps({**json.loads(path.read_text()), "metrics": [metric], "headline": head}))
        document = json.loads((run / "run.json").read_text())
        for case in document["cases"]:
            if case["scenario"] == "llama3.1-8b/Offline/performance":
                case["validity"] = validity
        (run / "run.json").write_text(json.dumps(document))
    root, _ = build_tree(*runs, compliance=compliance)
    readme = (root / "closed/Demo/results/1xH100/llama3.1-8b/Offline/README.md").read_text()
    assert "llama3.1-8b/Offline/performance of run fast" in readme


def test_descriptions(tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    path.write_text("cooling: air\nnumber_of_nodes: 1\nmeasurements:\n  retraining: N\n")
    system, measurements = read_description(
        path, {"cooling": "liquid", "measurements.weight_data_types": "fp8"}
    )
    assert system == {"cooling": "liquid", "number_of_nodes": "1"}
    assert measurements == {"retraining": "N", "weight_data_types": "fp8"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("coolingg: air\n", "no field is named coolingg"),
        ("measurements: {weights: fp8}\n", r"no field is named measurements\.weights"),
        ("- air\n", "not a mapping"),
        ("measurements: fp8\n", "measurements is not a mapping"),
        ("a: [\n", "cannot be read"),
    ],
)
def test_descriptions_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "system.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_description(path, {})


def test_a_run_without_user_conf_gets_one_of_its_log(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("edge")
    for path in run.rglob("user.conf"):
        path.unlink()
    for path in run.rglob("summary.json"):
        path.unlink()
    root, built = build_tree(run, system_type="edge")
    assert built.missing == ()
    place = root / "closed/Demo/results/1xH100/llama3.1-8b-edge"
    assert "\n*.Offline.target_qps = 7.5\n" in (place / "Offline/user.conf").read_text()
    assert "\n*.SingleStream.target_latency = 90\n" in (place / "SingleStream/user.conf").read_text()
    assert [result.findings for result in built.filed] == [(), ()]


def _summary(run: Path, case: str, **details: object) -> None:
    path = run / "mlperf" / case / "summary.json"
    path.write_text(json.dumps({"schema_version": 1, "scenario": case, "details": details}))


_CASES = tuple(
    f"{scenario}-{mode}"
    for scenario in ("offline", "server")
    for mode in ("performance", "accuracy", "test06")
)


def test_a_compliance_run_of_another_engine_is_not_filed(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter", test06=TEST06)
    write_settings(run / "mlperf/server-test06", engine={"max_num_seqs": 64}, environment={"A_TOKEN": "x"})
    _, built = build_tree(run)
    (missing, _) = built.missing
    assert missing.why == (
        "TEST06 was run with other settings than llama3.1-8b/Server/performance of run run: "
        "max_num_seqs is 64, in the performance run 512; the variable A_TOKEN differs"
    )
    assert built.commands == [f"{_RUN} --parameters Compliance=true --scenarios server-test06"]
    assert [result.place.scenario for result in built.filed] == []


def test_what_engine_and_loadgen_used_is_compared(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter", test06=TEST06)
    used = {"engine_quantization": "fp8", "server_parallel": 4, "loadgen_version": "6.0.17",
            "ttft_latency_s": 2.0, "data_set_sha256": "aa"}  # fmt: skip
    for case in _CASES:
        _summary(
            run,
            case,
            **used,
            engine_num_gpu_blocks=len(case),
            engine_url=f"http://127.0.0.1:{len(case)}",
            target_qps=len(case),
        )
    assert build_tree(run, output="same")[1].missing == ()
    for name, other in (
        ("engine_quantization", None), ("server_parallel", 8), ("loadgen_version", "6.0.18"),
        ("ttft_latency_s", 3.0), ("data_set_sha256", "bb"),
    ):  # fmt: skip
        _summary(run, "server-test06", **{**used, name: other})
        (missing, _) = build_tree(run, output=name)[1].missing
        shown = "not set" if other is None else other
        assert f"{name} is {shown}, in the performance run {used[name]}" in missing.why


@pytest.mark.parametrize("better", ["server_model_fingerprint", "server_model_sha256"])
def test_the_same_model_in_another_package_folder_is_the_same_model(
    make_run: RunMaker, build_tree: BuildTree, better: str
) -> None:
    run = make_run("datacenter", test06=TEST06)
    for case in _CASES:
        place = f"/packages-{case}/model"
        write_settings(run / "mlperf" / case, model=place, tokenizer=place)
        _summary(run, case, engine_model=place, server_model_file=place, **{better: "aa"})
    assert build_tree(run, output="same")[1].missing == ()
    _summary(run, "server-test06", **{better: "bb"})
    (missing, _) = build_tree(run, output="other")[1].missing
    assert f"{better} is bb, in the performance run aa" in missing.why


def test_another_place_without_proof_of_the_same_model_is_another_model(
    make_run: RunMaker, build_tree: BuildTree
) -> None:
    run = make_run("datacenter", test06=TEST06)
    write_settings(run / "mlperf/server-test06", model="/packages-2/model")
    (missing, _) = build_tree(run)[1].missing
    assert "model is /packages-2/model, in the performance run /model" in missing.why


def test_other_gpus_of_the_same_kind_are_the_same_settings(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter", test06=TEST06)
    for place, case in enumerate(_CASES):
        chosen = {"CUDA_VISIBLE_DEVICES": f"{place}"}
        write_settings(run / "mlperf" / case, environment=chosen)
        _summary(run, case, server_gpus=f"{place}", server_gpu_kinds="1x NVIDIA H100 80GB HBM3")
    assert build_tree(run, output="same")[1].missing == ()
    for other in ("2x NVIDIA H100 80GB HBM3", "1x NVIDIA H200"):
        _summary(run, "server-test06", server_gpu_kinds=other)
        (missing, _) = build_tree(run, output=other[:12].replace(" ", "-"))[1].missing
        assert f"server_gpu_kinds is {other}, in the performance run 1x NVIDIA H100" in missing.why


def test_the_compliance_run_with_the_same_settings_is_taken(
    make_run: RunMaker, build_tree: BuildTree
) -> None:
    first, second = (make_run("datacenter", name, test06=TEST06) for name in ("a", "b"))
    for scenario in ("offline", "server"):
        write_settings(second / f"mlperf/{scenario}-test06", engine={"max_num_seqs": 64})
    assert build_tree(first, second)[1].missing == ()


def test_a_compliance_run_without_a_record_of_its_settings(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter", test06=TEST06)
    (run / "mlperf/server-test06/harness.json").unlink()
    (missing, _) = build_tree(run)[1].missing
    assert missing.why.endswith("llama3.1-8b/Server/TEST06 of run run has no record of its settings")


def test_an_engine_that_outlived_a_test_is_the_same_engine(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter", test06=TEST06)
    settings = {name: value for name, value in ENGINE.items() if name != "type"}
    for case in ("server-test06", "server-accuracy"):
        kept = {"type": "vllm_kept", "socket": case, "settings": settings}
        config = {"backend": kept, "max_output_tokens": 128}
        (run / "mlperf" / case / "harness.json").write_text(json.dumps(config))
    assert build_tree(run)[1].missing == ()


def test_an_accuracy_run_of_another_engine_is_not_filed(make_run: RunMaker, build_tree: BuildTree) -> None:
    run = make_run("datacenter")
    write_settings(run / "mlperf/server-accuracy", engine={"quantization": "fp8", "max_num_seqs": 512})
    _, built = build_tree(run, division="open")
    assert [result.place.scenario for result in built.filed] == ["Offline"]
    (missing,) = built.missing
    assert missing.why.endswith("quantization is fp8, in the performance run not set")
    assert built.commands == [f"{_RUN} --scenarios server-accuracy"]


@pytest.fixture
def measured(make_run: RunMaker, tmp_path: Path) -> tuple[Path, Path]:
    """Return a run, and what MLCommons' power client wrote about its Offline test."""
    run = make_run("datacenter", test06=TEST06)
    folder = tmp_path / "power/llama3.1-8b/Offline"
    shutil.copytree(run / "mlperf/offline-performance", folder / "run_1")
    for path in (folder / "run_1").iterdir():
        if not path.name.startswith("mlperf_log_"):
            path.unlink()
    add_power(folder)
    return run, tmp_path / "power"


@pytest.mark.parametrize("round_name", LAYOUTS_SINCE[1:])
def test_a_power_measurement_is_filed(
    make_run: RunMaker, measured: tuple[Path, Path], build_tree: BuildTree, round_name: str
) -> None:
    run, power = measured
    if round_name != "v6.1":
        run = make_run("datacenter", "b", test06=TEST06, round_name=round_name)
        for log in (run / "mlperf/offline-performance").glob("mlperf_log_*.txt"):
            shutil.copyfile(log, power / "llama3.1-8b/Offline/run_1" / log.name)
    root, built = build_tree(run, power=power, mlperf_round=find_round(round_name))
    assert built.missing == ()
    offline = next(each for each in built.filed if each.place.scenario == "Offline")
    assert [finding.message.partition(";")[0] for finding in offline.findings] == [
        "the average power is 2200 W"
    ]
    filed = root / "closed/Demo/results/1xH100/llama3.1-8b/Offline/performance"
    for path in (power / "llama3.1-8b/Offline").rglob("*.*"):
        assert (filed / path.relative_to(power / "llama3.1-8b/Offline")).read_bytes() == path.read_bytes()


def test_the_run_whose_power_was_measured_is_taken(
    make_run: RunMaker, measured: tuple[Path, Path], build_tree: BuildTree
) -> None:
    run, power = measured
    other = make_run("datacenter", "other", test06=TEST06)
    log = other / "mlperf/offline-performance/mlperf_log_detail.txt"
    log.write_text(log.read_text() + "\n")
    for given in ((run, other), (other, run)):
        root, built = build_tree(*given, power=power, output=f"tree-{given[0].name}")
        assert built.missing == ()
        assert "run run" in (root / "closed/Demo/results/1xH100/llama3.1-8b/Offline/README.md").read_text()
    _, built = build_tree(other, power=power, output="none")
    assert built.missing[0].what == "llama3.1-8b Offline power"
    assert "none of these runs was measured in" in built.missing[0].why


def test_an_incomplete_power_measurement_is_not_filed(
    measured: tuple[Path, Path], build_tree: BuildTree
) -> None:
    run, power = measured
    (power / "llama3.1-8b/Offline/power/server.json").unlink()
    _, built = build_tree(run, power=power)
    assert "the power measurement has no server.json in performance/power" in [
        each.why for each in built.missing
    ]


def test_a_power_measurement_of_another_benchmark_is_listed(
    measured: tuple[Path, Path], build_tree: BuildTree
) -> None:
    run, power = measured
    (power / "llama3.1-8b").rename(power / "llama2-70b-99")
    _, built = build_tree(run, power=power)
    assert [each.what for each in built.missing] == ["llama2-70b-99 Offline power"]
