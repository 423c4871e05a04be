"""A complete run with a container: described, removed at the end, kept on request, cleaned up if left."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest

from agent.component import registry
from agent.component.component import Action, ComponentParameters, Plan, Step, StepContext
from agent.component.container_engine import connect
from agent.core.errors import ExitCode, InterruptedRunError
from agent.core.progress import RunProgress
from agent.run.cleaning import survey
from agent.run.session import resume
from tests.agent.host.containers.conftest import wish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.facts import Facts
    from agent.run.session import FinishedRun
    from tests.lab.restartable_docker import RestartableDocker

pytestmark = pytest.mark.lab


class ContainedParameters(ComponentParameters):
    keep: bool = False
    interrupted_once: bool = False


class Contained(Action):
    """Two steps in one container: the second step finds it again."""

    Parameters = ContainedParameters
    parameters: ContainedParameters

    def plan(self, facts: Facts) -> Plan:
        return Plan((Step("make", "first", self._make), Step("use", "second", self._use)))

    def _make(self, context: StepContext) -> None:
        with connect(context) as engine:
            container = engine.ensure_running(wish(keep=self.parameters.keep))
            container.run("echo made >/made", log=context.log)

    def _use(self, context: StepContext) -> None:
        with connect(context) as engine:
            container = engine.ensure_running(wish(keep=self.parameters.keep))
            assert container.reused
            assert container.run(["cat", "/made"], log=context.log).stdout == "made\n"
        flag = context.run_dir / "interrupted"
        if self.parameters.interrupted_once and not flag.exists():
            flag.touch()
            raise InterruptedRunError("told to stop")


@pytest.fixture(autouse=True)
def _contained(
    _test_types: None, container_engine: RestartableDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", container_engine.address)
    point = EntryPoint("Contained", f"{__name__}:Contained", registry.COMPONENT_GROUP)
    registry._registered()["contained"] = point


def containers(docker: RestartableDocker) -> list[str]:
    return docker.docker("ps", "--all", "--format={{.Names}}").split()


def test_it_is_described_and_removed(
    run_profile: Callable[..., FinishedRun], container_engine: RestartableDocker
) -> None:
    finished = run_profile({"actions": [{"type": "Contained"}]})
    assert finished.outcome.exit_code is ExitCode.OK, finished.outcome.error
    (described,) = json.loads((finished.run_dir / "run.json").read_text())["containers"]
    assert described["name"] == f"vcagent-{finished.run_dir.name}-test"
    assert described["image"]["id"].startswith("sha256:")
    assert described["config"]["HostConfig"] == {"NetworkMode": "none"}
    assert containers(container_engine) == []


def test_it_is_kept_until_its_run_is_cleaned(
    run_profile: Callable[..., FinishedRun], container_engine: RestartableDocker, tmp_path: Path
) -> None:
    finished = run_profile({"actions": [{"type": "Contained", "parameters": {"Keep": True}}]})
    assert containers(container_engine) == [f"vcagent-{finished.run_dir.name}-test"]
    survey("logs", tmp_path / "results", tmp_path / "packages").carry_out()
    assert containers(container_engine) == []
    assert not finished.run_dir.exists()


def test_an_interrupted_run_finds_it_again(
    run_profile: Callable[..., FinishedRun], container_engine: RestartableDocker, tmp_path: Path
) -> None:
    element: dict[str, Any] = {"type": "Contained", "parameters": {"InterruptedOnce": True}}
    finished = run_profile({"actions": [element]})
    assert finished.outcome.exit_code is ExitCode.INTERRUPTED
    assert len(containers(container_engine)) == 1
    finished = resume(tmp_path / "results", finished.run_dir.name, RunProgress())
    assert finished.outcome.exit_code is ExitCode.OK
    assert containers(container_engine) == []
