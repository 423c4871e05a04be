"""The profile that sets up a GPU host, and the disks in VirtualClient's own profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.registry import known_types
from agent.core.secrets import Secrets
from agent.facts import Facts
from agent.facts.disks import BlockDevice, Signature
from agent.facts.linux import Distribution
from agent.planning.planner import Planner, Standing, leaves
from agent.planning.variables import run_variables
from agent.profile import Profile, Source, find, load_sources
from agent.run.reboot import allows_reboot
from dependencies.amd.rocm_installation import AmdRocmInstallation

if TYPE_CHECKING:
    from agent.planning.planner import PlannedComponent

SETUP = "SETUP-GPU-NVIDIA"
ROOT = BlockDevice("/dev/nvme0n1p2", "part", 10**12, "ext4", "r", mount_points=("/",))
SYSTEM = BlockDevice("/dev/nvme0n1", "disk", 10**12, children=(ROOT,))
EMPTY = BlockDevice("/dev/nvme1n1", "disk", 4 * 10**12)
MOUNTED = BlockDevice("/dev/nvme1n1", "disk", 4 * 10**12, "ext4", "d", mount_points=("/data",))

DISKS_OF_PERF_GPU_MLPERF = {
    "Description": "As PERF-GPU-MLPERF.json begins.",
    "Parameters": {"DiskFilter": "SizeGreaterThan:1000gb"},
    "Dependencies": [
        {"Type": "FormatDisks", "Parameters": {"Scenario": "InitializeDisks"}},
        {
            "Type": "MountDisks",
            "Parameters": {"Scenario": "CreateMountPoints", "DiskFilter": "$.Parameters.DiskFilter"},
        },
    ],
}


def planner(profile: Profile, facts: Facts) -> Planner:
    variables = run_variables(facts, Path("/results/r"), "experiment", "host")
    return Planner(profile, variables, Secrets())


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"LinuxDriverVersion": "570", "FabricManager": "true", "DockerUsers": "ann,bob", "Proof": "false"},
        {"CudaRequired": "true", "LinuxCudaVersion": "12.4", "DockerVersion": "27.3.1"},
    ],
)
def test_the_profile_is_valid_with_its_parameters(parameters: dict[str, str]) -> None:
    wanted = {"DockerInstallation", "NvidiaCudaInstallation", "NvidiaContainerToolkitInstallation"}
    if not wanted <= set(known_types()):
        pytest.skip("the installed distribution is older than this tree: install it again")
    profile = load_sources([find(SETUP)], overrides=parameters)
    made = planner(profile, Facts(None, {"platform": "linux-x64", "package_dir": Path("/p")}))
    made.validate()
    kinds = [type(made.build(element)).__name__ for element in leaves(profile.dependencies)]
    assert kinds == ["DockerInstallation", "NvidiaCudaInstallation", "NvidiaContainerToolkitInstallation"]
    assert not allows_reboot(profile.metadata, profile.parameters)


def test_amds_profile_is_valid() -> None:
    if "AmdRocmInstallation" not in known_types():
        pytest.skip("the installed distribution is older than this tree: install it again")
    profile = load_sources([find("SETUP-GPU-AMD")], overrides={"RocmVersion": "7.0.2", "GpuUsers": "ann"})
    made = planner(profile, Facts(None, {"platform": "linux-x64", "package_dir": Path("/p")}))
    made.validate()
    _, rocm = (made.build(element) for element in leaves(profile.dependencies))
    assert isinstance(rocm, AmdRocmInstallation)
    assert (rocm.parameters.asked, rocm.parameters.members) == ("7.0.2", ("ann",))


def test_the_profile_may_allow_the_reboot() -> None:
    profile = load_sources([find(SETUP)], overrides={"AllowReboot": "true"})
    assert allows_reboot(profile.metadata, profile.parameters)


def plan_disks(*disks: BlockDevice, **facts: Any) -> list[PlannedComponent]:
    values = {
        "disks": disks,
        "text[/etc/fstab]": "",
        "root": True,
        "platform": "linux-x64",
        "distribution": Distribution("ubuntu"),
        **facts,
    }
    source = Source("PERF", "PERF.json", json.dumps(DISKS_OF_PERF_GPU_MLPERF), "json")
    host = Facts(None, values)
    return planner(load_sources([source]), host).preview(host, only_dependencies=True)


def test_virtualclient_s_profile_formats_nothing_and_says_so() -> None:
    formatted, mounted = plan_disks(SYSTEM, EMPTY, **{"signatures[/dev/nvme1n1]": ()})
    assert formatted.standing is mounted.standing is Standing.NOTHING_TO_DO
    assert "no disk is named under Disks" in formatted.note
    assert mounted.note == "/dev/nvme1n1 holds no file system"


def test_virtualclient_s_profile_accepts_a_disk_that_is_mounted() -> None:
    found = {"signatures[/dev/nvme1n1]": (Signature("ext4", "d"),)}
    _, mounted = plan_disks(SYSTEM, MOUNTED, **found)
    assert mounted.note == "/dev/nvme1n1 is mounted at /data"


def test_virtualclient_s_profile_is_refused_where_no_disk_is_large_enough() -> None:
    _, mounted = plan_disks(SYSTEM)
    assert mounted.standing is Standing.REFUSED
    assert mounted.error
    assert "no disk fits the filter SizeGreaterThan:1000gb" in mounted.error.message
