"""Everything that a command started, found and ended: also what left its process group or its session.

Every child carries two variables that its own children inherit: ``VCAGENT_RUN`` names the run and
``VCAGENT_PROCESS`` the command. A process that detached itself (``setsid``, a double fork) still has them
in ``/proc/<pid>/environ``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PROCESS_VARIABLE", "RUN_VARIABLE", "end_all", "end_tree", "processes_carrying"]

RUN_VARIABLE = "VCAGENT_RUN"
PROCESS_VARIABLE = "VCAGENT_PROCESS"

_ROUNDS = 3
_DEATH_S = 3.0
"""Seconds that a killed process may take: one that waits for a dead disk or network mount never dies."""


def processes_carrying(variable: str, value: str) -> list[psutil.Process]:
    """The processes of this user with that environment variable; never this process or its ancestors."""
    wanted = f"{variable}={value}".encode()
    own = {os.getpid()}
    own.update(parent.pid for parent in psutil.Process().parents())
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) in own:
            continue
        try:
            if folder.stat().st_uid == os.getuid() and wanted in (folder / "environ").read_bytes().split(
                b"\0"
            ):
                found.append(psutil.Process(int(folder.name)))
        except (OSError, psutil.Error):
            continue  # it ended meanwhile, or is not ours to look at
    return found


def end_tree(pid: int, mark: str, grace_s: float) -> None:
    """End a command and all its descendants: SIGTERM, then SIGKILL after ``grace_s`` seconds.

    Args:
        pid: the command's process, a group leader; not yet waited for, so its number is still its own.
        mark: the value of its ``VCAGENT_PROCESS``.
        grace_s: seconds between the two signals, if anything is left.
    """

    def tree() -> set[psutil.Process]:
        members = set(processes_carrying(PROCESS_VARIABLE, mark))
        try:
            leader = psutil.Process(pid)
            members |= {leader, *leader.children(recursive=True)}
        except psutil.NoSuchProcess:
            pass
        return members

    end_all(tree(), grace_s)
    for _ in range(_ROUNDS):  # for what was forked while the signals went round
        left = {process for process in tree() if _alive(process)}
        if not left:
            break
        end_all(left, 0)


def end_all(processes: Iterable[psutil.Process], grace_s: float) -> None:
    """SIGTERM to all, SIGKILL to those that live after ``grace_s`` seconds; returns when they are gone."""
    processes = list(processes)
    if grace_s > 0:
        for process in processes:
            _signal(process, kill=False)
        deadline = time.monotonic() + grace_s
        while any(map(_alive, processes)) and time.monotonic() < deadline:
            time.sleep(0.01)
    for process in processes:
        _signal(process, kill=True)
    deadline = time.monotonic() + _DEATH_S
    while any(map(_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.005)


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
