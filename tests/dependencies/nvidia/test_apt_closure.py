"""A driver with all its dependencies, solved by the real apt, in a repository of several branches."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import HostError
from agent.facts import Facts
from agent.facts.linux import Distribution
from agent.facts.package_solutions import apt_preferences, read_apt
from agent.facts.services import ServiceState
from agent.facts.unattended_upgrades import UnattendedUpgrades
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.nvidia.driver_packages import DriverPackages
from dependencies.nvidia.packages import upstream
from dependencies.nvidia.wish import wish_of
from tests.dependencies.apt_lab import AptHost, apt_host

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.component import Plan
    from dependencies.nvidia.candidates import Candidate

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="needs apt")

H100, B200 = "0x2330", "0x2901"


def facts_of(host: AptHost, distribution: str, gpu: str = H100, switches: int = 4) -> Facts:
    release = {"ubuntu": "24.04", "debian": "12"}[distribution]
    modelled = {
        "system_root": host.root,
        "root": True,
        "distribution": Distribution(distribution, release, name=distribution),
        "architecture": "x86_64",
        "kernel": "6.8.0-1-generic",
        "kernel_headers": True,
        "gpus": (),
        "gpu_count": 0,
        "gpu_processes": (),
        "nvswitch_count": switches,
        "nvswitch_bridges": 0,
        "secure_boot": False,
        "module_key_enrolled": None,
        "nvidia_module": None,
        "in_container": False,
        "apt_lists_age_s": 10,
        "unattended_upgrades": UnattendedUpgrades(enabled=False),
        "service[nvidia-fabricmanager]": ServiceState(active=True, enabled=True),
    }
    return Facts(host, modelled)


def plan_of(facts: Facts, version: str, **parameters: Any) -> Plan:
    values = {
        "LinuxDriverVersion": version,
        "CudaRequired": False,
        "RequireGpu": False,
        "AddRepository": False,
        "Hold": False,
        **parameters,
    }
    component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(values))
    return component.plan(facts.fresh())


def solved(facts: Facts, version: str, **parameters: Any) -> Candidate:
    """Return the candidate that the plan would install."""
    values = {"LinuxDriverVersion": version, **parameters}
    component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(values))
    fresh = facts.fresh()
    wish, _ = wish_of(component._wish_parameters(), fresh)
    chosen = DriverPackages(wish).chosen(fresh)
    assert chosen, DriverPackages(wish).refusal(fresh).details
    return chosen


def apply(host: AptHost, facts: Facts, version: str, **parameters: Any) -> Candidate:
    """Install the plan's packages on the host: apt's own solution for the plan's command."""
    chosen = solved(facts, version, **parameters)
    step = next(one for one in plan_of(facts, version, **parameters).steps if one.name == "driver")
    answer = host.output(["sh", "-c", f"{step.command} --simulate 2>&1 || echo E: failed"])
    solution = read_apt(answer)
    assert not solution.problem, solution.problem
    assert solution.changes.items() == (chosen.changes.items()), "the plan shows all that apt changes"
    host.install(solution.changes, solution.removed)
    return chosen


@pytest.mark.parametrize(
    ("definitions", "distribution", "version"),
    [
        (("nvidia_ubuntu_580",), "ubuntu", "580.65.06"),
        (("nvidia_ubuntu_580",), "ubuntu", "580.173.02"),
        (("nvidia_ubuntu_580",), "ubuntu", "580"),
        (("nvidia_ubuntu_580", "nvidia_ubuntu_590"), "ubuntu", "580.173.02"),
        (("nvidia_ubuntu_580", "nvidia_ubuntu_590"), "ubuntu", "595.91.07"),
        (("nvidia_ubuntu_590",), "ubuntu", "590"),
        (("nvidia_ubuntu_590",), "ubuntu", ""),
        (("ubuntu_archive",), "ubuntu", "580"),
        (("ubuntu_archive", "nvidia_ubuntu_580"), "ubuntu", "580.126.20"),
        (("ubuntu_archive", "nvidia_ubuntu_580"), "ubuntu", "580.173.02"),
        (("nvidia_debian",), "debian", "580"),
        (("nvidia_debian",), "debian", "595.71.05"),
    ],
)
@pytest.mark.parametrize("display", [False, True], ids=["compute", "display"])
def test_every_package_of_the_driver_has_its_version(
    tmp_path: Path,
    definitions: tuple[str, ...],
    distribution: str,
    version: str,
    display: bool,  # noqa: FBT001
) -> None:
    host = apt_host(tmp_path / "root", *definitions)
    facts = facts_of(host, distribution)
    if display:
        host.install({"xserver-xorg-core": "1:99"})
    chosen = apply(host, facts, version)
    assert chosen.version.startswith(version)
    assert {upstream(full) for full in chosen.packages.values()} == {chosen.version}
    assert any("fabricmanager" in name for name in chosen.packages)
    if not display:
        assert not [name for name in chosen.packages if name.startswith("xserver")], "it only computes"
    assert plan_of(facts, version).nothing_to_do


