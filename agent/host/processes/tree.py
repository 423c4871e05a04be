"""Everything that a command started, found and ended: also what left its process group or its session.

Every child carries variables that its own children inherit: ``VCAGENT_RUN`` names the run, ``VCAGENT_STEP``
the step (empty for none), ``VCAGENT_PROCESS`` the command; ``VCAGENT_UNINTERRUPTIBLE`` is 1 or empty. A
process that detached itself (``setsid``, a double fork) still has them in ``/proc/<pid>/environ``.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RUN_VARIABLE = "VCAGENT_RUN"
STEP_VARIABLE = "VCAGENT_STEP"
PROCESS_VARIABLE = "VCAGENT_PROCESS"
UNINTERRUPTIBLE_VARIABLE = "VCAGENT_UNINTERRUPTIBLE"

_ROUNDS = 4
_DEATH_S = 3.0
"""Seconds that a killed process may take: one that waits for a dead disk or network mount never dies."""


def processes_carrying(variable: str, value: str) -> list[psutil.Process]:
    """Return this user's processes with that environment variable, except this process and its ancestors."""
    own = {os.getpid()}
    own.update(parent.pid for parent in psutil.Process().parents())
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) in own:
            continue
        try:
            ours = folder.stat().st_uid == os.getuid()
            if ours and environment_of(int(folder.name)).get(variable) == value:
                found.append(psutil.Process(int(folder.name)))
        except (OSError, psutil.Error):
            continue  # it ended meanwhile, or is not ours to look at
    return found


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with.

    Raises:
        OSError: if it is gone, or not readable for us.
    """
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def end_tree(pid: int, mark: str, grace_s: float) -> None:
    """End a command and all its descendants: SIGTERM, then SIGKILL after ``grace_s`` seconds.

    Args:
        pid: the command's process, a group leader.
        mark: the value of its ``VCAGENT_PROCESS``.
        grace_s: seconds between the two signals, if anything is left.
    """
    leader: psutil.Process | None = None
    with suppress(psutil.NoSuchProcess):
        leader = psutil.Process(pid)

    def tree() -> set[psutil.Process]:
        members = set(processes_carrying(PROCESS_VARIABLE, mark))
        if leader:
            members.add(leader)
            with suppress(psutil.NoSuchProcess):
                members |= set(leader.children(recursive=True))
        return members

    end_found(tree, grace_s)


def end_found(find: Callable[[], Iterable[psutil.Process]], grace_s: float) -> set[psutil.Process]:
    """End what is found as ``end_all`` does, and again at once what was forked while the signals went round.

    Returns:
        All that lived when it was found.
    """
    ended: set[psutil.Process] = set()
    for number in range(_ROUNDS):
        found = {process for process in find() if _alive(process)}
        if not found:
            break
        end_all(found, 0 if number else grace_s)
        ended |= found
    return ended


def end_all(processes: Iterable[psutil.Process], grace_s: float) -> None:
    """SIGTERM to all, SIGKILL to those that live after ``grace_s`` seconds; returns when they are gone.

    The oldest is the first: a shell whose child has ended goes on to its next line.
    """
    processes = sorted(processes, key=_begin)
    if grace_s > 0:
        for process in processes:
            _signal(process, kill=False)
        wait_for_all(processes, grace_s)
    for process in processes:
        _signal(process, kill=True)
    wait_for_all(processes, _DEATH_S)


def wait_for_all(processes: Iterable[psutil.Process], limit_s: float) -> None:
    """Wait until all have ended, no longer than ``limit_s`` seconds."""
    left = list(processes)
    deadline = time.monotonic() + limit_s
    while (left := [process for process in left if _alive(process)]) and time.monotonic() < deadline:
        time.sleep(0.01)


def _begin(process: psutil.Process) -> tuple[float, int]:
    with suppress(psutil.Error):
        return process.create_time(), process.pid
    return 0.0, process.pid  # it is gone


def _signal(process: psutil.Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.terminate()
    except psutil.Error:
        return  # gone, or its number belongs to another process now


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False
