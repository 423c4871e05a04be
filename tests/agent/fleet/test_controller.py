"""On scripted hosts: hosts start as they are checked, failures are shown at once, and runs can be stopped."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from agent.core.errors import ExitCode, HostError, UsageError
from agent.fleet import controller as controller_module
from agent.fleet import run as fleet_run
from agent.fleet.assignment import FleetRequest
from agent.fleet.display import FleetDisplay
from agent.fleet.errors import HostUnfitError, UnknownHostKeyError, UnreachableError
from agent.fleet.host_run import STOPPED, HostPart, HostRun, Surroundings, Way
from agent.fleet.inventory import FleetHost
from agent.fleet.options import FleetOptions
from agent.fleet.record import FleetRecord, fleet_folder
from agent.fleet.remote.standing import RunState, Standing
from agent.fleet.scheduling import Wait
from agent.fleet.ssh.credentials import Credentials
from agent.fleet.status import HostPhase, HostStatus
from agent.fleet.stop_request import STOP_FILE, taken_stop
from agent.run.request import RunRequest
from agent.store.journal import Journal
from agent.store.results import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agent.fleet.run import FinishedFleet
    from agent.fleet.scheduling import Task

pytest.importorskip("fabric")

PROFILE = """
description: A test.
actions: [{type: ExecuteCommand, parameters: {scenario: act, command: "true"}}]
"""
DEADLINE_S = 60.0


class Fleet:
    """Scripted hosts: the error that each check raises, and the events that each host waits for."""

    def __init__(self) -> None:
        self.refused: dict[str, Exception] = {}
        self.check_until: dict[str, Callable[[], bool]] = {}
        self.run_until: dict[str, Callable[[], bool]] = {}
        self.events: list[str] = []
        self.passwords: dict[str, str] = {}


class ScriptedRun(HostRun):
    """One scripted host."""

    def __init__(self, part: HostPart, around: Surroundings, fleet: Fleet) -> None:
        super().__init__(part, around)
        self.fleet = fleet
        self.name = part.host.name

    @override
    def check(self, *, keep_open: bool) -> Task[None]:
        yield from self._wait(self.fleet.check_until)
        error = self.fleet.refused.get(self.name)
        if error and not (self.has_sudo_password and "sudo" in str(error)):
            raise error
        self.fleet.events.append(f"checked {self.name}")

    @override
    def carry_out(self) -> Task[None]:
        self.fleet.events.append(f"started {self.name}")
        self.set(phase=HostPhase.RUNNING, starts=1, started="2026-01-01T00:00:00+00:00")
        yield from self._wait(self.fleet.run_until)
        code = ExitCode.INTERRUPTED if self.stopping else ExitCode.OK
        self.judge(Standing(RunState.ENDED, "boot", int(code)))
        self.fleet.events.append(f"ended {self.name}")

    @property
    @override
    def has_sudo_password(self) -> bool:
        return self.name in self.fleet.passwords

    @override
    def take_sudo_password(self, password: str) -> None:
        self.fleet.passwords[self.name] = password

    def _wait(self, until: Mapping[str, Callable[[], bool]]) -> Task[None]:
        ticks = 0
        while self.name in until and not until[self.name]() and not self.stopping:
            ticks += 1
            assert ticks < DEADLINE_S * 100
            yield Wait(0.01)
        yield Wait(0)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet()

    class ScriptedWay(Way):
        def __init__(self, around: Surroundings, _: object) -> None:
            self.around = around

        @override
        def host_run(self, part: HostPart) -> HostRun:
            return ScriptedRun(part, self.around, made)

        @override
        def close(self, *, complete: bool) -> None: ...

    class Scripted:
        def check(self, *_: object) -> None: ...

        way = staticmethod(ScriptedWay)

    monkeypatch.setattr(controller_module, "transport", lambda _: Scripted())
    monkeypatch.setattr(fleet_run, "transport", lambda _: Scripted())
    return made


def start(
    tmp_path: Path,
    names: str = "abc",
    options: FleetOptions = FleetOptions(pool=4),  # noqa: B008 - frozen
    display: FleetDisplay | None = None,
    ask: Callable[[], str] | None = None,
) -> FinishedFleet:
    profile = tmp_path / "P.yaml"
    profile.write_text(PROFILE, encoding="utf-8")
    request = RunRequest((str(profile),), results_dir=tmp_path)
    hosts = [FleetHost(name, name, groups=("vowels",) if name in "aeiou" else ()) for name in names]
    wishes = fleet_run.Wishes(Credentials(), display or FleetDisplay(), ask)
    return fleet_run.start_fleet(FleetRequest(hosts, request, options), wishes)


def hosts_of(finished: FinishedFleet) -> dict[str, dict[str, object]]:
    return {host["name"]: host for host in finished.description["hosts"]}


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(self: UnknownHostKeyError, server: str) -> None:
        self.line = f"{server} ssh-ed25519 SHA256:x"
        UnreachableError.__init__(self, f"the host key is not known: {self.line}", remedy="accept it")

    monkeypatch.setattr(UnknownHostKeyError, "__init__", make)


def unknown_key(name: str) -> UnknownHostKeyError:
    return UnknownHostKeyError(name)  # type: ignore[call-arg]


def test_nobody_waits_for_a_host_whose_check_takes_long(tmp_path: Path, fleet: Fleet) -> None:
    fleet.check_until["b"] = lambda: {"ended a", "ended c"} <= set(fleet.events)
    assert start(tmp_path).exit_code is ExitCode.OK
    assert fleet.events.index("checked b") > fleet.events.index("ended c")


def test_a_refused_host_is_shown_while_others_are_checked(tmp_path: Path, fleet: Fleet) -> None:
    shown = threading.Event()

    class Display(FleetDisplay):
        @override
        def _changed(self, host: HostStatus, before: HostStatus | None) -> None:
            if host.name == "a" and host.phase is HostPhase.UNREACHED:
                shown.set()

    fleet.refused["a"] = UnreachableError("connection refused")
    fleet.check_until["b"] = shown.is_set
    finished = start(tmp_path, display=Display())
    assert finished.exit_code is ExitCode.FLEET_PARTIAL
    assert "connection refused" in str(hosts_of(finished)["a"]["reason"])


@pytest.mark.usefixtures("no_key")
def test_an_unknown_key_drops_its_own_host_by_name(tmp_path: Path, fleet: Fleet) -> None:
    notes: list[str] = []

    class Display(FleetDisplay):
        @override
        def note(self, text: str) -> None:
            notes.append(text)

    fleet.refused["b"] = unknown_key("b")
    hosts = hosts_of(start(tmp_path, display=Display()))
    assert (hosts["a"]["phase"], hosts["b"]["phase"], hosts["c"]["phase"]) == ("done", "unreached", "done")
    assert "skipped 1 host whose host keys are not known: b" in notes


@pytest.mark.usefixtures("no_key")
@pytest.mark.parametrize(("refused", "strict"), [("b", True), ("abc", False)])
def test_unknown_keys_refuse_the_run(tmp_path: Path, fleet: Fleet, refused: str, strict: bool) -> None:  # noqa: FBT001
    fleet.refused.update({name: unknown_key(name) for name in refused})
    with pytest.raises(HostError, match="nothing was started"):
        start(tmp_path, options=FleetOptions(strict_host_keys=strict))
    assert not [event for event in fleet.events if event.startswith("started")]
    assert fleet_folder(tmp_path).latest_name() is None


def test_a_sudo_password_is_asked_for_once(tmp_path: Path, fleet: Fleet) -> None:
    asked: list[str] = []

    def ask() -> str:
        asked.append("asked")
        return "pw"

    fleet.refused.update(
        {name: HostUnfitError("the agent cannot run as root: sudo wants a password") for name in "ab"}
    )
    assert start(tmp_path, ask=ask).exit_code is ExitCode.OK
    assert asked == ["asked"]
    assert fleet.passwords == {"a": "pw", "b": "pw"}


def test_the_canary_is_waited_for(tmp_path: Path, fleet: Fleet) -> None:
    fleet.check_until["a"] = lambda: {"checked b", "checked c"} <= set(fleet.events)
    assert start(tmp_path, options=FleetOptions(canary=1)).exit_code is ExitCode.OK
    started = [event for event in fleet.events if not event.startswith("checked")]
    assert started[:2] == ["started a", "ended a"]


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Call a function in a thread while the block runs."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(DEADLINE_S)
    assert not failed, failed


def stop(tmp_path: Path, limit: str = "") -> fleet_run.StoppedFleet:
    return fleet_run.stop_fleet(tmp_path, None, limit, fleet_run.Wishes(Credentials(), FleetDisplay()))


def test_the_controller_at_work_ends_the_runs_that_are_named(tmp_path: Path, fleet: Fleet) -> None:
    begun, stopped = threading.Event(), threading.Event()
    fleet.run_until = dict.fromkeys("ab", stopped.is_set)
    fleet.check_until["c"] = lambda: "started b" in fleet.events

    class Display(FleetDisplay):
        @override
        def _changed(self, host: HostStatus, before: HostStatus | None) -> None:
            if host.name == "b" and host.phase is HostPhase.RUNNING:
                begun.set()

    def tell() -> None:
        assert begun.wait(DEADLINE_S)
        assert stop(tmp_path, "vowels,c") == fleet_run.StoppedFleet(
            fleet_folder(tmp_path).find(None), ["a", "c"], None
        )
        stopped.set()

    with beside(tell):
        finished = start(tmp_path, options=FleetOptions(batch="2"), display=Display())
    hosts = hosts_of(finished)
    assert (hosts["a"]["phase"], hosts["a"]["reason"]) == ("failed", STOPPED)
    assert hosts["b"]["phase"] == "done"
    assert (hosts["c"]["phase"], hosts["c"]["reason"]) == ("not started", STOPPED)
    assert "started c" not in fleet.events
    with pytest.raises(UsageError, match="nothing to stop"):
        stop(tmp_path)


def test_without_a_controller_the_runs_are_ended_from_here(tmp_path: Path, fleet: Fleet) -> None:
    run_dir = start(tmp_path).run_dir
    fleet.run_until["a"] = lambda: False
    with Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        statuses = record.statuses()
        record.end(int(ExitCode.INTERRUPTED))
        record.put(replace(statuses["a"], phase=HostPhase.RUNNING, exit_code=None))
        record.put(HostStatus("b", "b"))
        record.flush()
    stopped = stop(tmp_path)
    assert stopped.hosts == ["a", "b"]
    assert stopped.finished is not None
    hosts = hosts_of(stopped.finished)
    assert (hosts["a"]["reason"], hosts["b"]["reason"]) == (STOPPED, STOPPED)
    assert (hosts["b"]["phase"], hosts["c"]["phase"]) == ("not started", "done")
    assert stopped.finished.description["exit_code"] == ExitCode.FLEET_PARTIAL


def test_a_stop_request_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / STOP_FILE).write_text(json.dumps({"hosts": ["a"]}))
    assert taken_stop(tmp_path / STOP_FILE) == ["a"]
    assert taken_stop(tmp_path / STOP_FILE) == []


def test_a_request_for_an_earlier_controller_is_forgotten(tmp_path: Path, fleet: Fleet) -> None:
    run_dir = start(tmp_path).run_dir
    with Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        record.put(replace(record.statuses()["a"], phase=HostPhase.RUNNING, exit_code=None))
        record.end(int(ExitCode.INTERRUPTED))
    (run_dir / STOP_FILE).write_text(json.dumps({"hosts": ["a"]}))
    wishes = fleet_run.Wishes(Credentials(), FleetDisplay())
    assert fleet_run.resume_fleet(tmp_path, None, {}, wishes).exit_code is ExitCode.OK


def test_statuses_are_written_together_in_one_transaction(tmp_path: Path) -> None:
    with Journal(tmp_path / JOURNAL) as journal:
        writes: list[int] = []
        remember = journal.remember
        journal.remember = lambda **values: (writes.append(len(values)), remember(**values))[1]  # type: ignore[method-assign]
        record = FleetRecord(journal)
        for step in range(100):
            for name in "abc":
                record.put(HostStatus(name, name, HostPhase.RUNNING, step=str(step)))
        record.flush()
        record.flush()
        assert writes == [4]  # the four values and their time
        assert journal.recall("host:a")["step"] == "99"
