"""The controller's disk becomes full: on a real small file system, at every point of a fleet run."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli import main as command
from agent.core.errors import ExitCode, HostError, UsageError
from agent.fleet import run as fleet_run
from agent.fleet.display import FleetDisplay
from agent.fleet.run import Wishes, resume_fleet
from agent.fleet.ssh.credentials import Credentials
from tests.agent.fleet.test_controller import fleet, start

__all__ = ["fleet"]

pytest.importorskip("fabric")

WISHES = Wishes(Credentials(), FleetDisplay())


@pytest.mark.usefixtures("fleet")
def test_a_run_whose_report_did_not_fit_is_completed_by_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(fleet_run, "write_outcome", full)
        with pytest.raises(HostError, match="No space left") as caught:
            start(tmp_path)
    assert "free some space on this machine, then resume the run" in str(caught.value)
    finished = resume_fleet(tmp_path, None, {}, WISHES)
    assert finished.exit_code is ExitCode.OK
    assert (finished.run_dir / "report.html").is_file()
    with pytest.raises(UsageError, match="is complete"):
        resume_fleet(tmp_path, None, {}, WISHES)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/results/x"),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/results/x"),
        sqlite3.OperationalError("database or disk is full"),
    ],
)
def test_a_full_disk_ends_the_command_with_a_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def app(**_: object) -> None:
        raise error

    monkeypatch.setattr(command, "_command_line", lambda _: app)
    monkeypatch.setattr(sys, "argv", ["vcagent", "runs"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == ExitCode.HOST_CANNOT_RUN
    assert "the disk is full: vcagent cannot write" in capsys.readouterr().err


def test_a_defect_shows_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def app(**_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(command, "_command_line", lambda _: app)
    monkeypatch.setattr(sys, "argv", ["vcagent", "runs"])
    with pytest.raises(KeyError):
        command.main()


def test_a_full_disk_of_the_controller_is_told_at_every_point(tmp_path: Path) -> None:
    """Mount the file system in a namespace of the test's own."""
    namespace = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("this host does not allow namespaces of mounts")
    script = 'mount -t tmpfs -o size=8m small "$1" && shift && exec "$@"'
    cases = Path(__file__).with_name("on_full_disk.py")
    command = [*namespace, "sh", "-c", script, "sh", str(tmp_path), sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-x", str(cases)],
        env={**os.environ, "SMALL_FILE_SYSTEM": str(tmp_path)},
        cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
