"""MLPerfExecutor in a real engine, on a stand-in for NVIDIA's repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from actions.nvidia_harness.executor import MLPerfExecutor
from actions.nvidia_harness.parameters import MLPerfParameters
from agent.core.errors import ActionFailedError, ExitCode
from agent.core.progress import RunProgress
from agent.core.records import Validity
from agent.facts import Facts
from agent.facts.base import LocalHost
from agent.host.containers.engine import remove_containers
from agent.run.request import RunRequest
from agent.run.session import FinishedRun, resume, start
from tests.actions.nvidia_harness.conftest import action, records_of, request, run
from tests.forked import forked

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.component.component import StepContext
    from tests.lab.harness.nvidia_harness import HarnessHost
    from tests.lab.nvml.nvml_stand_in import NvmlStandIn

pytestmark = pytest.mark.lab

MODES = ("performance", "accuracy")
STAGES = (
    "prebuild",
    "clean",
    "link_dirs",
    "clone_loadgen",
    "download_data",
    "download_model",
    "preprocess_data",
    "build",
    "generate_engines",
    "run_harness",
)


def go_on(host: HarnessHost) -> FinishedRun:
    return resume(host.folder / "results", None, RunProgress())


def error_of(finished: FinishedRun) -> str:
    outcome = finished.outcome
    return str(outcome.error or outcome.failures[0][1])


def test_bert_and_3d_unet_in_both_modes_on_a_system_that_the_code_does_not_know(
    make_harness: Callable[[str], HarnessHost],
    nvml_stand_in: NvmlStandIn,
) -> None:
    nvml_stand_in.set(events=0x40)
    host = make_harness("v4.1")
    host.set("cpu", "AMD EPYC 9684X")
    host.gpus("NVIDIA A100-SXM4-40GB", 40960, 4)
    host.set("gpu", "A100_SXM4_40GB")
    host.set("count", "4")
    actions = (action(host, "bert", RequireCustomSystemSupport=True), action(host, "3d-unet"))
    finished = run(host, *actions, monitors=("NvidiaSmiMonitor", "HostMonitor"))
    assert finished.outcome.exit_code is ExitCode.OK, finished.outcome.failures
    records = records_of(finished)
    cases = {case["scenario"]: case for case in finished.description["cases"]}
    assert set(cases) == {
        *(f"bert-99/{one}/{mode}" for one in ("Offline", "Server", "SingleStream") for mode in MODES),
        *(f"3d-unet-99/{one}/{mode}" for one in ("Offline", "SingleStream") for mode in MODES),
    }
    aliases = {record["metric"] for record in records if "virtualclient" in record["tags"]}
    for scenario, case in cases.items():
        usage = {record["metric"] for record in records if record["scenario"] == scenario}
        assert {"gpu_energy", "gpu0_utilization_mean", "cpu_utilisation_mean"} <= usage, scenario
        assert any("hw_thermal_slowdown" in warning for warning in case["warnings"])
    assert {
        "PerformanceMode_p99",
        "samples_per_second_p99",
        "AccuracyMode_p99",
        "AccuracyValue_p99",
    } <= aliases
    assert host.effects().count("build") == 1  # the second action uses it
    assert host.effects().count("download_data") == 2  # once for each benchmark
    assert (host.engine.folder / "gpus").read_text().splitlines() == ["NVIDIA_VISIBLE_DEVICES=all"]
    section = (host.nvidia / "configs/bert/Server/custom.py").read_text()
    assert "VirtualClient, GPUConfigFiles/bert/Server" in section
    assert "gpu_batch_size = {'bert': 96}" in section
    assert "a scaled starting point from A100_SXM4_40GBx8" in section
    owners = {path.stat().st_uid for path in (host.nvidia / "build").rglob("*") if not path.is_symlink()}
    assert owners == {host.account.pw_uid}
    assert not host.engine.docker("ps", "--all", "--quiet").split()


def test_gptj_with_high_accuracy_and_what_does_not_count(make_harness: Callable[[str], HarnessHost]) -> None:
    host = make_harness("v3.1")
    old = {
        "benchmark_full": "gptj-99.9",
        "scenario": "Offline",
        "scenario_key": "result_samples_per_second",
        "result_samples_per_second": 4242.0,
        "result_validity": "VALID",
        "test_mode": "PerformanceOnly",
    }

    def leave_old_results(name: str) -> None:
        path = host.nvidia / "build" / "logs" / name / "metadata.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(old))
        subprocess.run(["chown", "-R", host.account.pw_name, host.nvidia / "build"], check=True)

    leave_old_results("before")
    host.set("fail", "no_result")
    finished = run(host, action(host, "gptj", ConfigVer="high_accuracy"))
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    assert "ended with 0 but left no result of gptj Offline performance" in error_of(finished)
    (kept,) = host.nvidia.glob("logs-before-clean-*/before/metadata.json")
    assert json.loads(kept.read_text()) == old

    leave_old_results("between")
    host.set("fail")
    host.set("invalid", "Offline")
    finished = go_on(host)
    assert finished.outcome.exit_code is ExitCode.RESULT_INVALID
    cases = {case["scenario"]: case for case in finished.description["cases"]}
    assert {name: case["validity"] for name, case in cases.items()} == {
        "gptj-99.9/Offline/performance": "INVALID",
        "gptj-99.9/Offline/accuracy": "VALID",
        "gptj-99.9/Server/performance": "VALID",
        "gptj-99.9/Server/accuracy": "VALID",
    }
    (reason,) = cases["gptj-99.9/Offline/performance"]["reasons"]
    assert reason["code"] == "min_duration"  # from LoadGen's own log
    assert reason["setting"] == "offline_expected_qps"
    assert "target_qps" not in reason["remedy"]
    values = {record["value"] for record in records_of(finished)}
    assert 4242.0 not in values
    # NVIDIA's own settings are used if they exist; others are added to them.
    assert not (host.nvidia / "configs/gptj/Offline/custom.py").exists()
    section = (host.nvidia / "configs/gptj/Server/custom.py").read_text()
    assert "system = KnownSystem.H100_SXM_80GBx8" in section
    assert "gpu_batch_size = 32\n" in section  # as a number, as in v3.1
    assert "server_target_qps = 82" in section


def run_or_resume(environment: dict[str, str], request_file: str, results: str) -> None:
    """Start or resume a run; the main function of a separate process."""
    os.environ.update(environment)
    progress = RunProgress()
    if request_file:
        values = json.loads(Path(request_file).read_text())
        sys.exit(start(RunRequest.from_json(values, {}), progress).outcome.exit_code)
    sys.exit(resume(Path(results), None, progress).outcome.exit_code)


def killed_in(host: HarnessHost, stage: str, request_file: str) -> None:
    """Run an agent in a separate process, and kill it in the middle of a stage."""
    before = host.effects().count(stage)
    host.set("hang", stage)
    environment = {name: os.environ[name] for name in ("DOCKER_HOST", "PATH")}
    agent = forked(run_or_resume, environment, request_file, str(host.folder / "results"))
    try:
        deadline = time.monotonic() + 120
        while host.effects().count(stage) == before:
            assert agent.exitcode is None, agent.exitcode
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        agent.kill()
        agent.join()
    host.set("hang")


@pytest.mark.timeout(600)
def test_killed_in_each_stage_and_the_container_gone(make_harness: Callable[[str], HarnessHost]) -> None:
    host = make_harness("v4.1")
    one = action(host, "bert", LoadgenScenarios="Offline", Modes="performance")
    file = host.folder / "request.json"
    file.write_text(json.dumps(request(host, one).to_json()))
    for stage in STAGES:
        killed_in(host, stage, str(file) if stage == STAGES[0] else "")
    cut = [path for path in (host.scratch / ".vcagent/incomplete").rglob("*") if path.is_file()]
    assert len(cut) == 7  # of three stages: none counts as complete, none is lost
    containers = host.engine.docker("ps", "--quiet").split()
    assert len(containers) == 1
    host.engine.docker("rm", "--force", *containers)

    finished = resume(host.folder / "results", None, RunProgress())
    assert finished.outcome.exit_code is ExitCode.OK, error_of(finished)
    effects = host.effects()
    # Each was cut once and done once; the results of the build are put into the new container as well.
    done = {stage: effects.count(stage) for stage in STAGES}
    assert done == {**dict.fromkeys(STAGES, 2), "build": 3}
    made = [path for path in host.scratch.glob("[!.]*/**/*") if path.is_file()]
    assert len(made) == 7
    assert {path.read_text() for path in made} == {"half and the other half"}
    assert [case["scenario"] for case in finished.description["cases"]] == ["bert-99/Offline/performance"]
    assert not host.engine.docker("ps", "--all", "--quiet").split()


def test_make_fails_at_each_stage(make_harness: Callable[[str], HarnessHost], context: StepContext) -> None:
    host = make_harness("v4.1")
    context = replace(context, facts=Facts(LocalHost()))
    context.run_dir.mkdir()
    one = action(host, "bert", LoadgenScenarios="Offline", Modes="performance")["Parameters"]
    plan = MLPerfExecutor(MLPerfParameters.model_validate(one)).plan(context.facts)
    failed = []
    try:
        for step in plan.steps:
            stages = [stage for stage in STAGES if f"make {stage}" in step.command]
            if stages == ["download_data"]:
                stages.insert(0, "clone_loadgen")
            for stage in stages:
                host.set("fail", stage)
                with pytest.raises(ActionFailedError) as error:
                    step.run(context)
                assert "the disk made a noise" in "\n".join(error.value.details)
                assert "vcagent resume" in str(error.value.remedy)
                failed.append(stage)
                host.set("fail")
            outcome = step.run(context)
    finally:
        remove_containers(context.processes.run_id, kept_too=True)
    assert failed == list(STAGES)
    assert outcome is not None
    (output,) = outcome.outputs
    assert output.validity is Validity.VALID
    records = {path.stem: json.loads(path.read_text()) for path in host.scratch.glob(".vcagent/*-bert.json")}
    assert {record["state"] for record in records.values()} == {"complete"}
    assert records["download-data-bert"]["files"].keys() == {"squad/dev-v1.1.json"}
    assert records["download-data-bert"]["bytes"] == 23


def test_a_download_that_fails_and_ends_with_0(make_harness: Callable[[str], HarnessHost]) -> None:
    host = make_harness("v4.1")
    host.set("silent", "download_model")
    one = action(host, "bert", LoadgenScenarios="Offline", Modes="performance")
    finished = run(host, one)
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    told = error_of(finished)
    models = host.scratch / "models"
    assert f"below {models}, this file is missing or incomplete: bert/bert_large_v1_1_fake_quant.onnx" in told
    assert "wget: unable to resolve host address 'zenodo.org'" in told
    assert "check that this host can reach that address" in told
    assert (models / "bert/bert_large_v1_1.onnx").read_text() == "half and the other half"
    host.set("silent")
    finished = go_on(host)
    assert finished.outcome.exit_code is ExitCode.OK, error_of(finished)
    effects = host.effects()
    assert (effects.count("download_data"), effects.count("download_model")) == (1, 2)
    assert {path.read_text() for path in models.rglob("*") if path.is_file()} == {"half and the other half"}


def test_a_system_that_nobody_knows_and_the_files_of_v5(make_harness: Callable[[str], HarnessHost]) -> None:
    host = make_harness("v5.1")
    host.gpus("NVIDIA Quantum 9000", 999_999, 4)
    one = action(
        host,
        "llama2-70b",
        LoadgenScenarios="Offline",
        Modes="performance",
        ConfigVer="high_accuracy",
        GpuAccess="runtime",
    )
    finished = run(host, one)
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    told = error_of(finished)
    assert "it detected UNREGISTERED_aarch64_NVIDIA_GB200x4" in told
    assert "write Quantum_9000x4.yaml" in told
    assert "benchmark: llama2-70b, scenario: Offline, rounds: [v5.1]" in told

    host.gpus("NVIDIA GB200", 189_471, 2)
    finished = go_on(host)
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    told = error_of(finished)
    assert "The llama2 download is not automatable. Please visit" in told
    assert "put it where the log says, below the scratch space" in told

    for name in (
        "data/llama2-70b/open_orca_gpt4_tokenized_llama.calibration_1000.pkl",
        "models/Llama2/Llama-2-70b-chat-hf/config.json",
    ):
        path = host.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("by hand")
    finished = go_on(host)
    assert finished.outcome.exit_code is ExitCode.OK, error_of(finished)
    settings = (host.nvidia / "configs/GB200x2/Offline/llama2-70b.py").read_text()
    assert "loadgen_fields.offline_expected_qps: 94," in settings  # half of the value for four GPUs
    assert "# a scaled starting point from GB200_NVLx4: this host has 2 x NVIDIA GB200" in settings
    (case,) = finished.description["cases"]
    assert case["scenario"] == "llama2-70b-99.9/Offline/performance"
    assert case["details"]["system"] == "GB200x2"
    assert "a scaled starting point" in case["details"]["system_notes"]
