"""The host's memory."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.errors import HostError
from agent.facts.base import Fact, Host

__all__ = ["MEMORY", "Memory", "meminfo"]


@dataclass(frozen=True)
class Memory:
    """The host's memory, in bytes.

    Args:
        total_bytes: what the kernel may use.
        available_bytes: what new programs may use without swapping; None before Linux 3.14.
        swap_bytes: the size of all swap areas.
    """

    total_bytes: int
    available_bytes: int | None = None
    swap_bytes: int = 0


def meminfo(text: str) -> Memory:
    """Read ``/proc/meminfo``; its unit kB means 1024 bytes (proc(5)).

    Raises:
        HostError: if it does not tell the total.
    """
    values = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if (number := value.split()[:1]) and number[0].isdigit():
            values[name] = int(number[0]) * 1024
    if "MemTotal" not in values:
        raise HostError("/proc/meminfo does not tell the size of the memory", remedy="mount /proc")
    return Memory(values["MemTotal"], values.get("MemAvailable"), values.get("SwapTotal", 0))


def _read(host: Host) -> Memory:
    return meminfo(host.text("/proc/meminfo") or "")


MEMORY: Fact[Memory] = Fact("memory", "/proc/meminfo", _read)
