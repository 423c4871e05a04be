"""Ends all processes of a command in a container: Docker's API can start a command, but not end it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import docker.errors
import psutil

from agent.host.containers.client import EngineClient, LongAnswer, engine_errors, exec_output
from agent.host.containers.process_table import LISTING, host_entries, members, read_listing
from agent.host.processes.tree import end_all, end_found

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROUNDS = 4
_LIMIT_S = 30.0
"""Seconds for listing processes or sending signals."""

_POLL_S = 0.1


@dataclass(frozen=True)
class ProcessTree:
    """The processes of one command.

    Args:
        client: the connection.
        container: the container's id.
        mark: the value of ``VCAGENT_PROCESS`` of the command and its descendants.
        user: the user who runs it; only this user may read the process' variables.
    """

    client: EngineClient
    container: str
    mark: str
    user: str = ""

    def end(self, grace_s: float) -> bool:
        """Send SIGTERM, then SIGKILL after ``grace_s`` seconds; return True if there were processes.

        As root on the engine's host the signals come from outside and need nothing in the image; else from a
        shell inside, as the container's root.
        """
        if os.geteuid() == 0 and any(entry.mark == "+" for entry in host_entries(self.mark)):
            return bool(end_found(lambda: _processes(members(host_entries(self.mark))), grace_s))
        return self._end_from_inside(grace_s)

    def _end_from_inside(self, grace_s: float) -> bool:
        first = self.pids()
        _signal(self.client, self.container, "TERM", first)
        deadline = time.monotonic() + grace_s
        while (pids := self.pids()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        for _ in range(_ROUNDS):
            if not pids:
                break
            _signal(self.client, self.container, "KILL", pids)
            pids = self.pids()
        return bool(first)

    def pids(self, sign: str = "+") -> set[int]:
        """Return the process ids, as seen in the container, of its living processes."""
        listing = _output(self.client, self.container, ["sh", "-c", LISTING, "sh", self.mark], self.user)
        return members(read_listing(listing), mark=sign)


def end_others(client: EngineClient, container: str, agent: str) -> int:
    """End processes that a killed agent left running in a container; return their number.

    Args:
        client: the connection.
        container: the container's id.
        agent: the beginning of this agent's own marks, whose processes are kept.
    """
    if os.geteuid() == 0:
        inside = _host_pids(client, container)
        entries = [entry for entry in host_entries(agent) if entry.pid in inside]
        if entries:
            left = members(entries, mark="?")
            end_all(_processes(left), 0)
            return len(left)
    left = set()
    for user in ("", "0"):  # only the process's own user can read its variables
        left |= ProcessTree(client, container, agent, user).pids("?")
    _signal(client, container, "KILL", left)
    return len(left)


def _host_pids(client: EngineClient, container: str) -> set[int]:
    """Return the ids of a container's processes on the engine's host; none if the host has no ``ps``."""
    with suppress(docker.errors.APIError):
        return {int(row[0]) for row in client.top(container, "-eo pid")["Processes"]}
    return set()


def _processes(pids: set[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def _signal(client: EngineClient, container: str, name: str, pids: set[int]) -> None:
    if pids:
        script = 'kill -s "$@" 2>/dev/null; :'
        _output(client, container, ["sh", "-c", script, "sh", name, *map(str, sorted(pids))], "0")


def _output(client: EngineClient, container: str, command: Sequence[str], user: str) -> str:
    """Return the standard output of a short command in a container."""
    with engine_errors("the processes of the container cannot be looked at"):
        made = client.exec_create(container, list(command), user=user)
        answer = LongAnswer(client, lambda: exec_output(client, made["Id"]))
        parts: list[bytes] = []
        deadline = time.monotonic() + _LIMIT_S
        while not answer.ended and time.monotonic() < deadline:
            piece = answer.take()
            if piece and piece[0] == "stdout":
                parts.append(piece[1])
        answer.cancel()
    return b"".join(parts).decode(errors="replace")
