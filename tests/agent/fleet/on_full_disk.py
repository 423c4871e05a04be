"""Tests that test_full_disk.py runs on a small file system, which they fill during a fleet run.

The file system is the controller's. The hosts are scripted, but their files arrive as those of real hosts.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from typing_extensions import override

from agent.core.errors import ExitCode, HostError, VcagentError, unexpected
from agent.fleet.display import FleetDisplay
from agent.fleet.run import Wishes, resume_fleet
from agent.fleet.ssh.credentials import Credentials
from agent.fleet.ssh.gathering import gathered
from agent.store import results
from tests.agent.fleet import test_controller as scripted
from tests.agent.fleet.ssh.test_gathering import FILES, Host
from tests.agent.fleet.test_controller import Fleet, ScriptedRun, fleet, start

if TYPE_CHECKING:
    from agent.fleet.run import FinishedFleet
    from agent.fleet.scheduling import Task
    from agent.fleet.ssh.session import Command

__all__ = ["fleet"]

ROOM = Path(os.environ["SMALL_FILE_SYSTEM"])


def fill(but_bytes: int) -> None:
    """Fill the file system except for some bytes."""
    status = os.statvfs(ROOM)
    with (ROOM / "ballast").open("ab") as file:
        left = max(0, status.f_bavail * status.f_frsize - but_bytes)
        os.posix_fallocate(file.fileno(), file.tell(), left) if left else None


def free() -> None:
    """Give the space back."""
    (ROOM / "ballast").unlink(missing_ok=True)


class GatheringRun(ScriptedRun):
    """A host that sends files home."""

    full_at = ""
    """The point at which the disk becomes full."""
    but_bytes = 0

    @override
    def carry_out(self) -> Task[None]:
        self._reach("started")
        self.set(starts=1)
        yield from self._wait(self.fleet.check_until)
        self._reach("gathering")
        yield from gathered(cast("Command", Host(FILES)), self._around.folder / self.status.folder)
        yield from super().carry_out()
        if {f"ended {name}" for name in "abc"} <= set(self.fleet.events):
            self._reach("outcome")

    def _reach(self, point: str) -> None:
        if self.full_at == point:
            fill(self.but_bytes)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "ScriptedRun", GatheringRun)
    monkeypatch.setattr(results, "LEAST_FREE_BYTES", 0)
    monkeypatch.setattr(GatheringRun, "full_at", "")


def told_well(error: Exception) -> None:
    """Check that an error is one that a user understands."""
    known = error if isinstance(error, VcagentError) else unexpected(error, "vcagent")
    assert isinstance(known, HostError), f"{error!r} is reported as {known}"
    assert "disk is full" in str(known) or "No space left" in str(known), str(known)
    assert known.remedy
    assert "defect" not in str(known)


def complete(finished: FinishedFleet) -> None:
    """Check that every host is done and every file is here."""
    assert finished.exit_code is ExitCode.OK
    for name in "abc":
        folder = finished.run_dir / "hosts" / name
        assert {path: (folder / path).read_bytes() for path in FILES} == FILES
    assert (finished.run_dir / "report.html").is_file()
    assert json.loads((finished.run_dir / "fleet.json").read_text())["exit_code"] == 0


@pytest.mark.parametrize("point", ["begin", "started", "gathering", "outcome"])
@pytest.mark.parametrize("but_kib", [0, 4, 16, 64, 140])
def test_a_full_disk_is_told_and_the_run_can_be_resumed(point: str, but_kib: int, fleet: Fleet) -> None:
    folder = ROOM / "results"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "P.yaml").write_text(scripted.PROFILE)
    GatheringRun.full_at, GatheringRun.but_bytes = point, but_kib << 10
    try:
        if point == "begin":
            fill(but_kib << 10)
        finished = start(folder)
    except Exception as error:  # noqa: BLE001 - which one is the question
        told_well(error)
    else:
        reasons = {host["reason"] for host in finished.description["hosts"]} - {""}
        assert all("vcagent fleet resume" in reason for reason in reasons)
        assert bool(reasons) == (finished.exit_code is not ExitCode.OK)
        if not reasons:
            complete(finished)
            return
    finally:
        free()
    GatheringRun.full_at = ""
    can_be_resumed = any((folder / "fleet").glob("*/journal.sqlite")) and (folder / "fleet/latest").exists()
    if not can_be_resumed:
        assert point in ("begin", "started"), "hosts were reached"
        complete(start(folder))
        return
    complete(resume_fleet(folder, None, {}, Wishes(Credentials(), FleetDisplay())))
