"""Resuming a fleet run whose controller ended: its requirements, and the hosts that are resumed."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from agent.cli.fleet import app
from agent.core.errors import ExitCode, HostError, UsageError
from agent.fleet.assignment import FleetRequest, assigned
from agent.fleet.cleaning import survey
from agent.fleet.commands import privileged
from agent.fleet.display import FleetDisplay
from agent.fleet.inventory import FleetHost
from agent.fleet.options import FleetOptions
from agent.fleet.record import FleetRecord, fleet_folder
from agent.fleet.run import FinishedFleet, Wishes, resume_fleet, retry_fleet, stop_fleet
from agent.fleet.ssh.credentials import Credentials
from agent.fleet.status import HostPhase, HostStatus
from agent.profile import Source
from agent.run.request import RunRequest
from agent.store.journal import Journal
from agent.store.results import JOURNAL, LOCK, ResultsFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("fabric")

RUN = "20260101T000000Z-p-0000"
PROFILE = """\
description: A test.
actions: [{type: ExecuteCommand, parameters: {scenario: act, command: "true"}}]
"""
STARTED = HostStatus(
    "a", "a", HostPhase.RUNNING, started="2026-01-01T00:00:00+00:00", python="/usr/bin/python3",
    run_dir="/var/cache/vcagent/fleet/runs/x.a", bundle="b", boot="1", starts=1,
)  # fmt: skip


WISHES = Wishes(Credentials(), FleetDisplay())


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@pytest.fixture
def left(tmp_path: Path) -> Callable[[HostStatus, ExitCode | None], Path]:
    """Return a function that leaves an ended controller's fleet run, on one host that does not answer."""

    def leave(status: HostStatus, exit_code: ExitCode | None) -> Path:
        folder = fleet_folder(tmp_path)
        folder.prepare()
        run_dir = folder.create(RUN)
        options = FleetOptions(
            reconnect_timeout_s=0, ssh_config=tmp_path / "none", known_hosts=tmp_path / "known"
        )
        request = RunRequest(profiles=("P.yaml",), results_dir=tmp_path, experiment_id="e")
        hosts = [FleetHost("a", "127.0.0.1", closed_port(), "root")]
        fleet = FleetRequest(hosts, request, options)
        sources = [Source(name="P", label="P.yaml", text=PROFILE, format="yaml")]
        with Journal(run_dir / JOURNAL) as journal:
            record = FleetRecord(journal)
            record.begin(assigned(fleet, sources, Credentials()))
            record.put(status)
            record.end(exit_code)
            record.set_written()
        return run_dir

    return leave


def resume(run_dir: Path, *, sudo_password: str | None = None) -> FinishedFleet:
    wishes = Wishes(Credentials(sudo_password=sudo_password), FleetDisplay())
    return resume_fleet(run_dir.parents[1], None, {}, wishes)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda results: resume_fleet(results, None, {}, WISHES), id="resume"),
        pytest.param(lambda results: retry_fleet(results, None, {}, WISHES), id="retry"),
        pytest.param(lambda results: stop_fleet(results, None, "", WISHES), id="stop"),
        pytest.param(lambda results: survey(results, [], "", None), id="clean"),
    ],
)
def test_root_follows_no_journal_that_others_may_have_written(
    act: Callable[[Path], object],
    left: Callable[[HostStatus, ExitCode | None], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_dir = left(STARTED, None)
    monkeypatch.setattr("agent.core.safe_files.distrust", lambda folder: f"{folder} belongs to mallory")
    with pytest.raises(HostError, match=f"run folder {run_dir}: {run_dir} belongs to mallory") as refused:
        act(run_dir.parents[1])
    assert "chown root" in (refused.value.remedy or "")


def test_a_password_that_following_needs_is_asked_for_before_any_host_is(
    left: Callable[[HostStatus, ExitCode | None], Path],
) -> None:
    run_dir = left(replace(STARTED, sudo="password"), None)
    with pytest.raises(UsageError, match="sudo wants its password on 1 host whose runs are to be followed"):
        resume(run_dir)
    assert resume(run_dir, sudo_password="given").exit_code is ExitCode.FLEET_PARTIAL


def test_a_host_that_was_lost_after_its_start_is_gone_on_with(
    left: Callable[[HostStatus, ExitCode | None], Path],
) -> None:
    lost = replace(
        STARTED, phase=HostPhase.UNREACHED, reason="not heard of", ended="2026-01-01T01:00:00+00:00"
    )
    run_dir = left(lost, ExitCode.FLEET_PARTIAL)
    for _ in range(2):
        finished = resume(run_dir)
        assert finished.exit_code is ExitCode.FLEET_PARTIAL
        host = json.loads((run_dir / "fleet.json").read_text())["hosts"][0]
        assert host["may_go_on"]
        assert "Connection refused" in host["reason"]
        assert f"vcagent fleet resume {RUN}" in host["reason"]


@pytest.mark.parametrize(
    "status",
    [
        HostStatus("a", "a", HostPhase.UNREACHED, reason="no connection"),
        replace(STARTED, phase=HostPhase.FAILED, exit_code=6),
        replace(STARTED, phase=HostPhase.DONE, exit_code=0),
    ],
)
def test_hosts_that_are_done_with_leave_nothing_to_go_on_with(
    left: Callable[[HostStatus, ExitCode | None], Path], status: HostStatus
) -> None:
    with pytest.raises(UsageError, match="is complete"):
        resume(left(status, ExitCode.FLEET_PARTIAL))


def test_status_tells_whether_a_controller_is_at_work(
    left: Callable[[HostStatus, ExitCode | None], Path],
) -> None:
    run_dir = left(STARTED, None)

    def status(*options: str) -> str:
        shown = CliRunner().invoke(app, ["status", f"--results-dir={run_dir.parents[1]}", *options])
        assert shown.exit_code == 0
        return shown.output

    hint = f"follow them again with: vcagent fleet resume {RUN}"
    with ResultsFolder(run_dir).locked(RUN):
        assert json.loads(status("--json"))["controller"] == "alive"
        assert hint not in status()
        (run_dir / LOCK).write_text("")  # as another user's process looks
        assert json.loads(status("--json"))["controller"] == "alive"
    assert json.loads(status("--json"))["controller"] == "gone"
    assert hint in status()
    with Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        record.put(replace(STARTED, phase=HostPhase.DONE, exit_code=0))
        record.flush()
    assert hint not in status()


def test_sudo_never_gets_a_password_that_nobody_gave() -> None:
    assert privileged("id", "password", "pw") == ("sudo -k -S -p '' -- id", b"pw\n")
    with pytest.raises(HostError, match="sudo wants a password on the host"):
        privileged("id", "password", None)
