"""The examples: run with the real programs in the lab's containers; those for GPUs are only planned."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.secrets import Secrets
from agent.facts import Facts
from agent.facts.gpus import Gpu
from agent.facts.linux import Distribution
from agent.planning.planner import Planner, leaves
from agent.planning.variables import run_variables
from agent.profile import find, installed, load_sources
from tests.lab.container_engine import BUSYBOX, container_engine

if TYPE_CHECKING:
    from tests.lab.restartable_docker import RestartableDocker

__all__ = ["container_engine"]

ROOT = Path(__file__).parents[3]
GPU_EXAMPLES = ["GPU-BURN", "NCCL-TESTS", "NVBANDWIDTH", "VLLM-BENCH-SERVE"]


def vcagent(*arguments: str, beside: RestartableDocker | None = None) -> None:
    command = [sys.executable, "-m", "agent", *arguments]
    variables = dict(os.environ)
    if beside:
        command, variables["DOCKER_HOST"] = beside.beside(*command), beside.address
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=variables)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def records(results: Path) -> dict[str, dict[str, Any]]:
    lines = (results / "latest" / "metrics.jsonl").read_text().splitlines()
    return {record["metric"]: record for record in map(json.loads, lines)}


def case(results: Path) -> dict[str, Any]:
    (found,) = json.loads((results / "latest" / "run.json").read_text())["cases"]
    assert isinstance(found, dict)
    return found


@pytest.mark.engine  # they load the machine
@pytest.mark.parametrize(
    ("program", "example", "parameters", "expected"),
    [
        (
            "fio",
            "FIO",
            "Size=4m,,,Seconds=1,,,Expect=read_operations_per_second > 1",
            {
                "read_operations_per_second": "operations/s",
                "read_operations_per_second_stddev": "operations/s",
                "read_bandwidth": "bytes/s",
                "read_latency_p99.000000": "seconds",
            },
        ),
        (
            "sysbench",
            "SYSBENCH",
            "Seconds=1,,,Repeats=2",
            {
                "events_per_second": "events/s",
                "events_per_second_stddev": "events/s",
                "latency_95th_percentile": "seconds",
                "latency_avg": "seconds",
            },
        ),
        (
            "stress-ng",
            "STRESS-NG",
            "Seconds=4",  # a stressor that a busy host starts late has no line
            {"cpu_operations_per_second": "operations/s", "memcpy_operations_per_second": "operations/s"},
        ),
        ("iperf3", "IPERF3", "Seconds=1", {"received_bandwidth": "bytes/s"}),
    ],
)
def test_with_the_real_program(
    program: str, example: str, parameters: str, expected: dict[str, str], tmp_path: Path
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    vcagent("--profile", f"examples/{example}", "--results-dir", str(tmp_path), "--parameters", parameters)
    found = records(tmp_path)
    assert {name: found[name]["unit"] for name in expected} == expected
    headline = found[next(iter(expected))]
    assert headline["value"] > 0
    assert headline["tool_name"] == program
    assert case(tmp_path)["validity"] == "VALID"


@pytest.mark.lab
@pytest.mark.parametrize("network", ["host", "bridge"])
def test_a_server_and_its_client_in_containers(
    network: str, container_engine: RestartableDocker, tmp_path: Path
) -> None:
    folder = ROOT / "profiles" / "examples" / "web-server"
    vcagent(
        *("--profile", "examples/WEB-SERVER", "--results-dir", str(tmp_path)),
        *(
            "--parameters",
            f"Dockerfile={folder},,,Base={BUSYBOX},,,Requests=20,,,Expect=requests_per_second > 0",
        ),
        *("--scenarios", "-InstallDocker", "--set", f"web.container.network={network}"),
        beside=container_engine,
    )
    found = records(tmp_path)
    assert found["requests_per_second"]["value"] > 0
    assert found["duration"]["unit"] == "seconds"
    told = case(tmp_path)
    assert told["validity"] == "VALID"
    assert told["details"]["image_id"].startswith("sha256:")
    home = tmp_path / "latest" / told["case_dir"]
    assert (home / "page").read_text() == "It works.\n"
    assert json.loads((home / "result.json").read_text())["requests"] == 20
    assert container_engine.docker("ps", "--all", "--quiet") == ""


@pytest.mark.parametrize("example", GPU_EXAMPLES)
def test_examples_for_gpus_are_planned(example: str) -> None:
    profile = load_sources([find(f"examples/{example}")])
    gpus = (Gpu("0000:01:00.0", "0x2330", "NVIDIA H100 80GB HBM3", 81559, "580.65.06"),) * 8
    facts = Facts(
        None,
        {
            "platform": "linux-x64",
            "distribution": Distribution("ubuntu"),
            "package_dir": Path("/packages"),
            "gpus": gpus,
            "gpu_count": 8,
            "loopback": True,
        },
    )
    planner = Planner(profile, run_variables(facts, Path("/results/r"), "experiment", "host"), Secrets())
    planner.validate()
    commands = [
        step.command
        for element in leaves(profile.actions)
        if (plan := planner.plan(element, facts).plan)
        for step in plan.steps
    ]
    shown = "\n".join(commands)
    expected = {
        "GPU-BURN": "./gpu_burn -tc 300",
        "NCCL-TESTS": "all_reduce_perf -b 8 -e 8G -f 2 -g 8",
        "NVBANDWIDTH": "nvbandwidth --json",
        "VLLM-BENCH-SERVE": "--base-url {ServiceUrl:vllm} --model {ServiceModel:vllm}",
    }
    assert expected[example] in shown


def test_every_example_is_tested_and_listed() -> None:
    names = {name.removeprefix("examples/").removesuffix(".yaml") for name in installed() if "/" in name}
    assert names == {"FIO", "SYSBENCH", "STRESS-NG", "IPERF3", "WEB-SERVER", *GPU_EXAMPLES}
