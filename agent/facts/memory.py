"""The host's memory, read by psutil."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.errors import HostError
from agent.facts.base import Fact, Host


@dataclass(frozen=True)
class Memory:
    """The host's memory, in bytes.

    Args:
        total_bytes: memory that the kernel may use.
        available_bytes: memory that new programs may use without swapping.
        swap_bytes: size of all swap areas.
    """

    total_bytes: int
    available_bytes: int
    swap_bytes: int


def _read(_: Host) -> Memory:
    import psutil

    try:
        memory = psutil.virtual_memory()
        return Memory(memory.total, memory.available, psutil.swap_memory().total)
    except (OSError, RuntimeError, KeyError) as error:
        raise HostError(f"the size of the memory is unknown: {error}", remedy="mount /proc") from error


MEMORY: Fact[Memory] = Fact("memory", "psutil: /proc/meminfo", _read)
