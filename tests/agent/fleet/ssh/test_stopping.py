"""Stopping a run sends the request over the open connection or the next one, and never starts it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from agent.fleet.errors import ConnectionLostError, HostUnfitError, UnreachableError
from agent.fleet.host_run import STOPPED, HostPart, Surroundings
from agent.fleet.inventory import FleetHost
from agent.fleet.options import FleetOptions
from agent.fleet.remote.standing import RunState, Standing
from agent.fleet.scheduling import Wait, run_task
from agent.fleet.ssh.credentials import Credentials
from agent.fleet.ssh.host_run import SshHostRun
from agent.fleet.ssh.session import Answer
from agent.fleet.status import HostPhase, HostStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.fleet.scheduling import Task

STARTED = HostStatus(
    "a", "a", HostPhase.RUNNING, python="/py", run_dir="/b/runs/r.a", bundle="x", boot="1", starts=1,
)  # fmt: skip


@dataclass
class Host:
    """A host over a simulated connection: runs until it is asked to stop."""

    told: list[str] = field(default_factory=list)
    is_open: bool = True
    cuts: int = 0
    on_watch: Callable[[], None] = lambda: None

    def connect(self, *_: object) -> Task[Host]:
        yield Wait(0)
        if self.cuts < 0:
            raise ConnectionLostError("it is gone")
        self.is_open = True
        return self

    def start(self, command: str, _: float) -> Command:
        self.told.append(command.split()[4] if "fleet-host" in command else "doorstep")
        return Command(self, self.told[-1])

    def close(self) -> None:
        self.is_open = False


@dataclass
class Command:
    """One command on the host."""

    host: Host
    verb: str

    def write(self, _: bytes) -> None: ...

    def end_input(self) -> None: ...

    def close(self) -> None: ...

    def ended(self) -> Answer:
        return Answer(0, "")

    def line(self, _: float) -> Task[bytes]:
        yield Wait(0)
        if self.verb == "send":
            return b'{"files": []}\n'
        self.host.on_watch()
        if "stop" in self.host.told:
            return Standing(RunState.ENDED, "1", 9).to_json().encode()
        if self.host.cuts:
            self.host.cuts -= 1
            raise ConnectionLostError("cut")
        return Standing(RunState.RUNNING, "1").to_json().encode()


def run_of(tmp_path: Path, host: Host, status: HostStatus = STARTED) -> SshHostRun:
    around = Surroundings(
        "r", tmp_path, FleetOptions(), cast("Any", None), lambda text: text, lambda value: value
    )
    part = HostPart(FleetHost("a", "a"), {"request": {"allow_reboot": False}}, status, lambda _: None)
    return SshHostRun(part, around, connector=cast("Any", host), route=(), credentials=Credentials())


def test_it_is_told_over_the_connection_that_is_open(tmp_path: Path) -> None:
    host = Host()
    run = run_of(tmp_path, host)
    watches = 0

    def on_watch() -> None:
        nonlocal watches
        watches += 1
        if watches == 3:
            run_task(run.stop())

    host.on_watch = on_watch
    run_task(run.carry_out())
    assert host.told == ["watch", "stop", "send"]
    assert (run.status.phase, run.status.reason, run.status.exit_code) == (HostPhase.FAILED, STOPPED, 9)


def test_the_next_connection_begins_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.fleet.ssh.host_run._BACKOFF_S", (0.0,))
    host = Host(cuts=1)
    run = run_of(tmp_path, host)

    def on_watch() -> None:
        run.stopping = True
        host.is_open = False

    host.on_watch = on_watch
    run.stopping = False
    with pytest.raises(UnreachableError, match="the stop request failed: cut") as caught:
        run_task(run.carry_out())
    assert "vcagent fleet stop r" in str(caught.value)
    host.cuts, host.on_watch = 0, lambda: None
    run_task(run.carry_out())
    assert host.told == ["watch", "stop", "watch", "send"]


def test_a_run_that_was_not_started_is_not(tmp_path: Path) -> None:
    host = Host()
    run = run_of(tmp_path, host, HostStatus("a", "a", run_dir="/b/runs/r.a"))
    run_task(run.stop())
    with pytest.raises(HostUnfitError, match=STOPPED):
        run_task(run.carry_out())
    assert host.told == []


def test_a_run_of_which_only_the_bundle_is_known_may_have_begun(tmp_path: Path) -> None:
    host = Host()
    run = run_of(tmp_path, host, HostStatus("a", "a", run_dir="/b/runs/r.a", bundle="x", python="/py"))
    assert not run.has_begun
    run.stopping = True
    assert run.has_begun
    run_task(run.carry_out())
    assert host.told == ["stop", "watch", "send"]
