"""What the steps of an installation of amdgpu and ROCm run, and how they are taken back."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import entry_points
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from agent.core.errors import DependencyFailedError, HostError, LiftedBy
from agent.core.yaml_data import yaml_data
from agent.facts import Facts
from agent.facts.dkms import AMDGPU_MODULE_FILE, ModuleBuild
from agent.facts.gpu_processes import AMD_GPU_PROCESSES, GpuProcess
from agent.facts.linux import Distribution
from agent.facts.users import members_of
from dependencies.amd.packages import AmdPackages
from dependencies.amd.releases import NEWEST, RADEON, RocmRelease, module_version, release_in_file
from dependencies.amd.rocm_installation import AmdRocmInstallation
from dependencies.packages.package_managers import manager_of
from dependencies.packages.version_lock import AMD_LOCKS, foreign_locks, with_locks
from tests.agent.facts.recorded_host import RecordedHost
from tests.dependencies.nvidia.test_nvidia_driver_steps import Processes, run
from tests.dependencies.test_cases import facts_of

if TYPE_CHECKING:
    from agent.component.component import Step

CASES = Path(__file__).parents[1] / "cases/amd_rocm_installation"
NAMES = ("amdgpu-dkms", "amdgpu-dkms-firmware", "rocm", "rocm-core")
NOBLE = Distribution("ubuntu", "24.04", "noble", ("debian",), "Ubuntu 24.04")


def facts(base: str, root: Path, **changes: Any) -> Facts:
    """Return a host of the cases whose files are below another root."""
    written = yaml_data((CASES / f"_{base}.yaml").read_text())
    values = {
        re.sub(r"\[(?=/etc/(?:apt/[ap]|dnf))", f"[{root}", key): value for key, value in written.items()
    }
    return facts_of(values | {"system_root": str(root), "package_lock": None} | changes)


def steps(host: Facts, **parameters: Any) -> dict[str, Step]:
    component = AmdRocmInstallation(AmdRocmInstallation.Parameters.model_validate(parameters))
    return {step.name: step for step in component.plan(host).steps}


def test_what_was_installed_is_held_and_recorded(tmp_path: Path) -> None:
    hold = steps(facts("fresh", tmp_path))["hold"]
    processes, after = Processes(), facts("healthy", tmp_path)
    assert run(hold, after, tmp_path, processes).message == "4 packages"
    assert any(line.endswith(f"hold {' '.join(NAMES)}") for line in processes.commands)
    record = tmp_path / "etc/apt/apt.conf.d/52vcagent-amdgpu"
    text = yaml_data((CASES / "_healthy.yaml").read_text())[
        f"text[{Path('/') / record.relative_to(tmp_path)}]"
    ]
    assert record.read_text() == text


def test_an_installation_is_taken_back(tmp_path: Path) -> None:
    planned = steps(facts("fresh", tmp_path))
    after = facts("healthy", tmp_path)
    install, hold = planned["install"].undo, planned["hold"].undo
    assert install
    assert hold
    (remove,) = AmdRocmInstallation.undo(install, after).steps
    assert remove.command == f"dpkg --remove {' '.join(NAMES)}"
    unhold, record = AmdRocmInstallation.undo(hold, after).steps
    assert unhold.command == f"apt-mark unhold {' '.join(NAMES)}"
    assert record.command == f"rm {tmp_path}/etc/apt/apt.conf.d/52vcagent-amdgpu"
    (pin,) = AmdRocmInstallation.undo(planned["pin"].undo or {}, after).steps
    assert pin.command == f"rm {tmp_path}/etc/apt/preferences.d/vcagent-amd"
    fresh = facts("fresh", tmp_path)
    assert AmdRocmInstallation.undo(install, fresh).nothing_to_do
    assert AmdRocmInstallation.undo(hold, fresh).nothing_to_do


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    older = {
        "amdgpu-dkms": ["1:6.8.5.60204-2070768.24.04", "ii"],
        "rocm-core": ["6.2.4.60204-139~24.04", "ii"],
    }
    host = facts("healthy", tmp_path, amdgpu_module=["6.8.5"], rocm_version="6.2.4")
    host._modelled["installed_packages"] = facts_of({"installed_packages": older})._modelled[
        "installed_packages"
    ]
    planned = steps(host, Version="7.2.4")
    after = facts("healthy", tmp_path)
    (remove,) = AmdRocmInstallation.undo(planned["install"].undo or {}, after).steps
    assert remove.command == "dpkg --remove amdgpu-dkms-firmware rocm"
    # All was held by vcagent before: neither the holds nor their record are this run's.
    assert AmdRocmInstallation.undo(planned["hold"].undo or {}, after).nothing_to_do


def test_groups_and_locks_are_taken_back(tmp_path: Path) -> None:
    joined = steps(facts("healthy", tmp_path, **{"account[ann]": True}), Username="ann")["group-render-ann"]
    member = facts("healthy", tmp_path, **{"members[render]": ["ann"]})
    (leave,) = AmdRocmInstallation.undo(joined.undo or {}, member).steps
    assert leave.command == "gpasswd --delete ann render"
    locks = with_locks("other-1:2-3.*\n", {"amdgpu-dkms": "1:6.16.6-2255209.el9"}, AMD_LOCKS)
    path = "/etc/dnf/plugins/versionlock.list"
    host = facts_of({f"text[{path}]": locks})
    (unlock,) = AmdRocmInstallation.undo({"versionlock": path, "begin": AMD_LOCKS}, host).steps
    assert unlock.name == "unlock"
    assert AmdRocmInstallation.undo({"versionlock": path}, host).nothing_to_do  # NVIDIA's part
    both = with_locks(locks, {"nvidia-driver": "3:550-1.el9"})
    assert with_locks(both, {}, AMD_LOCKS) == with_locks("other-1:2-3.*\n", {"nvidia-driver": "3:550-1.el9"})
    assert not foreign_locks(both, {"amdgpu-dkms": "1:6.16.6-2255209.el9"}, {})


def test_a_module_that_was_not_built_fails_the_step(tmp_path: Path) -> None:
    install = steps(facts("rocky", tmp_path), Version="7.1.1")["install"]
    build = ModuleBuild(
        "amdgpu", "6.16.6", "/var/lib/dkms/make.log", "x.c:3: error: implicit declaration of y"
    )
    there = {"amdgpu-dkms": ["1:6.16.6-2255209.el9", "ii"]}
    after = facts("rocky", tmp_path, amdgpu_module_file="", installed_packages=there)
    after._modelled["dkms_builds"] = (build,)
    with pytest.raises(DependencyFailedError, match=r"amdgpu/6\.16\.6 could not be built") as failure:
        run(install, after, tmp_path, Processes())
    assert "too old for this kernel" in (failure.value.remedy or "")
    whole = facts("healthy", tmp_path)
    assert run(install, whole, tmp_path, Processes()).message.startswith("done")


def test_a_module_that_does_not_load_says_why(tmp_path: Path) -> None:
    load = steps(facts("healthy", tmp_path, amdgpu_module=None))["load"]
    processes = Processes(
        failing={"modprobe": ("No such device",)}, output="amdgpu: Fatal error during GPU init\n"
    )
    with pytest.raises(DependencyFailedError, match="amdgpu cannot be loaded") as failure:
        run(load, facts("healthy", tmp_path), tmp_path, processes)
    assert failure.value.details == ("No such device", "amdgpu: Fatal error during GPU init")


def test_a_reboot_is_asked_for_unless_the_module_is_there(tmp_path: Path) -> None:
    reboot = steps(facts("healthy", tmp_path, amdgpu_module=["6.8.5"]), MinimumDriver="6.14")["reboot"]
    assert run(reboot, facts("healthy", tmp_path, amdgpu_module=["6.8.5"]), tmp_path, Processes()).reboot
    assert not run(reboot, facts("healthy", tmp_path), tmp_path, Processes()).reboot


def test_refusals_say_what_lifts_them(tmp_path: Path) -> None:
    for changes, lifted_by in (
        ({"amd_gpus": []}, LiftedBy.NOTHING),
        ({"in_container": True}, LiftedBy.NOTHING),
        ({"kernel_headers": False, "available_packages": []}, LiftedBy.SYSTEM),
        ({"distribution": {"id": "debian", "version": "11"}}, LiftedBy.DRIVER),
    ):
        with pytest.raises(HostError) as refusal:
            steps(facts("fresh", tmp_path, **changes))
        assert refusal.value.lifted_by is lifted_by


@pytest.mark.parametrize(
    ("version", "folder", "code", "driver", "driver_code", "module"),
    [
        ("6.4.1", "6.4.1", "60401", "6.4.1", "60401", "6.12.12"),
        ("6.2", "6.2", "60200", "6.2", "60200", "6.8.5"),
        ("5.5", "5.5", "50500", "5.5", "50500", ""),
        ("7.0.0", "7.0", "70000", "30.10", "30100000", "6.14.14"),
        ("7.0.1", "7.0.1", "70001", "30.10.1", "30100100", "6.14.14"),
        ("7.1.1", "7.1.1", "70101", "30.20.1", "30200100", "6.16.6"),
        ("7.2.4", "7.2.4", "70204", "30.30.4", "30300400", "6.16.13"),
    ],
)
def test_a_release_names_its_folders_and_packages(  # noqa: PLR0917 - one row of a table
    version: str, folder: str, code: str, driver: str, driver_code: str, module: str
) -> None:
    release = RocmRelease.of(version)
    found = (release.folder, release.code, release.driver, release.driver_code, release.module)
    assert found == (folder, code, driver, driver_code, module)


def test_the_driver_may_be_named() -> None:
    assert RocmRelease.of("7.2.2", "30.30.2").apt_folders(NOBLE)["amdgpu"] == "amdgpu/30.30.2/ubuntu"
    assert "graphics" not in RocmRelease.of("7.0.1").apt_folders(NOBLE)
    assert RocmRelease.of("7.2.4").codename(Distribution("debian", "12.9")) == "jammy"
    assert not RocmRelease.of("6.1").apt_folders(NOBLE)
    el = RocmRelease.of("7.2.4").rpm_folders(Distribution("rhel", "10.1"))
    assert el["amdgpu"] == "amdgpu/30.30.4/el/10/main/x86_64"


@pytest.mark.parametrize(
    ("address", "version"),
    [
        (
            "https://repo.radeon.com/amdgpu-install/6.3.3/ubuntu/jammy/amdgpu-install_6.3.60303-1_all.deb",
            "6.3.3",
        ),
        ("amdgpu-install_5.5.50500-1_all.deb", "5.5.0"),
        ("amdgpu-install-7.2.4.70204-1.el9.noarch.rpm", "7.2.4"),
        ("amdgpu-install.deb", ""),
    ],
)
def test_amds_installer_names_its_release(address: str, version: str) -> None:
    assert release_in_file(address) == version


def test_versions_of_packages_hold_that_of_the_module() -> None:
    assert module_version("1:6.16.13.30300400-2341068.24.04") == "6.16.13"
    assert module_version("1:6.12.12.60401-2164967.24.04") == "6.12.12"
    assert module_version("6.16.6-2255209.el10") == "6.16.6"


def test_parameters_are_checked() -> None:
    for wrong in ({"LinuxInstallationFile": "driver.deb"}, {"Version": "newest"}, {"Usernames": "a b"}):
        with pytest.raises(ValidationError):
            AmdRocmInstallation.Parameters.model_validate(wrong)
    with pytest.raises(ValidationError, match="not the name of a user"):
        AmdRocmInstallation.Parameters.model_validate({"Usernames": "ann,-x"})


def test_virtualclients_type_is_known() -> None:
    points = {point.name: point.value for point in entry_points(group="vcagent.components")}
    if "AmdRocmInstallation" not in points:
        pytest.skip("the installed distribution is older than this tree: install it again")
    assert points["AMDGPUDriverInstallation"] == points["AmdRocmInstallation"]


def test_the_facts() -> None:
    kernel = "6.8.0-1021-azure"
    files = {
        "/proc/4711/comm": "vllm\n",
        "/sys/class/kfd/kfd/proc/4711/pasid": "32770\n",
        "/usr/sbin/modinfo": "",
        f"/lib/modules/{kernel}/modules.dep": "",
    }
    outputs = {
        "getent group render": "render:x:993:ann,bob\n",
        "uname -r": f"{kernel}\n",
        f"modinfo -k {kernel} -F version amdgpu": "6.16.13\n",
    }
    found = Facts(RecordedHost(files, outputs))
    assert found[AMD_GPU_PROCESSES] == (GpuProcess(4711, "vllm"),)
    assert found[members_of("render")] == ("ann", "bob")
    assert found[members_of("video")] is None
    assert found[AMDGPU_MODULE_FILE] == "6.16.13"


@pytest.mark.skipif(which("apt-get") is None or which("dpkg-query") is None, reason="needs apt")
def test_apt_reads_the_patterns_of_versions() -> None:
    """Use a package of this host as AMD's: its version is requested in the form of the wishes."""
    release = RocmRelease.of(NEWEST)
    packages = AmdPackages(
        release,
        manager_of(facts_of({"package_manager": "apt"}), "dpkg"),
        RADEON,
        None,
        add_repository=True,
        hold=True,
        lock_timeout_s=0,
    )
    (wish,) = packages.rocm_wishes(["dpkg"])
    query = ["dpkg-query", "--show", "--showformat=${Package}\t${Version}\n"]
    told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    lines = (line.split("\t") for line in told.splitlines())
    found = (
        (line[0], match[1])
        for line in lines
        if len(line) > 1 and (match := re.fullmatch(r"[\d:]+\.(\d+)-[\w.~+]*\d", line[1]))
    )
    name, code = next(found)
    pattern = (wish.version or "").replace(release.code, code)

    def says(version: str) -> str:
        command = ["apt-get", "--simulate", "--quiet", "install", f"{name}={version}"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    assert "was not found" not in says(pattern)
    assert "was not found" in says(pattern.replace(code, f"{code}9999"))
