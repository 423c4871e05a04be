"""One engine for several LoadGen tests, with real LoadGen; a stand-in answers (tests/lab/vllm_stand_in)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.harness_run import harness_environment
from actions.loadgen.kept_engine import can_be_kept
from actions.loadgen.parameters import LoadGenParameters
from agent.component.handover import Handover
from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.core.progress import RunProgress
from agent.run.request import RunRequest
from agent.run.session import start
from tests.lab.vllm_environment import environment
from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.component.component import StepContext
    from agent.core.records import ParsedOutput

__all__ = ["environment"]

SCENARIOS: dict[str, dict[str, Any]] = {
    "Server": {"target_qps": 40, "min_query_count": 20, "ttft_latency_ms": 2000, "tpot_latency_ms": 2000},
    "Offline": {"target_qps": "200%", "min_query_count": 16},
}


@pytest.fixture
def shared(context: StepContext) -> Iterator[StepContext]:
    """Return a step's context in which an engine may stay."""
    handover = Handover()
    yield replace(context, handover=handover)
    handover.end()


def asked(environment: Path, scenario: str, mode: str, **parameters: Any) -> LoadGenParameters:
    return LoadGenParameters.model_validate(
        {
            "scenario": f"{scenario}-{mode}".lower(),
            "model": "m",
            "loadgen_scenario": scenario,
            "mode": mode,
            "environment": environment,
            "dataset": "synthetic",
            "samples": 16,
            "max_output_tokens": 4,
            "warmup_samples": 2,
            "min_duration": 0.3,
            **SCENARIOS[scenario],
            "vllm": {"model": "/models/m", "llm_config": {"skip_tokenizer_init": True}},
            **parameters,
        }
    )


def run(context: StepContext, parameters: LoadGenParameters) -> ParsedOutput:
    (step,) = LoadGenExecutor(parameters).plan(context.facts).steps
    assert step.takes_over
    outcome = step.run(replace(context, key=parameters.scenario))
    assert outcome is not None
    (output,) = outcome.outputs
    return output


def loaded_in(context: StepContext) -> list[str]:
    """Return the cases in which the stand-in was loaded; it writes its arguments each time."""
    logs = sorted((context.run_dir / "mlperf").glob("*/engine.log"))
    return [log.parent.name for log in logs for line in log.read_text().splitlines() if '"arguments"' in line]


def results(context: StepContext) -> dict[str, dict[str, Any]]:
    files = (context.run_dir / "mlperf").glob("*/harness_result.json")
    return {file.parent.name: json.loads(file.read_text()) for file in files}


@pytest.mark.engine
def test_the_smoke_forms_tests_share_engines_whose_arguments_are_equal(
    shared: StepContext, environment: Path
) -> None:
    outputs = [
        run(shared, asked(environment, scenario, mode))
        for scenario in ("Server", "Offline")
        for mode in ("performance", "accuracy")
    ]

    assert loaded_in(shared) == ["server-performance"]
    assert [output.details.get("engine_loaded_for") for output in outputs] == [
        None, "server-performance", "server-performance", "server-performance"
    ]  # fmt: skip
    found = results(shared)
    assert len(found) == 4
    for result in found.values():
        assert result["issued"] == result["completed"] > 0
        assert result["cached_tokens"] == 0
        assert result["input_tokens"] == result["completed"] * 128
        assert result["token_count_sources"] == {"engine": result["completed"]}
        assert result["warmup"]["samples"] >= 2
        assert result["versions"]["backend"] == "vllm 0.22.1"
        assert result["engine"]["enable_prefix_caching"] is False
    log = (shared.run_dir / "mlperf" / "server-performance" / "engine.log").read_text()
    assert log.count("reset prefix cache") == 3  # before each test with an engine that had another one
    texts = (shared.run_dir / "mlperf" / "server-accuracy" / "outputs.jsonl").read_text().splitlines()
    assert {json.loads(line)["text"] for line in texts} == {"1 2 3 4"}
    assert all(  # each test has its own time: the monitors' windows do not overlap
        before.end and after.start and before.end < after.start for before, after in pairwise(outputs)
    )


@pytest.mark.engine
def test_the_smoke_form_loads_one_engine(environment: Path, tmp_path: Path) -> None:
    """Run the profile on a host without a GPU: five measurements, four of them by LoadGen."""
    parameters = {
        "LoadFormat": "dummy", "Gpu": "false", "InstallCompiler": "false", "Environment": str(environment),
        "MmluEnvironment": str(environment), "MinDuration": "0.3", "ServerMinQueryCount": "20",
        "InputTokens": "16", "InputTokensMax": "32", "MaxOutputTokens": "4",
    }  # fmt: skip
    request = RunRequest(
        ("PERF-GPU-MLPERF-LLAMA3",),
        parameters=parameters,
        results_dir=tmp_path / "results",
        package_dir=tmp_path / "packages",
    )
    run_dir = start(request, RunProgress()).run_dir

    logs = [*run_dir.glob("mlperf/*/engine.log")]
    assert sum(log.read_text().count('"arguments"') for log in logs) == 1
    results_of_the_run = list(run_dir.glob("mlperf/*/harness_result.json"))
    assert len(results_of_the_run) == 4
    assert {json.loads(file.read_text())["status"] for file in results_of_the_run} == {"completed"}


