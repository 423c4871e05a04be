"""Fixtures: hosts for a whole session, and a fresh controller for each test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from agent.fleet.bundle import Bundles, Platform
from tests.lab.conftest import unavailable
from tests.lab.fleet.controller import Controller
from tests.lab.fleet.slurm_cluster import SlurmCluster, missing_programs, running_cluster
from tests.lab.fleet.ssh_host import SshHost, start_hosts
from tests.lab.fleet.ssh_image import ssh_image
from tests.lab.host.agent_wheels import dependency_wheels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.host.docker_engine import DockerEngine

COUNT = 8


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a private key, with its public key in the same folder."""
    path = tmp_path_factory.mktemp("key") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="session")
def ssh_base(docker_engine: DockerEngine) -> str:
    """Return the image of the hosts."""
    return ssh_image(docker_engine)


@pytest.fixture(scope="session")
def hosts(docker_engine: DockerEngine, ssh_base: str, key: Path) -> list[SshHost]:
    """Start eight hosts without systemd."""
    names = [f"fleet-{number}" for number in range(1, COUNT + 1)]
    return start_hosts(docker_engine, ssh_base, names, key.with_suffix(".pub"))


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the bundle, which is made once, before the first test."""
    folder = tmp_path_factory.mktemp("kept")
    Bundles(wheels=dependency_wheels(), folder=folder / "bundles").bundle(
        Platform("3.11", os.uname().machine)
    )
    return folder


@pytest.fixture
def controller(tmp_path: Path, key: Path, hosts: list[SshHost], kept: Path) -> Iterator[Controller]:
    """Return a controller that knows the hosts' keys."""
    made = Controller(tmp_path, key, dependency_wheels(), kept)
    made.known_hosts.write_text("".join(host.host_key() for host in hosts))
    yield made
    made.end()


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[SlurmCluster]:
    """Start a cluster of four nodes."""
    if missing := missing_programs():
        unavailable(f"a Slurm cluster needs {', '.join(missing)}: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        unavailable("a Slurm cluster of its own takes root")
    # Short: the path of a socket may have 107 bytes.
    with TemporaryDirectory(prefix="lab-slurm-") as folder, running_cluster(Path(folder)) as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_session: SlurmCluster) -> Iterator[SlurmCluster]:
    """Return the cluster with all nodes idle."""
    yield slurm_session
    slurm_session.rest()


@pytest.fixture(scope="session")
def kept_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the bundle for this Python."""
    folder = tmp_path_factory.mktemp("kept-here")
    Bundles(wheels=_wheels_here(), folder=folder / "bundles").bundle(Platform.here())
    return folder


@pytest.fixture
def slurm_controller(tmp_path: Path, slurm: SlurmCluster, kept_here: Path) -> Iterator[Controller]:
    """Return a controller that can submit jobs."""
    made = Controller(tmp_path, Path("no-key"), _wheels_here(), kept_here, environment=slurm.environment)
    yield made
    made.end()


def _wheels_here() -> Path:
    return dependency_wheels(f"{sys.version_info[0]}.{sys.version_info[1]}")
