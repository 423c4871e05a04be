"""The table of distributions in the documentation agrees with the plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from agent.core.errors import HostError
from agent.facts.linux import Distribution
from agent.fleet.commands import NEWER_PYTHON
from dependencies.amd.releases import NEWEST, RocmRelease
from dependencies.docker.sources import DOWNLOADS, docker_source
from dependencies.nvidia.container_toolkit_installation import NvidiaContainerToolkitInstallation
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.nvidia.repository import repository_folder
from tests.dependencies.test_cases import facts_of

PAGE = Path(__file__).parents[2] / "docs/distributions.md"
CASES = Path(__file__).parent / "cases/nvidia_cuda_installation"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| [a-z]", line) and not line.startswith("| distribution")
]
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
    identifier, version, manager, driver, docker, _ = row
    distribution = described(identifier, version)
    source = docker_source(
        "auto", distribution, machine="x86_64", manager=manager, downloads=DOWNLOADS, key=None
    )
    assert source.kind == docker

    base = yaml.safe_load((CASES / f"_{'fresh' if manager == 'apt' else 'rocky'}.yaml").read_text())
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_container_toolkit_is_installed_on_each(row: list[str]) -> None:
    identifier, version, manager, _, docker, _ = row
    base = yaml.safe_load((CASES.parent / "nvidia_container_toolkit_installation/_docker.yaml").read_text())
    changes = {"package_manager": manager, "docker_engine": [docker, "27.3.1"], "rpm_repositories": {}}
    facts = facts_of(base, changes)
    facts._modelled["distribution"] = described(identifier, version)
    facts._modelled["keyring[/etc/pki/rpm-gpg/RPM-GPG-KEY-vcagent-nvidia-container-toolkit]"] = None
    component = NvidiaContainerToolkitInstallation(
        NvidiaContainerToolkitInstallation.Parameters.model_validate({"Cdi": "never"})
    )
    steps = {step.name: step for step in component.plan(facts).steps}
    folder = "deb/amd64" if manager == "apt" else "rpm/x86_64"
    assert f"libnvidia-container/stable/{folder}" in steps["repository"].reason
    assert re.match(manager.replace("apt", "apt-get"), steps["install"].command)
    assert "nvidia-container-toolkit" in steps["install"].command


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_folder_of_rocm(row: list[str]) -> None:
    identifier, version, manager, _, _, folder = row
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
