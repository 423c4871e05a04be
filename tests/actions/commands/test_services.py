"""CommandService: ready by port, URL or line; used by later elements; stopped with its group; failures."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from actions.commands.readiness import OutputLines, answers, is_open
from actions.commands.references import filled_in
from actions.commands.services import CommandService, ContainerService
from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.facts import Facts
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.component import Service, StepContext
    from agent.host.processes import RunningProcess

SERVER = f"exec {sys.executable} -m http.server --bind 127.0.0.1 $PORT"


def start(context: StepContext, **parameters: Any) -> Service:
    asked = CommandService.Parameters.model_validate({"scenario": "web", "command": SERVER, **parameters})
    (step,) = CommandService(asked).plan(Facts(None, {})).steps
    outcome = step.run(context)
    assert outcome is not None
    assert outcome.service is not None
    return outcome.service


@pytest.mark.parametrize(
    "ready", [{}, {"readyUrl": "/"}, {"readyLine": "Serving HTTP on"}, {"readyUrl": "/", "readyPort": True}]
)
def test_it_serves_until_it_is_stopped(context: StepContext, ready: dict[str, Any]) -> None:
    command = f"PYTHONUNBUFFERED=1; export PYTHONUNBUFFERED; {SERVER}"
    service = start(context, command=command, startTimeout=60, path="/v1", model="m", **ready)
    url = str(service.values["url"])
    try:
        assert service.name == "web"
        assert url.endswith("/v1")
        assert service.values["model"] == "m"
        wait_for(lambda: answers(url.removesuffix("/v1")))
        assert service.death() is None
    finally:
        service.stop()
    assert not is_open("127.0.0.1", int(url.split(":")[2].removesuffix("/v1")))


def test_a_command_finds_it(context: StepContext) -> None:
    service = start(context, readyUrl="/", model="m")
    try:
        beside = replace(context, services={"web": service.values})
        text = filled_in(
            "{ServiceUrl:web} {ServiceHost:web} {ServicePort:web} {ServiceModel:web} {x}", beside
        )
        url, host, port, model, rest = text.split()
        assert (host, model, rest) == ("127.0.0.1", "m", "{x}")
        assert url == f"http://127.0.0.1:{port}"
        assert answers(url)
        with pytest.raises(
            ActionFailedError, match="no service named other runs beside this step; running: web"
        ):
            filled_in("{ServiceUrl:other}", beside)
        assert filled_in("curl service:web/health", beside) == f"curl {url}/health"
        assert filled_in("A=service:web docker service:8 a/service:x", beside).startswith("A=http")
        assert filled_in("docker service:8 a/service:x", beside) == "docker service:8 a/service:x"
        with pytest.raises(ActionFailedError, match="no service named other"):
            filled_in("curl 'service:other'", beside)
    finally:
        service.stop()


def test_its_death_is_told_with_its_last_words(context: StepContext, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = f"echo ready; until [ -e {gate} ]; do sleep 0.02; done; echo out of memory; exit 3"
    service = start(context, command=command, readyLine="^ready")
    gate.touch()
    wait_for(service.death)
    told = service.death() or ""
    assert told.splitlines()[0] == "ended with exit code 3"
    assert "out of memory" in told
    service.stop()


@pytest.mark.parametrize("another", [False, True])
def test_its_death_as_soon_as_it_was_ready(
    context: StepContext,
    monkeypatch: pytest.MonkeyPatch,
    another: bool,  # noqa: FBT001
) -> None:
    found, start_process = OutputLines.found, context.processes.start
    started: list[RunningProcess] = []

    def noted(*arguments: Any, **options: Any) -> RunningProcess:
        started.append(start_process(*arguments, **options))
        return started[-1]

    def found_after_its_end(lines: OutputLines) -> bool:
        wait_for(lambda: started[-1].poll() is not None)
        wait_for(lambda: found(lines))
        return True

    other = start(context, readyUrl="/") if another else None
    monkeypatch.setattr(context.processes, "start", noted)
    monkeypatch.setattr(OutputLines, "found", found_after_its_end)
    try:
        with pytest.raises(ActionFailedError, match="web ended with exit code 3") as error:
            start(
                context,
                command="echo ready; exit 3",
                readyLine="^ready",
                readyUrl=str(other.values["url"]) if other else "",
            )
        assert ("another server answers in its place" in str(error.value)) is another
    finally:
        if other:
            other.stop()


def test_one_that_ends_before_it_is_ready(context: StepContext) -> None:
    with pytest.raises(
        ActionFailedError, match="web ended with exit code 2 before it had opened its port"
    ) as error:
        start(context, command="echo no such model; exit 2")
    assert "no such model" in error.value.details


def test_one_that_never_gets_ready(context: StepContext) -> None:
    with pytest.raises(ActionFailedError, match=r"web has not written 'listening' within 0\.3 s"):
        start(context, command="echo not yet; sleep 60", readyLine="listening", startTimeout=0.3)


def test_the_command_line_in_the_log_is_no_sign_of_life(context: StepContext) -> None:
    with pytest.raises(ActionFailedError, match="has not written"):
        start(context, command=": Serving now; sleep 60", readyLine="Serving now", startTimeout=0.3)


def test_a_port_that_is_taken(context: StepContext) -> None:
    service = start(context)
    try:
        port = int(str(service.values["url"]).rpartition(":")[2])
        with pytest.raises(ActionFailedError, match=f"port {port} on 127.0.0.1 is taken by python"):
            start(context, port=port)
    finally:
        service.stop()


def test_told_to_stop_while_it_starts(context: StepContext) -> None:
    threading.Timer(0.2, context.stop.set).start()
    with pytest.raises(InterruptedRunError):
        start(context, command="sleep 60")


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (CommandService, {"command": "x", "readyLine": "("}, "not a regular expression"),
        (CommandService, {"command": "x", "readyUrl": "health"}, "begin it with /"),
        (CommandService, {"command": ""}, "at least 1 character"),
        (ContainerService, {"container": "i", "command": "x", "arguments": "y"}, "give one"),
        (ContainerService, {"container": {"image": "i", "network": "none"}}, "cannot be reached"),
        (ContainerService, {"container": {}}, "needs an image"),
    ],
)
def test_parameters_are_checked(kind: Any, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        kind.Parameters.model_validate(parameters)