@pytest.mark.engine
def test_another_model_than_the_named_one_is_recorded_under_its_own_name(
    shared: StepContext, environment: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "SmolLM2-135M"
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden_size": 576, "num_hidden_layers": 30}')
    vllm = {"model": str(folder), "llm_config": {"skip_tokenizer_init": True}}
    output = run(shared, asked(environment, "Offline", "performance", model="llama3.1-8b", vllm=vllm))

    assert output.scenario == "SmolLM2-135M/Offline/performance"
    assert output.details["model"] == "SmolLM2-135M"
    assert output.details["loadgen_model"] == "llama3_1-8b"  # its limits still apply
    assert output.verdict is not None
    assert any("is not llama3.1-8b: its sizes differ" in warning for warning in output.verdict.warnings)


@pytest.mark.engine
def test_another_engine_is_loaded_for_other_arguments(shared: StepContext, environment: Path) -> None:
    run(shared, asked(environment, "Offline", "performance"))
    other = {"model": "/models/m", "llm_config": {"skip_tokenizer_init": True, "max_num_seqs": 8}}
    output = run(shared, asked(environment, "Offline", "accuracy", vllm=other))

    assert loaded_in(shared) == ["offline-accuracy", "offline-performance"]
    assert "engine_loaded_for" not in output.details
    assert output.details["engine_max_num_seqs"] == 8


@pytest.mark.engine
def test_an_engine_that_died_between_tests_is_loaded_again(
    shared: StepContext, environment: Path, left_behind: Callable[[], list[psutil.Process]]
) -> None:
    run(shared, asked(environment, "Offline", "performance"))
    (engine,) = left_behind()
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait(10)
    run(shared, asked(environment, "Offline", "accuracy"))

    assert loaded_in(shared) == ["offline-accuracy", "offline-performance"]


@pytest.mark.engine
@pytest.mark.parametrize("how", ["dies", "no memory"])
def test_a_failed_test_ends_its_engine_and_tells_the_cause(
    shared: StepContext, environment: Path, left_behind: Callable[[], list[psutil.Process]], how: str
) -> None:
    broken = {
        "model": "/models/m",
        "llm_config": {"skip_tokenizer_init": True},
        "environment": {"STAND_IN": how},
    }
    words = {"dies": "an illegal memory access", "no memory": "CUDA out of memory"}[how]
    with pytest.raises(ActionFailedError, match=words):
        run(shared, asked(environment, "Offline", "performance", vllm=broken))

    assert not left_behind()
    assert shared.handover is not None
    assert shared.handover.take("any") is None


@pytest.mark.engine
def test_an_engine_that_is_no_longer_well_is_not_used(
    shared: StepContext, environment: Path, left_behind: Callable[[], list[psutil.Process]]
) -> None:
    sick = {
        "model": "/models/m",
        "llm_config": {"skip_tokenizer_init": True},
        "environment": {"STAND_IN": "sick"},
    }
    run(shared, asked(environment, "Offline", "performance", vllm=sick))
    with pytest.raises(ActionFailedError, match="vLLM cannot be used again"):
        run(shared, asked(environment, "Offline", "accuracy", vllm=sick))
    assert not left_behind()


@pytest.mark.engine
def test_an_interrupted_test_ends_the_engine(
    shared: StepContext, environment: Path, left_behind: Callable[[], list[psutil.Process]]
) -> None:
    run(shared, asked(environment, "Offline", "performance"))
    assert len(left_behind()) == 1
    shared.stop.set()
    with pytest.raises(InterruptedRunError):
        run(shared, asked(environment, "Offline", "accuracy"))
    assert not left_behind()


@pytest.mark.engine
def test_the_engine_ends_with_the_agent_that_was_killed(environment: Path, tmp_path: Path) -> None:
    """Kill a shell in the agent's place; its end leaves the engine without its parent."""
    line = f"{environment}/bin/python -m harness.kept_engine {tmp_path}/s & echo $!; exec sleep 600"
    variables = {**os.environ, **harness_environment()}
    with subprocess.Popen(["/bin/sh", "-c", line], stdout=subprocess.PIPE, text=True, env=variables) as agent:
        assert agent.stdout is not None
        engine = psutil.Process(int(agent.stdout.readline()))
        try:
            wait_for((tmp_path / "s").exists, limit_s=120)
        finally:
            agent.kill()
    engine.wait(120)


def test_an_engine_in_a_container_ends_with_its_test(tmp_path: Path) -> None:
    assert can_be_kept(asked(tmp_path, "Offline", "performance"))
    assert not can_be_kept(asked(tmp_path, "Offline", "performance", container={"image": "i"}))
