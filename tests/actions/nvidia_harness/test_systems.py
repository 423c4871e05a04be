"""The files written for a host; the stand-in's detection code runs on this host."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from actions.nvidia_harness.benchmarks import benchmark
from actions.nvidia_harness.layouts import layout_of
from actions.nvidia_harness.parameters import MLPerfParameters
from actions.nvidia_harness.scratch import Scratch
from actions.nvidia_harness.systems import SystemSections
from actions.nvidia_harness.workspace import Test, Workspace
from agent.core.errors import ActionFailedError
from agent.facts.users import Account
from gpu_configs.systems import GpuSet
from tests.lab.harness.nvidia_harness import write_repository

if TYPE_CHECKING:
    from pathlib import Path

    from actions.nvidia_harness.harness_container import HarnessContainer

H100 = GpuSet("NVIDIA H100 80GB HBM3", 81_559, 4, "", "0x2330")
OTHER_CPU = "AMD EPYC 9684X"


@dataclass
class ThisHost:
    """Runs the container's commands; or returns the given answers as long as there are any."""

    folder: Path
    answers: list[str] = field(default_factory=list)
    context: Any = field(default_factory=lambda: SimpleNamespace(log="a log"))

    def run(self, command: list[str], *, title: str, env: dict[str, str] | None = None) -> SimpleNamespace:
        assert title
        if self.answers:
            return SimpleNamespace(stdout=self.answers.pop(0))
        done = subprocess.run(
            [sys.executable, *command[1:]],
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=True,
        )
        return SimpleNamespace(stdout=done.stdout)


def sections(
    folder: Path,
    version: str = "v4.1",
    *,
    answers: tuple[str, ...] = (),
    config_ver: str = "default",
    **asked: Any,
) -> SystemSections:
    if not folder.exists():
        write_repository(folder, version)
    nvidia = folder / "closed" / "NVIDIA"
    mlperf_round, layout = layout_of(version, nvidia)
    account = Account("ann", os.getuid(), os.getgid(), "/home/ann")
    one = benchmark("bert")
    workspace = Workspace(
        account, False, False, nvidia, mlperf_round, layout, Scratch(folder / "scratch"), one, (one,), H100
    )  # fmt: skip
    harness = cast("HarnessContainer", ThisHost(nvidia, list(answers)))
    parameters = MLPerfParameters.model_validate({"model": "bert", **asked})
    return SystemSections(harness, workspace, parameters, (Test(config_ver, "Offline", "performance"),))


def wish(folder: Path, **values: str) -> None:
    for name, value in values.items():
        (folder / "closed" / "NVIDIA" / "standin" / name).write_text(value)


def test_what_is_only_a_starting_point_is_said_each_time(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    sections(folder)
    wish(folder, cpu=OTHER_CPU, count="4")
    first = sections(folder).ensure()
    again = sections(folder).ensure()
    assert first[0] == again[0]
    caveat = "a scaled starting point from H100_SXM_80GBx8"
    assert any(caveat in note for note in first[1])
    assert any(caveat in note for note in again[1])
    assert any(note.startswith("added to configs/bert/Offline/custom.py") for note in first[1])
    assert any(note.startswith("kept in configs/bert/Offline/custom.py") for note in again[1])


@pytest.mark.parametrize("version", ["v4.1", "v5.1"])
def test_settings_that_nvidia_has_are_not_replaced_silently(tmp_path: Path, version: str) -> None:
    folder = tmp_path / "repository"
    asked = sections(folder, version, System="H100_SXM_80GBx8")
    if version == "v4.1":
        wish(folder, count="8")
        path = folder / "closed/NVIDIA/configs/bert/Offline/__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "@ConfigRegistry.register(HarnessType.Custom, AccuracyTarget.k_99, PowerSetting.MaxP)\n"
            "class Mine(OfflineGPUBaseConfig):\n    system = KnownSystem.H100_SXM_80GBx8\n"
        )
    else:
        wish(folder, matched="H100-SXM-80GBx8")
        path = folder / "closed/NVIDIA/configs/H100-SXM-80GBx8/Offline/bert.py"
        path.parent.mkdir(parents=True)
        path.write_text("EXPORTS = {}\n")
    with pytest.raises(ActionFailedError, match="has its own settings of bert Offline") as raised:
        asked.ensure()
    assert "RunArgs" in raised.value.remedy
    assert sections(folder, version).ensure()[1] == []


def test_a_system_that_was_added_and_does_not_match_is_no_success(tmp_path: Path) -> None:
    told = (
        "vcagent-detected a host\nvcagent-matched None\nvcagent-known A B\n"
        "vcagent-host host_cpu_conf=None, host_mem_conf=None\n"
    )
    with pytest.raises(ActionFailedError, match="calls this host unknown, not H100_80GB_HBM3x4 as added"):
        sections(tmp_path / "repository", answers=(told, told)).ensure()


def test_what_nvidia_alone_knows_is_left_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    sections(folder)
    wish(folder, count="8")
    assert sections(folder, config_ver="triton").ensure() == ("H100_SXM_80GBx8", [])
    wish(folder, cpu=OTHER_CPU)
    with pytest.raises(ActionFailedError, match="ConfigVer triton is for systems that NVIDIA's code knows"):
        sections(folder, config_ver="triton").ensure()


def test_code_that_tells_nothing_before_it_is_built(tmp_path: Path) -> None:
    assert not sections(tmp_path / "repository", answers=("ModuleNotFoundError",)).told()
    assert sections(tmp_path / "repository").told()
