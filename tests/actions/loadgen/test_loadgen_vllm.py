"""LoadGenExecutor with vLLM's backend and real LoadGen; a stand-in answers (tests/lab/vllm_stand_in)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.parameters import LoadGenParameters
from agent.facts import Facts
from agent.facts.gpus import Gpu
from gpu_configs.model_identity import model_fingerprint
from tests.lab.container_engine import C_LIBRARY, container_engine
from tests.lab.vllm_environment import STAND_IN, environment

if TYPE_CHECKING:
    from agent.component.component import StepContext
    from agent.core.records import ParsedOutput
    from tests.lab.restartable_docker import RestartableDocker

__all__ = ["container_engine", "environment"]

pytestmark = pytest.mark.engine


def outcome_of(context: StepContext, environment: Path, **parameters: Any) -> ParsedOutput:
    """Run an Offline test and return its output."""
    asked = {
        "model": "llama3.1-8b",
        "loadgen_scenario": "Offline",
        "environment": environment,
        "vllm": {"model": "/models/m"},
        "dataset": "synthetic",
        "samples": 16,
        "max_output_tokens": 4,
        "target_qps": "200%",
        "min_duration": 0.5,
        **parameters,
    }
    (step,) = LoadGenExecutor(LoadGenParameters.model_validate(asked)).plan(context.facts).steps
    outcome = step.run(context)
    assert outcome is not None
    (output,) = outcome.outputs
    return output


def test_a_rate_above_what_the_gpu_can_do_is_refused(context: StepContext, environment: Path) -> None:
    """Use a stand-in with the sizes of Llama 3.1 8B that answers at once, which no H100 can do."""
    h100 = Gpu("0000:18:00.0", name="NVIDIA H100 80GB HBM3", memory_mib=81559, driver="580.159.04")
    host = replace(context, facts=Facts(modelled={"gpus": (h100,), "visible_devices": None}))
    # gpu_configs has no settings for this name; the stand-in does not know all of vLLM's settings.
    output = outcome_of(host, environment, model="as-large-as-llama", input_tokens=2000)
    assert output.verdict is not None
    assert output.verdict.validity.value == "INVALID"
    assert "above_roofline" in [reason.code for reason in output.verdict.reasons]
    assert output.details["server_gpu_kinds"] == "1x NVIDIA H100 80GB HBM3"
    assert "server_model_fingerprint" not in output.details  # the stand-in has no folder of a model


def test_the_model_s_content_is_recorded(context: StepContext, environment: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    output = outcome_of(context, environment, vllm={"model": str(model)})
    assert output.details["server_model_fingerprint"] == model_fingerprint(model)


def test_a_container_has_the_hosts_environment(
    context: StepContext,
    environment: Path,
    bench_python: Path,
    container_engine: RestartableDocker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Use an image with only a C library: Python and LoadGen are the host's."""
    monkeypatch.setenv("DOCKER_HOST", container_engine.address)
    (base,) = {
        Path(line.partition("=")[2].strip()).parent
        for line in (environment / "pyvenv.cfg").read_text().splitlines()
        if line.startswith("home")
    }
    # The packages that an image with the same Python has, which combine with this environment.
    of_the_image = {base, Path("/usr"), bench_python.parent.parent, STAND_IN}
    mounts = [f"{folder}:{folder}:ro" for folder in of_the_image]
    # The tests' engine is not allowed to raise limits.
    container = {"image": C_LIBRARY, "mounts": mounts, "ulimits": {}}
    output = outcome_of(context, environment, container=container)
    assert output.details["backend_version"] == "vllm 0.22.1"
    folder = context.case_dir("mlperf", "llama3.1-8b-offline-performance")
    result = json.loads((folder / "harness_result.json").read_text())
    assert result["issued"] == result["completed"] > 0
    assert not container_engine.docker("ps", "--all", "--quiet")
