"""The engine that all labs share."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.lab.host.docker_engine import DockerEngine, EngineUnavailableError, running_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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


def unavailable(reason: str) -> NoReturn:
    """Skip the test; if ``VCAGENT_TEST_LAB`` is ``required``, as in CI, fail."""
    if os.environ.get("VCAGENT_TEST_LAB") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def require_tools(
    programs: Mapping[str, str] = PROGRAMS, otherwise: Callable[[str], NoReturn] = unavailable
) -> None:
    """Install the missing programs with apt; skip the test, or fail it, if that is not possible.

    Args:
        programs: the programs, and the Debian package of each.
        otherwise: ends the test, with a reason.
    """
    missing = sorted({package for program, package in programs.items() if shutil.which(program) is None})
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0:
            return
    otherwise(f"the lab needs: {' '.join(command)}")


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """Provide a Docker engine; only cached images of the tests stay in it afterwards."""
    require_tools()
    try:
        with running_engine() as engine:
            yield engine
    except EngineUnavailableError as error:
        unavailable(str(error))
