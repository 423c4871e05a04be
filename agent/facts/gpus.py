"""NVIDIA GPUs: from the PCI bus, which needs no driver, and from the driver if it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.facts.base import Fact, Host

_PCI = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
_BRIDGE_CLASS = "0x0680"  # NVSwitch: PCI class 06 (bridge), subclass 80 (other)
_QUERY = (
    "nvidia-smi",
    "--query-gpu=pci.bus_id,name,memory.total,driver_version,mig.mode.current",
    "--format=csv,noheader,nounits",
)
_ABSENT = frozenset(
    {"", "n/a", "[n/a]", "[not supported]", "[unknown error]", "err!", "[gpu requires reset]"}
)


@dataclass(frozen=True)
class Gpu:
    """One GPU; an unknown value is None.

    Args:
        bus_id: its PCI address, such as ``0000:3b:00.0``.
        pci_id: its PCI device number, such as ``0x2330``.
        name: its name, as reported by the driver.
        memory_mib: its memory in MiB, as reported by the driver.
        driver: the version of the driver that answers for it.
        mig: True if it is split into instances (MIG).
        subsystem: its PCI subsystem number, such as ``0x1482``.
    """

    bus_id: str
    pci_id: str | None = None
    name: str | None = None
    memory_mib: int | None = None
    driver: str | None = None
    mig: bool | None = None
    subsystem: str | None = None


PciDevice = Mapping[str, str]
"""Files in a folder of /sys/bus/pci/devices: ``vendor``, ``class``, ``device``, ``subsystem_device``."""


def pci_bus_id(text: str) -> str:
    """Return a PCI address in sysfs' form: nvidia-smi has ``00000000:3B:00.0`` for ``0000:3b:00.0``."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def pci_gpus(devices: Mapping[str, PciDevice]) -> tuple[Gpu, ...]:
    """Return the NVIDIA display controllers among the devices of a PCI bus, by address."""
    return tuple(
        Gpu(bus_id=address, pci_id=device.get("device"), subsystem=device.get("subsystem_device") or None)
        for address, device in sorted(devices.items())
        if device.get("vendor") == _NVIDIA and device.get("class", "").startswith(_DISPLAY_CLASS)
    )


def query_gpu(text: str) -> tuple[Gpu, ...]:
    """Read the output of ``nvidia-smi --query-gpu``; ``[N/A]`` and ``[Not Supported]`` are absent."""
    gpus = []
    for line in text.splitlines():
        values = [None if part.strip().lower() in _ABSENT else part.strip() for part in line.split(",")]
        if len(values) != _QUERY[1].count(",") + 1:
            continue
        bus_id, name, memory, driver, mig = values
        if not bus_id or ":" not in bus_id:
            continue
        gpus.append(
            Gpu(
                bus_id=pci_bus_id(bus_id),
                name=name,
                memory_mib=int(float(memory)) if memory and re.fullmatch(r"[\d.]+", memory) else None,
                driver=driver,
                mig=None if mig is None else mig == "Enabled",
            )
        )
    return tuple(gpus)


def merge_gpus(on_bus: tuple[Gpu, ...], answered: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs of bus and driver combined, including those that only one of them has."""
    merged = {gpu.bus_id: gpu for gpu in on_bus}
    for gpu in answered:
        there = merged.get(gpu.bus_id, gpu)
        merged[gpu.bus_id] = replace(gpu, pci_id=there.pci_id, subsystem=there.subsystem)
    return tuple(merged[bus_id] for bus_id in sorted(merged))


def driver_version(text: str | None) -> str | None:
    """Return the loaded module's version, from ``/proc/driver/nvidia/version``."""
    match = re.search(r"Kernel Module.*?\s(\d{3,}\.\d[\d.]*)\s", text or "")
    return match.group(1) if match else None


def cuda_version(text: str | None) -> str | None:
    """Return the newest CUDA that the driver supports, from the header of ``nvidia-smi``."""
    match = re.search(r"CUDA(?: \w+)? Version\s*:\s*(\d+\.\d+)", text or "")
    return match.group(1) if match else None


def _devices(host: Host) -> dict[str, PciDevice]:
    return {
        address: {
            name: (host.text(f"{_PCI}/{address}/{name}") or "").strip()
            for name in ("vendor", "class", "device", "subsystem_device")
        }
        for address in host.names(_PCI)
    }


def _gpus(host: Host) -> tuple[Gpu, ...]:
    return merge_gpus(pci_gpus(_devices(host)), query_gpu(host.output(_QUERY, timeout_s=30) or ""))


def _count(host: Host) -> int | None:
    # Without a bus to read and without a GPU that answers, the count is unknown.
    gpus = _gpus(host)
    return len(gpus) if gpus or host.names(_PCI) else None


def _nvswitches(host: Host) -> int | None:
    if not host.names(_PCI):
        return None
    devices = _devices(host).values()
    return sum(
        device["vendor"] == _NVIDIA and device["class"].startswith(_BRIDGE_CLASS) for device in devices
    )


def _first(host: Host) -> Gpu | None:
    return next(iter(_gpus(host)), None)


_SOURCE = f"{_PCI}, nvidia-smi --query-gpu"

GPUS: Fact[tuple[Gpu, ...]] = Fact("gpus", _SOURCE, _gpus)
GPU_COUNT: Fact[int | None] = Fact("gpu_count", _SOURCE, _count)
GPU_NAME: Fact[str | None] = Fact(
    "gpu_name", _SOURCE, lambda host: gpu.name if (gpu := _first(host)) else None
)
GPU_MEMORY_MIB: Fact[int | None] = Fact(
    "gpu_memory_mib", _SOURCE, lambda host: gpu.memory_mib if (gpu := _first(host)) else None
)
NVSWITCH_COUNT: Fact[int | None] = Fact("nvswitch_count", _PCI, _nvswitches)
DRIVER_VERSION: Fact[str | None] = Fact(
    "driver_version",
    "/proc/driver/nvidia/version",
    lambda host: driver_version(host.text("/proc/driver/nvidia/version")),
)
CUDA_VERSION: Fact[str | None] = Fact(
    "cuda_version", "nvidia-smi", lambda host: cuda_version(host.output(["nvidia-smi"], timeout_s=30))
)
