"""A host with eight GPUs: real LoadGen and the complete agent; NVML, nvidia-smi and vLLM are stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.lab.vllm_environment import environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.nvml.nvml_stand_in import NvmlStandIn

__all__ = ["environment"]

pytestmark = pytest.mark.engine

GPUS = 8
BUSY = (2, 5)
"""GPUs whose memory another program uses."""
TOTAL_MIB = 81_559
WATCHED = {"Type": "ExecuteCommand", "Parameters": {"Command": "sleep 1.5"}}
"""LoadGen logs the start of a test in whole seconds; the monitor must have run by then."""
SMI = f"""#!{sys.executable}
import sys
asked = " ".join(sys.argv[1:])
for gpu in range({GPUS}):
    bus_id, uuid = f"00000000:{{gpu + 1:02X}}:00.0", f"GPU-{{gpu}}0000000-aaaa-bbbb-cccc-dddddddddddd"
    if "--query-gpu=pci.bus_id" in asked:
        print(f"{{bus_id}}, NVIDIA X100, {TOTAL_MIB}, 580.159.04, Disabled")
    elif "--query-gpu=index" in asked:
        print(f"{{gpu}}, {{uuid}}, {TOTAL_MIB}, {{1000 if gpu in {BUSY} else 80000}}")
"""


def case(name: str, folder: Path, **vllm: Any) -> dict[str, Any]:
    return {
        "Type": "LoadGenExecutor",
        "Parameters": {
            "Scenario": name, "Model": "made-up", "LoadGenScenario": "Offline", "Environment": str(folder),
            "Vllm": {"model": "/models/m", "phases": False, **vllm}, "Dataset": "synthetic", "Samples": 16,
            "MaxOutputTokens": 4, "TargetQps": "200%", "MinDuration": 0.001, "MinQueryCount": 6000,
        },
    }  # fmt: skip


def run_agent(
    tmp_path: Path, nvml: NvmlStandIn, *actions: dict[str, Any], visible: str | None = None
) -> tuple[int, dict[str, Any]]:
    """Run the actions on the host; return the exit code and the run's rollup."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    profile = tmp_path / "profile.yaml"
    monitor = {"Type": "NvidiaSmiMonitor", "Parameters": {"Interval": 0.1}}
    asked = {"Description": "Eight GPUs", "Actions": [WATCHED, *actions], "Monitors": [monitor]}
    profile.write_text(yaml.safe_dump(asked))
    nvml.set(gpus=GPUS)
    variables = {**os.environ, **nvml.environment(), "PATH": f"{tools}:{os.environ['PATH']}"}
    variables |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    ended = subprocess.run(
        [
            sys.executable, "-m", "agent", "--profile", profile, "--results-dir", tmp_path / "results",
            "--package-dir", tmp_path / "packages",
        ],
        capture_output=True, text=True, timeout=300, check=False, env=variables,
    )  # fmt: skip
    rollup = tmp_path / "results" / "latest" / "rollup" / "run_rollup.json"
    assert rollup.exists(), ended.stdout + ended.stderr
    return ended.returncode, json.loads(rollup.read_text())


def started_with(tmp_path: Path, name: str) -> tuple[dict[str, Any], str]:
    """Return the arguments of a case's engine, and the GPUs that CUDA left to it."""
    folder = tmp_path / "results" / "latest" / "mlperf" / name
    backend = json.loads((folder / "harness.json").read_text())["backend"]["settings"]
    return backend["engine"], backend["environment"].get("CUDA_VISIBLE_DEVICES", "")


def test_a_gpu_that_falls_off_the_bus_fails_its_case_and_no_other(
    tmp_path: Path, environment: Path, nvml_stand_in: NvmlStandIn
) -> None:
    loses = case("loses", environment, environment={"STAND_IN": "loses GPU 3"})
    actions = case("before", environment), loses, case("after", environment)
    code, rollup = run_agent(tmp_path, nvml_stand_in, *actions)
    assert code == 6
    assert len(rollup["verdict"]["reasons"]) == 1, rollup["verdict"]["reasons"]
    (reason,) = rollup["verdict"]["reasons"]
    assert rollup["verdict"]["validity"] == "FAILED"
    assert "unspecified launch failure" in reason["message"]
    before, after = rollup["cases"]
    assert (before["case_dir"], before["validity"]) == ("mlperf/before", "VALID")
    # LoadGen itself may warn on a busy host.
    assert [warning for warning in before["warnings"] if not warning.startswith("LoadGen warns: ")] == []
    assert (after["case_dir"], after["validity"]) == ("mlperf/after", "VALID")
    assert any("GPU 3 did not answer" in warning for warning in after["warnings"])
    assert "efficiency" in before["headline"]
    assert "efficiency" not in after["headline"]  # the energy of seven GPUs is not that of eight
    assert started_with(tmp_path, "before")[0]["data_parallel_size"] == GPUS


def test_of_the_gpus_that_a_uuid_names_those_with_free_memory_are_used(
    tmp_path: Path, environment: Path, nvml_stand_in: NvmlStandIn
) -> None:
    visible = ",".join(f"GPU-{gpu}" for gpu in (2, 4, 6, 7))
    code, rollup = run_agent(tmp_path, nvml_stand_in, case("two", environment, gpus=2), visible=visible)
    assert code == 0, rollup["verdict"]
    engine, devices = started_with(tmp_path, "two")
    assert (engine["data_parallel_size"], devices) == (2, "4,6")
