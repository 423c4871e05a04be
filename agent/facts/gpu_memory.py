"""Memory of the GPUs, the processes that use it, and processes left over from vcagent's runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.facts.base import Fact, Host

_MEMORY = ("nvidia-smi", "--query-gpu=index,uuid,memory.total,memory.free", "--format=csv,noheader,nounits")
_APPS = (
    "nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_gpu_memory", "--format=csv,noheader,nounits"
)  # fmt: skip
_RUN = re.compile(r"(?:^|\0)VCAGENT_RUN=([^\0]+)")
"""The variable that every child of an agent inherits (``agent.host.processes.tree``)."""
_REAPERS = frozenset({"systemd", "init", "tini", "dumb-init", "docker-init"})
"""Programs besides process 1 that adopt orphans (prctl(2), PR_SET_CHILD_SUBREAPER)."""
_AGENT = re.compile(r"vcagent|-m\0agent\0")
"""The agent as process 1, in a container."""
_MIB = 1024 * 1024
_COMMAND_LENGTH = 120


@dataclass(frozen=True)
class GpuMemory:
    """One GPU's memory.

    Args:
        index: its index in the driver's order.
        uuid: its UUID.
        total_bytes: its total memory.
        free_bytes: its free memory.
    """

    index: int
    uuid: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class MemoryHolder:
    """A process that uses memory of GPUs.

    Args:
        pid: its number.
        uuids: the GPUs.
        bytes_held: its total in bytes; None if unknown.
        user: its owner; a number if it has no name here; empty if unknown.
        command: its command line, shortened; empty if unknown.
        run_id: the run of vcagent that started it; empty for any other process.
        is_leftover: True if that run's agent no longer exists.
    """

    pid: int
    uuids: tuple[str, ...]
    bytes_held: int | None = None
    user: str = ""
    command: str = ""
    run_id: str = ""
    is_leftover: bool = False

    def __str__(self) -> str:
        """Return a readable form: process, user, memory, command."""
        held = "memory unknown" if self.bytes_held is None else f"{self.bytes_held / 2**30:.1f} GiB"
        whose = f"user {self.user}" if self.user else "user unknown"
        run = f", of vcagent's run {self.run_id}" if self.run_id else ""
        return f"process {self.pid} ({whose}, {held}{run}): {self.command or 'command unknown'}"


def gpu_memory(text: str | None) -> tuple[GpuMemory, ...]:
    """Read ``nvidia-smi --query-gpu=index,uuid,memory.total,memory.free`` in MiB."""
    found = []
    for line in (text or "").splitlines():
        index, uuid, total, free = ([part.strip() for part in line.split(",")] + [""] * 4)[:4]
        if index.isdigit() and total.isdigit() and free.isdigit():
            found.append(GpuMemory(int(index), uuid, int(total) * _MIB, int(free) * _MIB))
    return tuple(found)


def memory_holders(text: str | None) -> dict[int, tuple[tuple[str, ...], int | None]]:
    """Read ``nvidia-smi --query-compute-apps``: GPUs and bytes by process, from a line per GPU."""
    found: dict[int, tuple[tuple[str, ...], int | None]] = {}
    for line in (text or "").splitlines():
        uuid, pid, held = ([part.strip() for part in line.split(",")] + [""] * 3)[:3]
        if not pid.isdigit():
            continue
        uuids, before = found.get(int(pid), ((), 0))
        told = int(held) * _MIB if held.isdigit() else None
        found[int(pid)] = (
            (*uuids, uuid), None if told is None or before is None else before + told
        )  # fmt: skip
    return found


def _holder(host: Host, pid: int, uuids: tuple[str, ...], held: int | None) -> MemoryHolder:
    run = _run_of(host, pid)
    command = (host.text(f"/proc/{pid}/cmdline") or "").replace("\0", " ").strip()
    user = (host.output(["stat", "--format=%U %u", f"/proc/{pid}"]) or "").split()
    return MemoryHolder(
        pid=pid,
        uuids=uuids,
        bytes_held=held,
        user=(user[1] if user[0] == "UNKNOWN" else user[0]) if len(user) > 1 else "",
        command=command[:_COMMAND_LENGTH],
        run_id=run,
        is_leftover=bool(run) and not _is_under_way(host, run),
    )


def _is_under_way(host: Host, run_id: str) -> bool:
    """Return True if the agent of a run still exists: it is an ancestor of any of the run's processes."""
    processes = (int(name) for name in host.names("/proc") if name.isdigit())
    return any(_run_of(host, pid) == run_id and _has_agent(host, pid) for pid in processes)


def _has_agent(host: Host, pid: int) -> bool:
    """Return True if the agent that started a process still exists, or if that is unknown.

    An agent's children have its run's id in their environment, but the agent does not: the first ancestor
    without it is the agent, or the process that adopts orphans.
    """
    ancestor = _parent(host, pid)
    while ancestor and _run_of(host, ancestor):
        ancestor = _parent(host, ancestor)
    if ancestor == 1:
        return bool(_AGENT.search(host.text("/proc/1/cmdline") or ""))
    return (host.text(f"/proc/{ancestor}/comm") or "").strip() not in _REAPERS


def _run_of(host: Host, pid: int) -> str:
    run = _RUN.search(host.text(f"/proc/{pid}/environ") or "")
    return run[1] if run else ""


def _parent(host: Host, pid: int) -> int | None:
    match = re.search(r"^PPid:\s*(\d+)", host.text(f"/proc/{pid}/status") or "", re.MULTILINE)
    return int(match[1]) if match else None


GPU_MEMORY: Fact[tuple[GpuMemory, ...]] = Fact(
    "gpu_memory", "nvidia-smi --query-gpu", lambda host: gpu_memory(host.output(_MEMORY, timeout_s=30))
)
GPU_MEMORY_HOLDERS: Fact[tuple[MemoryHolder, ...]] = Fact(
    "gpu_memory_holders",
    "nvidia-smi --query-compute-apps, /proc",
    lambda host: tuple(
        _holder(host, pid, uuids, held)
        for pid, (uuids, held) in sorted(memory_holders(host.output(_APPS, timeout_s=30)).items())
    ),
)
