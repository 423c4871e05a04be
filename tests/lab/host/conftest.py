"""Fixtures: a web server with the names of real servers, and fresh hosts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.host.base_image import base_folder
from tests.lab.host.host_image import base_image, host_image
from tests.lab.host.lab_host import Hardware, LabHost, start_host
from tests.lab.host.web.content import HOST_NAMES, web_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.lab.host.docker_engine import DockerEngine


@dataclass(frozen=True)
class Lab:
    """The parts that hosts are started from.

    Args:
        engine: runs them.
        image: their image.
        names: the addresses under which they know the web's servers.
        numbers: numbers that make their names unique.
    """

    engine: DockerEngine
    image: str
    names: Mapping[str, str]
    numbers: Iterator[int]

    def start(self, hardware: Hardware) -> LabHost:
        """Start a host."""
        return start_host(self.engine, self.image, f"host-{next(self.numbers)}", self.names, hardware)


@pytest.fixture(scope="session")
def lab(docker_engine: DockerEngine) -> Lab:
    """Provide hosts that know one web server by the names of Ubuntu's, NVIDIA's and Docker's servers."""
    base = base_folder()
    web = web_folder(base)
    image = host_image(docker_engine, base, web)
    server = Path(__file__).parent / "web" / "server.py"
    container = docker_engine.docker(
        "run",
        "--detach",
        f"--label={docker_engine.label}",
        f"--volume={web}:/lab:ro",
        f"--volume={web / 'srv'}:/srv:ro",
        f"--volume={server}:/server.py:ro",
        base_image(docker_engine, base),
        "python3",
        "/server.py",
        "/lab/server.crt",
        "/lab/server.key",
    ).strip()
    address = docker_engine.docker("inspect", "--format={{.NetworkSettings.IPAddress}}", container).strip()
    return Lab(docker_engine, image, dict.fromkeys(HOST_NAMES, address), itertools.count(1))


@pytest.fixture
def make_host(lab: Lab) -> Iterator[Callable[[Hardware], LabHost]]:
    """Return a function that starts hosts with given hardware; they end with the test."""
    hosts: list[LabHost] = []

    def make(hardware: Hardware) -> LabHost:
        hosts.append(lab.start(hardware))
        return hosts[-1]

    yield make
    for host in hosts:
        host.remove()


@pytest.fixture
def lab_host(make_host: Callable[[Hardware], LabHost]) -> LabHost:
    """Start a fresh host with eight GPUs, four switches and nothing installed."""
    return make_host(Hardware())
