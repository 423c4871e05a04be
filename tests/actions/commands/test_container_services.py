"""ContainerService on a real engine: resumed after its run was killed, and kept by --keep-serving."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ExitCode
from tests.lab.container_engine import BUSYBOX
from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.lab.restartable_docker import RestartableDocker

pytestmark = [pytest.mark.engine, pytest.mark.lab]
PORT = 18437
"""A fixed port, in the engine's own network."""
_LIMIT_S = 180


def wait(holds: Callable[[], object]) -> None:
    wait_for(holds, limit_s=_LIMIT_S, every_s=0.05)


def service(network: str, before: str = "") -> dict[str, Any]:
    """Return a web server in a container.

    Args:
        network: the container's.
        before: a command line to run before it starts.
    """
    command = f"{before}mkdir /www && echo ready > /www/health && exec busybox httpd -f -p $PORT -h /www"
    container = {"image": BUSYBOX, "ulimits": {}, "network": network, "user": "0:0"}
    return {
        "type": "ContainerService",
        "parameters": {
            "scenario": "web",
            "port": PORT,
            "ready_url": "/health",
            "container": container,
            "command": command.replace("mkdir", "busybox mkdir -p"),
        },
    }


class Agent:
    """The agent in the engine's network."""

    def __init__(self, engine: RestartableDocker, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.environment = {**os.environ, "DOCKER_HOST": engine.address}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*arguments), env=self.environment, capture_output=True, text=True, check=False
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command(*arguments),
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _command(self, *arguments: str) -> list[str]:
        folders = ["--results-dir", str(self.folder / "results")]
        return self.engine.beside(sys.executable, "-m", "agent", *arguments, *folders)

    def profile(self, server: dict[str, Any], command: str) -> str:
        path = self.folder / "SERVED.json"
        client = {"type": "ExecuteCommand", "parameters": {"command": command}}
        group = {"type": "SequentialExecution", "components": [server, client]}
        path.write_text(json.dumps({"description": "A test.", "actions": [group]}))
        return str(path)


@pytest.fixture
def agent(container_engine: RestartableDocker, tmp_path: Path) -> Iterator[Agent]:
    yield Agent(container_engine, tmp_path)
    left = container_engine.docker("ps", "--all", "--quiet").split()
    if left:  # of a test that failed
        container_engine.docker("rm", "--force", *left)


@pytest.mark.parametrize("network", ["bridge", "host"])
def test_a_run_killed_while_its_server_ran_is_resumed(agent: Agent, tmp_path: Path, network: str) -> None:
    mark, gate, answer = (tmp_path / name for name in ("mark", "gate", "answer"))
    waiting = f"touch {mark}; while [ ! -e {gate} ]; do sleep 0.05; done"
    profile = agent.profile(
        service(network), f"{waiting}; busybox wget -q -O {answer} {{ServiceUrl:web}}/health"
    )
    with agent.start("run", profile, "--package-dir", str(tmp_path / "packages")) as killed:
        try:
            wait(lambda: mark.exists() or killed.poll() is not None)
        finally:
            killed.kill()
    assert mark.exists()
    docker = agent.engine.docker
    assert len(docker("ps", "--quiet").split()) == 1, "the server outlived its agent"
    gate.touch()
    resumed = agent.run("resume")
    assert resumed.returncode == ExitCode.OK, resumed.stdout + resumed.stderr
    assert answer.read_text() == "ready\n"
    assert docker("ps", "--all", "--quiet") == ""
    taken = subprocess.run(
        agent.engine.beside("ss", "-Hltn", f"sport = :{PORT}"), capture_output=True, check=True
    )
    assert taken.stdout == b"", "nothing listens there any longer"


@pytest.mark.parametrize("by", ["docker", "clean"])
def test_a_server_in_a_container_stays_after_the_run(agent: Agent, tmp_path: Path, by: str) -> None:
    folders = ("--package-dir", str(tmp_path / "packages"))
    ended = agent.run("run", agent.profile(service("bridge"), "true"), "--keep-serving", *folders)
    assert ended.returncode == ExitCode.OK, ended.stdout + ended.stderr
    (row,) = json.loads(agent.run("runs", "--json").stdout)["runs"]
    serving = row["serving"]
    assert (serving["name"], serving["url"]) == ("web", f"http://127.0.0.1:{PORT}")
    fetch = agent.engine.beside("busybox", "wget", "-q", "-O", "-", f"{serving['url']}/health")
    assert subprocess.run(fetch, capture_output=True, check=True).stdout == b"ready\n"
    assert f"stop it: {serving['stop']}" in " ".join(ended.stderr.split())
    if by == "clean":
        cleaned = agent.run("clean", "--dependencies", "--yes")
        assert cleaned.returncode == ExitCode.OK, cleaned.stdout + cleaned.stderr
    else:
        subprocess.run(["sh", "-c", serving["stop"]], env=agent.environment, capture_output=True, check=True)
    assert agent.engine.docker("ps", "--all", "--quiet") == ""
    assert json.loads(agent.run("runs", "--json").stdout)["runs"][0]["serving"] is None


def test_a_kept_container_that_ends_is_a_failure(agent: Agent, tmp_path: Path) -> None:
    once = service("bridge", "test ! -e /once/was && echo > /once/was && ")
    once["parameters"]["container"]["mounts"] = [f"{tmp_path}:/once"]
    ended = agent.run("run", agent.profile(once, "true"), "--keep-serving")
    assert ended.returncode == ExitCode.ACTION_FAILED
    # It may end before or after vcagent has seen it running.
    said = " ".join((ended.stdout + ended.stderr).split())
    assert "ended at once with exit code 1" in said or "was to stay ended with exit code 1" in said
    assert agent.engine.docker("ps", "--all", "--quiet") == ""
