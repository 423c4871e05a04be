"""The table of distributions in the documentation agrees with the plans."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import HostError
from agent.core.yaml_data import yaml_data
from agent.facts.linux import Distribution
from agent.fleet.commands import NEWER_PYTHON
from dependencies.amd.releases import NEWEST, RocmRelease
from dependencies.docker.sources import DOWNLOADS, docker_source
from dependencies.nvidia.container_toolkit_installation import NvidiaContainerToolkitInstallation
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.nvidia.repository import repository_folder
from tests.dependencies.test_cases import facts_of

if TYPE_CHECKING:
    from agent.facts import Facts

PAGE = Path(__file__).parents[2] / "docs/distributions.md"
CASES = Path(__file__).parent / "cases/nvidia_cuda_installation"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| [a-z]", line) and not line.startswith("| distribution")
]
GPU = {"bus_id": "0000:3b:00.0", "pci_id": "0x2330"}
RUNFILE = "/data/cuda_12.4.0_550.54.14_linux.run"
TEXTS = {
    f"text[{path}]": None
    for path in ("/etc/profile.d/vcagent-cuda.sh", "/etc/ld.so.conf.d/vcagent-cuda.conf")
}
LIKE = {
    "sles": ("suse",),
    "ubuntu": ("debian",),
    "rocky": ("rhel",),
    "almalinux": ("rhel",),
    "ol": ("fedora",),
}


def described(identifier: str, version: str) -> Distribution:
    return Distribution(identifier, version, "codename", LIKE.get(identifier, ()), f"{identifier} {version}")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_row_of_the_table(row: list[str]) -> None:
    identifier, version, manager, driver, _, docker, *_ = row
    distribution = described(identifier, version)
    source = docker_source(
        "auto", distribution, machine="x86_64", manager=manager, downloads=DOWNLOADS, key=None
    )
    assert source.kind == docker

    base = yaml_data((CASES / f"_{'fresh' if manager == 'apt' else 'rocky'}.yaml").read_text())
    offers = {"package_offers[nvidia]": [], "rpm_driver_offers": ["dkms 3.2.1 epel"], "rpm_repositories": {}}
    facts = facts_of(base, offers, {"nvswitch_count": 0, "package_manager": manager, "apt_lists_age_s": 10})
    facts._modelled["distribution"] = distribution
    facts._modelled.setdefault("keyring[/etc/apt/keyrings/vcagent-nvidia-cuda.gpg]", None)
    parameters = {"LinuxDriverVersion": "580", "CudaRequired": False, "Hold": False}
    component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(parameters))
    how, _, what = driver.partition(" ")
    if how == "repository":
        assert repository_folder(distribution) == what
        steps = {step.name: step.command for step in component.plan(facts).steps}
        assert f"/{what}/x86_64" in steps["key"]
        assert "driver" in steps
        return
    with pytest.raises(HostError, match=r"drivers are installed by apt") as error:
        component.plan(facts)
    assert driver.removeprefix("by hand: ") in (error.value.remedy or "")


def host_of(row: list[str], *changes: dict[str, Any]) -> Facts:
    """Return a host of a row's distribution: fresh, with NVSwitches and with NVIDIA's repository."""
    identifier, version, manager, *_ = row
    base = yaml_data((CASES / f"_{'fresh' if manager == 'apt' else 'rocky'}.yaml").read_text())
    runfile = {
        f"distrust[{RUNFILE}]": "",
        f"exists[{RUNFILE}]": True,
        "cuda_toolkit[/opt/cuda]": None,
        "exists[/usr/local/cuda]": False,
        "link_target[/usr/local/cuda]": None,
    }
    others = {"names_in[/opt/cuda]": [], "mounts": [["/", 500000000000, 200000000000]]}
    common = {"package_manager": manager, "apt_lists_age_s": 10, "held_packages": [], **runfile, **others}
    facts = facts_of(base, common, TEXTS, *changes)
    facts._modelled["distribution"] = described(identifier, version)
    return facts


def planned(facts: Facts, **parameters: Any) -> dict[str, str]:
    """Return the commands of a plan, by the names of the steps."""
    given = {"LinuxDriverVersion": "580", "CudaRequired": False, "Hold": False, **parameters}
    component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(given))
    return {step.name: step.command for step in component.plan(facts).steps}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_fabric_manager_comes_with_the_driver(row: list[str]) -> None:
    """Offer both names in both branches, as far as they are real, and a newer branch beside them."""
    manager, driver, listed = row[2], row[3], row[4]
    if driver.startswith("by hand"):
        assert listed == "with the driver"
        with pytest.raises(HostError, match="drivers are installed by apt"):
            planned(host_of(row, {"nvswitch_count": 4}))
        installed = {"nvidia_module": ["580.126.09", True], "gpus": [{**GPU, "driver": "580.126.09"}]}
        with pytest.raises(HostError, match="the fabric manager does not run"):
            planned(host_of(row, {"nvswitch_count": 4}, installed))
        return
    names = dict(zip(("570.172.08", "580.126.09"), listed.split(", "), strict=True))
    family = "rpm" if manager == "dnf" else ("debian" if row[0] == "debian" else "branch")
    origin = "developer.download.nvidia.com" if manager == "dnf" else "NVIDIA"
    offers = [f"dkms 3.2.1 {origin}"]
    for version, name in {**names, "595.71.05": names["580.126.09"]}.items():
        end = f"3:{version}-1" if manager == "dnf" else f"{version}-1"
        offers += [f"{family}{flavour} {end} {origin}" for flavour in ("", "-open")]
        offers.append(f"{name} {version}-1 {origin}")
    fact = "rpm_driver_offers" if manager == "dnf" else "package_offers[nvidia]"
    for version, name in names.items():
        command = planned(host_of(row, {fact: offers, "nvswitch_count": 4}), LinuxDriverVersion=version)
        separator = "-" if manager == "dnf" else "="
        assert f" {name}{separator}{version}-1" in command["driver"]
        assert "595" not in command["driver"]
        assert "fabric-manager" in command


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_runfile_brings_the_toolkit_beside_a_working_driver(row: list[str]) -> None:
    assert row[7] == "yes"
    working = {"nvidia_module": ["580.126.09", True], "gpus": [{**GPU, "driver": "580.126.09"}]}
    given = {"CudaRequired": True, "LinuxLocalRunFile": RUNFILE, "CudaPath": "/opt/cuda"}
    steps = planned(host_of(row, working, {"nvswitch_count": 0, "gpu_count": 1}), **given)
    assert list(steps) == ["toolkit", "toolkit-environment"]
    assert steps["toolkit"].startswith(f"sh {RUNFILE} ")
    assert "--toolkit" in steps["toolkit"]
    assert "--driver" not in steps["toolkit"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_container_toolkit_is_installed_on_each(row: list[str]) -> None:
    identifier, version, manager, _, _, docker, kind, *_ = row
    base = yaml_data((CASES.parent / "nvidia_container_toolkit_installation/_docker.yaml").read_text())
    changes = {"package_manager": manager, "docker_engine": [docker, "27.3.1"], "rpm_repositories": {}}
    facts = facts_of(base, changes)
    facts._modelled["distribution"] = described(identifier, version)
    facts._modelled["keyring[/etc/pki/rpm-gpg/RPM-GPG-KEY-vcagent-nvidia-container-toolkit]"] = None
    component = NvidiaContainerToolkitInstallation(
        NvidiaContainerToolkitInstallation.Parameters.model_validate({"Cdi": "never"})
    )
    steps = {step.name: step for step in component.plan(facts).steps}
    folder = {"deb": "deb/amd64", "rpm": "rpm/x86_64"}[kind]
    assert f"libnvidia-container/stable/{folder}" in steps["repository"].reason
    assert re.match(manager.replace("apt", "apt-get"), steps["install"].command)
    assert "nvidia-container-toolkit" in steps["install"].command


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_folder_of_rocm(row: list[str]) -> None:
    identifier, version, manager, *_, folder = row
    distribution, release = described(identifier, version), RocmRelease.of(NEWEST)
    if manager == "apt":
        assert (release.codename(distribution) or "by hand") == folder
        return
    found = release.rpm_folders(distribution)
    assert (f"el {found['amdgpu'].split('/')[3]}" if found else "by hand") == folder


def test_the_remedy_for_an_old_python_is_that_of_the_page() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Python")[2]
    commands = {
        command
        for line in table.splitlines()
        if re.match(r"\| [A-Z]", line)
        for command in re.findall(r"`([^`]+)`", line)
        if not command.startswith("SUSEConnect")
    }
    assert len(commands) == 4
    makefile = (PAGE.parents[1] / "Makefile").read_text(encoding="utf-8")
    for command in commands:
        assert command in NEWER_PYTHON
        assert command in makefile


def test_the_table_is_read() -> None:
    assert len(ROWS) > 15
