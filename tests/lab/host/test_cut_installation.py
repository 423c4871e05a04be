"""dpkg's work is finished after a power cut: packages are unpacked, their dependencies missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.host.agent_runs import planned_steps, profile_with
from tests.lab.host.test_host_setup import docker, driver
from tests.lab.host.test_lab import add_repository
from tests.lab.host.web.content import DOCKER_REPOSITORY

if TYPE_CHECKING:
    from tests.lab.host.lab_host import LabHost

pytestmark = pytest.mark.lab


def leave_unpacked(host: LabHost, package: str) -> None:
    """Unpack one package without configuring it, like a dpkg that was cut short."""
    host.run(f"cd /tmp && apt-get download -qq {package} && dpkg --unpack {package}_*.deb", check=False)
    assert host.run(f"dpkg-query -W -f '${{db:Status-Abbrev}}' {package}").stdout == "iU "


def test_an_engine_that_is_only_unpacked(lab_host: LabHost) -> None:
    add_repository(lab_host, "docker", f"{DOCKER_REPOSITORY}/gpg", f"{DOCKER_REPOSITORY} noble stable")
    leave_unpacked(lab_host, "docker-ce")
    profile = profile_with(lab_host, [docker()])
    result = lab_host.vcagent("--profile", profile)
    assert result.returncode == 0, result.stdout + result.stderr
    assert planned_steps(lab_host, profile) == []
    assert lab_host.run("dpkg --audit").stdout == ""


def test_a_driver_whose_module_is_only_unpacked(lab_host: LabHost) -> None:
    lab_host.run("apt-get update -qq")
    leave_unpacked(lab_host, "nvidia-dkms-550-server")
    profile = profile_with(lab_host, [driver("550")])
    result = lab_host.vcagent("--profile", profile)
    assert result.returncode == 0, result.stdout + result.stderr
    assert planned_steps(lab_host, profile) == []
    assert lab_host.run("dpkg --audit").stdout == ""
