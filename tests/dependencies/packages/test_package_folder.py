from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import DependencyFailedError, InterruptedRunError
from dependencies.packages.package_folder import locked, write_whole
from tests.waiting import LIMIT_S, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dependencies.conftest import RealHost


def test_another_agent_is_waited_for_and_named(real_host: RealHost) -> None:
    context = real_host.context
    entered = threading.Event()

    def second() -> None:
        with locked(context.package_dir, "tiny", context, poll_s=0.01):
            entered.set()

    with locked(context.package_dir, "tiny", context):
        thread = threading.Thread(target=second)
        thread.start()
        wait_for(lambda: real_host.messages.texts)
        assert real_host.messages.texts[0] == f"waiting for process {os.getpid()}, which prepares tiny"
        assert not entered.is_set()
    thread.join(LIMIT_S)
    assert entered.is_set()
    with locked(context.package_dir, "tiny", context):
        context.stop.set()
        with pytest.raises(InterruptedRunError), locked(context.package_dir, "tiny", context):
            pass


@pytest.mark.parametrize("plant", ["link", "hard link", "fifo", "folder", "link to a folder"])
def test_what_is_planted_as_a_lock_is_not_touched(real_host: RealHost, tmp_path: Path, plant: str) -> None:
    context = real_host.context
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "tiny.lock").write_text("precious")
    locks = context.package_dir / ".locks"
    if plant == "link to a folder":
        locks.symlink_to(victim)
    else:
        locks.mkdir()
        lock = locks / "tiny.lock"
        make = {
            "link": lambda: lock.symlink_to(victim / "tiny.lock"),
            "hard link": lambda: lock.hardlink_to(victim / "tiny.lock"),
            "fifo": lambda: os.mkfifo(lock),
            "folder": lock.mkdir,
        }
        make[plant]()
    with (
        pytest.raises(DependencyFailedError, match="cannot be used as a lock") as error,
        locked(context.package_dir, "tiny", context),
    ):
        pass
    assert "see who made it" in (error.value.remedy or "")
    assert (victim / "tiny.lock").read_text() == "precious"


def test_a_lock_is_for_nobody_else(real_host: RealHost) -> None:
    context = real_host.context
    for _ in range(2):
        with locked(context.package_dir, "tiny", context):
            lock = context.package_dir / ".locks" / "tiny.lock"
            assert lock.read_text() == str(os.getpid())
            assert lock.stat().st_mode & 0o777 == 0o600


def test_a_file_may_be_for_nobody_else(tmp_path: Path) -> None:
    path, victim = tmp_path / "file", tmp_path / "victim"
    victim.write_text("precious")
    path.with_name("file.part").symlink_to(victim)
    write_whole(path, "secret", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert (path.read_text(), victim.read_text()) == ("secret", "precious")
