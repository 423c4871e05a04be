"""Allows one fleet run at a time on a machine: two would distort each other's results.

Another run may have reached the machine under another name, as another user, or through a queue.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import HostError
from agent.fleet.remote.standing import RESULTS, held
from agent.store.results import LOCK

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE_LOCK = "VCAGENT_MACHINE_LOCK"
"""A variable that names another file or folder to lock, for runs that are allowed to run side by side."""

_FOLDER = Path("/run")
"""The lock of all users. Each machine and container has its own; Slurm jobs see it, unlike /tmp."""
_PATIENCE_S = 10.0
"""Seconds to wait for a holder that is not a fleet run: a process about to end, or systemd-tmpfiles."""


@contextmanager
def machine_for_itself(run_dir: Path) -> Iterator[None]:
    """Lock the machine for one run; the lock ends with the process.

    Args:
        run_dir: the folder of the fleet run on this host.

    Raises:
        HostError: if another fleet run is active here; the message names it.
    """
    path = Path(os.environ.get(MACHINE_LOCK) or _FOLDER)
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(f"{path} cannot be locked for this run: {error.strerror}") from error
    try:
        _take(lock, run_dir)
        if other := _resumed_beside(run_dir):
            raise _occupied(other, run_dir)
        yield
    finally:
        os.close(lock)


def _take(lock: int, run_dir: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            other = _holder(os.fstat(lock).st_ino)
            if other or time.monotonic() > until:
                raise _occupied(other, run_dir) from error
            time.sleep(0.1)
        else:
            return


def _holder(inode: int) -> Path | None:
    """Return the run folder of the supervisor that holds a lock (proc(5): /proc/locks), or None."""
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            _, kind, _, _, process, where, *_ = [word for word in line.split() if word != "->"]
            if kind != "FLOCK" or where.rpartition(":")[2] != str(inode):
                continue
            with suppress(OSError, ValueError):
                words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
                return Path(words[words.index("supervise") + 1])
    return None


def _resumed_beside(run_dir: Path) -> Path | None:
    """Return the folder of another run that systemd resumed after a reboot, without a supervisor."""
    others = (lock.parents[1] for lock in run_dir.parent.glob(f"*/{RESULTS}/{LOCK}") if held(lock))
    return next((other for other in others if other != run_dir), None)


def _occupied(other: Path | None, run_dir: Path) -> HostError:
    run, _, host = other.name.partition(".") if other else ("", "", "")
    if not host:
        return HostError(
            "another fleet run is active on this machine", remedy="wait until it has ended, then try again"
        )
    if run == run_dir.name.partition(".")[0]:
        return HostError(
            f"this machine is already running host {host} of the same fleet run",
            remedy="the inventory lists it under two names: remove one of them",
        )
    return HostError(
        f"this machine is running fleet run {run}, as host {host}",
        remedy=f"finish that run first: vcagent fleet resume {run}; or wait until it has ended",
    )
