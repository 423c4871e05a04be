"""The engine that all labs share."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.lab.host.docker_engine import DockerEngine, EngineUnavailableError, running_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = {
    "apt-ftparchive": "apt-utils",
    "dockerd": "docker.io",
    "gpg": "gnupg",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "openssl": "openssl",
    "ssh-keygen": "openssh-client",
}
"""Programs that build the labs, and the packages that contain them."""


def _install_tools() -> None:
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0:
            return
    unavailable(f"the lab needs: {' '.join(command)}")


def unavailable(reason: str) -> None:
    """Skip the test; if ``VCAGENT_TEST_LAB`` is ``required``, as in CI, fail."""
    if os.environ.get("VCAGENT_TEST_LAB") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """Provide a Docker engine; only cached images of the tests stay in it afterwards."""
    _install_tools()
    try:
        with running_engine() as engine:
            yield engine
    except EngineUnavailableError as error:
        unavailable(str(error))
