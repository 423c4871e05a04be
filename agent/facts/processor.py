"""The processor: model, cores, and instruction sets that engines use."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.errors import HostError
from agent.facts.base import Fact, Host

_OF_INTEREST = frozenset(
    [
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
        "amx_tile",
        "amx_bf16",
        "amx_int8",
        "asimd",
        "asimddp",
        "bf16",
        "i8mm",
        "sve",
        "sve2",
    ]
)


@dataclass(frozen=True)
class Processor:
    """The host's processors.

    Args:
        model: its own name for itself; None if it has none (as on arm64).
        logical_cores: hardware threads that are online.
        physical_cores: cores; None if unknown.
        sockets: packages; None if unknown.
        flags: instruction sets of interest to engines, under the kernel's names. Being listed does
            not mean usable: some virtual machines advertise AMX and trap it.
    """

    model: str | None
    logical_cores: int
    physical_cores: int | None = None
    sockets: int | None = None
    flags: frozenset[str] = frozenset()


def cpuinfo(text: str) -> tuple[str | None, frozenset[str]]:
    """Return the model's name, None if it has none, and the flags of interest from ``/proc/cpuinfo``."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator:
            values.setdefault(name.strip(), value.strip())
    flags = (values.get("flags") or values.get("Features") or "").split()
    return values.get("model name"), frozenset(flags) & _OF_INTEREST


def _read(host: Host) -> Processor:
    import psutil

    logical = psutil.cpu_count()
    if logical is None:
        raise HostError("the number of processors is unknown", remedy="mount /proc")
    folder = "/sys/devices/system/cpu"
    packages = {host.text(f"{folder}/{name}/topology/physical_package_id") for name in host.names(folder)}
    model, flags = cpuinfo(host.text("/proc/cpuinfo") or "")
    return Processor(model, logical, psutil.cpu_count(logical=False), len(packages - {None}) or None, flags)


PROCESSOR: Fact[Processor] = Fact(
    "processor", "psutil, /proc/cpuinfo, /sys/devices/system/cpu/*/topology", _read
)
