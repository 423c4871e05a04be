"""GPUs by CDI, in an engine that supports it; the test's specification replaces that of nvidia-ctk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ContainerError
from agent.host.containers import ContainerSpec, GpuAccess
from tests.agent.host.containers.conftest import run_in, wish
from tests.lab.container_engine import BUSYBOX
from tests.lab.newer_docker import newer_docker
from tests.lab.restartable_docker import restartable_docker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.host.containers.engine import ContainerEngine
    from tests.lab.restartable_docker import RestartableDocker

pytestmark = pytest.mark.lab


def device(name: str, *numbers: int) -> dict[str, Any]:
    """Return a device in the form of ``nvidia-ctk cdi generate``; its node is a copy of /dev/null."""
    nodes = [{"path": f"/dev/nvidia{number}", "hostPath": "/dev/null"} for number in numbers]
    return {"name": name, "containerEdits": {"deviceNodes": nodes, "env": [f"LAB_GPU={name}"]}}


SPECIFICATION = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "devices": [device("0", 0), device("1", 1), device("all", 0, 1)],
    "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
}


@pytest.fixture(scope="module")
def cdi_engine() -> Iterator[RestartableDocker]:
    """Start Docker 26 with CDI enabled, on a host with two GPUs."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("apt-get", "docker", "unshare", "ip", "busybox"))):
        pytest.skip("it needs root, apt, docker's client, iproute2, busybox")
    try:
        programs = newer_docker()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"there is no engine with CDI: {error}")
    with tempfile.TemporaryDirectory(prefix="vcagent-cdi-") as name:
        folder = Path(name)
        specifications = folder / "cdi"
        specifications.mkdir()
        (specifications / "nvidia.json").write_text(json.dumps(SPECIFICATION))
        settings = {"features": {"cdi": True}, "cdi-spec-dirs": [str(specifications)]}
        with restartable_docker(folder, programs=programs, settings=settings) as engine:
            engine.import_busybox(BUSYBOX)
            yield engine


@pytest.fixture
def run(cdi_engine: RestartableDocker, tmp_path: Path) -> Iterator[ContainerEngine]:
    with run_in(cdi_engine, tmp_path / "records") as engine:
        yield engine


def by_cdi(*numbers: str) -> ContainerSpec:
    return wish(gpus=numbers or "all", gpu_access=GpuAccess.CDI)


@pytest.mark.parametrize(
    ("chosen", "nodes", "variable"),
    [((), ["/dev/nvidia0", "/dev/nvidia1"], "all"), (("1",), ["/dev/nvidia1"], "1")],
)
def test_a_container_gets_what_the_specification_says(
    run: ContainerEngine, tmp_path: Path, chosen: tuple[str, ...], nodes: list[str], variable: str
) -> None:
    container = run.ensure_running(by_cdi(*chosen))
    log = tmp_path / "log"
    assert container.run("ls /dev/nvidia*", log=log).stdout.split() == nodes
    # Commands started later have the devices; only the first process has the variables.
    first = container.run(["cat", "/proc/1/environ"], log=log).stdout
    assert {f"LAB_GPU={variable}", "NVIDIA_VISIBLE_DEVICES=void"} <= set(first.split("\0"))
    container.run(f"echo works > {nodes[0]}", log=log)
    assert run.ensure_running(by_cdi(*chosen)).reused


def test_without_being_asked_for_there_is_no_gpu(run: ContainerEngine, tmp_path: Path) -> None:
    container = run.ensure_running(wish())
    assert "nvidia" not in container.run(["ls", "/dev"], log=tmp_path / "log").stdout


def test_a_device_that_no_specification_has(run: ContainerEngine, cdi_engine: RestartableDocker) -> None:
    with pytest.raises(ContainerError) as error:
        run.ensure_running(by_cdi("7"))
    assert error.value.problem == "cdi_device"
    assert "nvidia.com/gpu=7" in str(error.value.remedy)
    assert not cdi_engine.docker("ps", "--all", "--quiet")


def test_a_specification_that_is_older_than_the_driver(
    run: ContainerEngine, cdi_engine: RestartableDocker
) -> None:
    path = cdi_engine.folder / "cdi" / "stale.json"
    stale = {**SPECIFICATION, "devices": [device("9")]}
    stale["devices"][0]["containerEdits"]["deviceNodes"] = [{"path": "/dev/nvidia-gone"}]
    path.write_text(json.dumps(stale))
    try:
        with pytest.raises(ContainerError) as error:
            run.ensure_running(by_cdi("9"))
    finally:
        path.unlink()
    assert error.value.problem == "cdi_stale"
    assert "/dev/nvidia-gone" in str(error.value.remedy)