def test_a_drift_of_one_package_is_seen_and_repaired(tmp_path: Path) -> None:
    host = apt_host(tmp_path / "root", "nvidia_ubuntu_580")
    facts = facts_of(host, "ubuntu")
    apply(host, facts, "580.173.02")
    for name in ("nvidia-firmware-580", "nvidia-modprobe", "libnvidia-gpucomp-580"):
        host.install({name: "580.178.04-1ubuntu1"})
        step = plan_of(facts, "580.173.02").steps[0]
        assert f"{name} is 580.178.04, the driver 580.173.02" in step.reason
        apply(host, facts, "580.173.02")
        assert plan_of(facts, "580.173.02").nothing_to_do


def test_what_is_only_unpacked_is_repaired_before_it_is_solved(tmp_path: Path) -> None:
    """Repair before solving: apt finds no solution while a package lacks its dependencies."""
    host = apt_host(tmp_path / "root", "nvidia_ubuntu_580")
    facts = facts_of(host, "ubuntu")
    host.install({"nvidia-dkms-580-open": "580.173.02-1ubuntu1"})
    status = host.root / "status"
    status.write_text(status.read_text().replace("install ok installed", "install ok unpacked"))
    assert [step.name for step in plan_of(facts, "580.173.02").steps][:2] == ["repair", "driver"]
    status.write_text("")
    apply(host, facts, "580.173.02")
    assert plan_of(facts, "580.173.02").nothing_to_do


def test_from_one_branch_to_another_and_back(tmp_path: Path) -> None:
    """Remove packages with the branch in their name in the same call, since names change at 590."""
    host = apt_host(tmp_path / "root", "nvidia_ubuntu_580", "nvidia_ubuntu_590")
    facts = facts_of(host, "ubuntu")
    for version in ("580.65.06", "595.91.07", "580.173.02"):
        apply(host, facts, version)
        assert plan_of(facts, version).nothing_to_do
        installed = facts.fresh()
        found = DriverPackages(wish_of_version(installed, version)).installed(installed)
        assert found
        assert {upstream(full) for full in found.packages.values()} == {version}


def wish_of_version(facts: Facts, version: str) -> Any:
    component = NvidiaCudaInstallation(
        NvidiaCudaInstallation.Parameters.model_validate({"LinuxDriverVersion": version})
    )
    return wish_of(component._wish_parameters(), facts)[0]


def test_a_pin_of_nvidia_s_package_does_not_stand_in_the_way(tmp_path: Path) -> None:
    host = apt_host(tmp_path / "root", "nvidia_ubuntu_590")
    pin = "Package: *nvidia*\nPin: version 610.57.04-*\nPin-Priority: 1000\n"
    (host.root / "etc/apt/preferences.d/nvidia-driver-pin").write_text(pin)
    chosen = apply(host, facts_of(host, "ubuntu"), "595.91.07")
    assert set(map(upstream, chosen.packages.values())) == {"595.91.07"}


def test_apt_s_own_words_are_in_the_refusal(tmp_path: Path) -> None:
    host = apt_host(tmp_path / "root", "nvidia_debian", without=("nvidia-kernel-support", "580.105.08-1"))
    with pytest.raises(HostError, match=r"no repository has driver 580 as a whole") as error:
        plan_of(facts_of(host, "debian"), "580")
    assert "nvidia-kernel-support" in "\n".join(error.value.details)
    assert "such as 610.43.02" in (error.value.remedy or "")
    assert not any(line.startswith("whole: 580") for line in error.value.details)


def test_what_apt_says() -> None:
    text = """\
NOTE: This is only a simulation!
Remv libnvidia-compute-550 [550.1-1]
Inst libcuda1:amd64 [535.1-1] (535.2-1 Debian:12.9/stable [amd64]) []
Inst dkms (3.0.10-8 Debian:12.9/stable [all])
Conf dkms (3.0.10-8 Debian:12.9/stable [all])
"""
    solution = read_apt(text)
    assert solution.changes == {"libcuda1": "535.2-1", "dkms": "3.0.10-8"}
    assert solution.removed == ("libnvidia-compute-550",)
    refused = """\
Reading package lists...
The following packages have unmet dependencies:
 nvidia-driver : Depends: nvidia-driver-bin (= 550.90.12-1) but 560.35.03-1 is to be installed
E: Unable to correct problems, you have held broken packages.
E: exit 100
"""
    assert read_apt(refused).problem[0].strip().startswith("nvidia-driver : Depends: nvidia-driver-bin")
    assert not any("exit" in line for line in read_apt(refused).problem)
    assert read_apt(None).problem
    assert apt_preferences({"a": "1-1"}) == "Package: a\nPin: version 1-1\nPin-Priority: 1001\n"
