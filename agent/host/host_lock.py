"""Makes sure that one agent at a time changes a host, even with different results folders."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import DependencyFailedError, InterruptedRunError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from agent.core.progress import Progress

HOST_LOCK = "VCAGENT_HOST_LOCK"
"""A variable that names another file to lock."""

_FILE = Path("/run/vcagent-host.lock")
"""Owned by root, removed by a reboot; each machine and container has its own."""

_PATIENCE_S = 3600.0
"""Seconds for another agent's step, such as a driver whose module is built."""


@contextmanager
def host_for_itself(
    stop: threading.Event, progress: Progress, patience_s: float = _PATIENCE_S, poll_s: float = 0.5
) -> Iterator[None]:
    """Hold the host while a step changes it; the lock ends with the process, in any case.

    Args:
        stop: set when the run is asked to end.
        progress: receives a message during the wait.
        patience_s: seconds to wait for another agent.
        poll_s: seconds between two tries.

    Raises:
        DependencyFailedError: if another agent does not release it; names its process.
        InterruptedRunError: if the run was stopped meanwhile.
    """
    path = Path(os.environ.get(HOST_LOCK) or _FILE)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as lock:
        until = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read().strip() or "?"
            if time.monotonic() >= until:
                raise DependencyFailedError(
                    f"another vcagent (process {holder}) has been changing this host for more than "
                    f"{patience_s:.0f} s",
                    remedy="wait until it has ended, or end it; then run again",
                )
            progress.update(f"waiting for another vcagent (process {holder}), which changes this host")
            if stop.wait(poll_s):
                raise InterruptedRunError("told to stop while another vcagent changed this host")
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
