"""The processor: model, cores, and the instruction sets that engines look for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import HostError
from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PROCESSOR", "Processor", "cpuinfo"]

_OF_INTEREST = frozenset(
    {
        "avx",
        "avx2",
        "f16c",
        "fma",
        "bmi2",
        "avx512f",
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512vl",
        "avx512_bf16",
        "avx512_fp16",
        "avx512_vnni",
        "avx_vnni",
    }
    | {"amx_tile", "amx_bf16", "amx_int8", "asimd", "asimddp", "bf16", "i8mm", "sve", "sve2"}
)


@dataclass(frozen=True)
class Processor:
    """The host's processors.

    Args:
        model: the name that the processor gives itself; None where it gives none (as on arm64).
        logical_cores: hardware threads that are online.
        physical_cores: cores; None where the host does not tell.
        sockets: packages; None where the host does not tell.
        flags: instruction sets of interest to engines, as the kernel names them. Being listed does
            not mean usable: some virtual machines advertise AMX and trap it.
    """

    model: str | None
    logical_cores: int
    physical_cores: int | None = None
    sockets: int | None = None
    flags: frozenset[str] = frozenset()


def cpuinfo(text: str, core_ids: Mapping[str, tuple[str, str]] | None = None) -> Processor:
    """Read ``/proc/cpuinfo``.

    Args:
        text: its text.
        core_ids: the package and core of each logical core, from sysfs, for kernels whose cpuinfo
            says nothing of them (arm64).

    Raises:
        HostError: if it names no processor.
    """
    cores: list[dict[str, str]] = []
    for block in text.strip().split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        values = {name.strip(): value.strip() for name, separator, value in pairs if separator}
        if "processor" in values:
            cores.append(values)
    if not cores:
        raise HostError("/proc/cpuinfo names no processor", remedy="mount /proc")
    places = {
        (core["physical id"], core["core id"]) for core in cores if {"physical id", "core id"} <= set(core)
    }
    places = places or set((core_ids or {}).values())
    flags = set((cores[0].get("flags") or cores[0].get("Features") or "").split())
    return Processor(
        model=cores[0].get("model name"),
        logical_cores=len(cores),
        physical_cores=len(places) or None,
        sockets=len({package for package, _ in places}) or None,
        flags=frozenset(flags & _OF_INTEREST),
    )


def _read(host: Host) -> Processor:
    folder = "/sys/devices/system/cpu"
    core_ids = {}
    for name in host.names(folder):
        package = host.text(f"{folder}/{name}/topology/physical_package_id")
        core = host.text(f"{folder}/{name}/topology/core_id")
        if package and core:
            core_ids[name] = (package.strip(), core.strip())
    return cpuinfo(host.text("/proc/cpuinfo") or "", core_ids)


PROCESSOR: Fact[Processor] = Fact("processor", "/proc/cpuinfo, /sys/devices/system/cpu/*/topology", _read)
