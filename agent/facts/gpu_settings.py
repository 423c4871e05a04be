"""NVIDIA GPUs with the settings that decide how fast they are: power limit, clocks, MIG, fabric."""

from __future__ import annotations

from dataclasses import dataclass

from agent.facts.base import Fact, Host
from agent.facts.gpus import pci_bus_id

_COLUMNS = (
    "pci.bus_id", "uuid", "name", "driver_version", "vbios_version", "memory.total", "power.limit",
    "clocks.max.sm", "clocks.max.memory", "clocks.sm", "clocks.mem", "mig.mode.current",
    "persistence_mode", "ecc.mode.current",
)  # fmt: skip
_FABRIC = ("pci.bus_id", "fabric.state", "fabric.status")
"""Drivers before 525 do not know these two and refuse the whole question."""


@dataclass(frozen=True)
class GpuSettings:
    """A GPU's values as nvidia-smi names them; what the driver does not tell is left out.

    Args:
        bus_id: its PCI address.
        texts: such as ``uuid`` and ``mig.mode.current``.
        numbers: such as ``power.limit`` in watts, clocks in MHz, ``memory.total`` in MiB.
    """

    bus_id: str
    texts: dict[str, str]
    numbers: dict[str, float]


def gpu_settings(text: str | None, columns: tuple[str, ...] = _COLUMNS) -> tuple[GpuSettings, ...]:
    """Read ``nvidia-smi --query-gpu=… --format=csv,noheader,nounits``."""
    found = []
    for line in (text or "").splitlines():
        values = [part.strip() for part in line.split(",")]
        if len(values) != len(columns) or ":" not in values[0]:
            continue
        texts: dict[str, str] = {}
        numbers: dict[str, float] = {}
        for column, value in zip(columns[1:], values[1:], strict=True):
            if column.startswith(("memory.", "power.", "clocks.")):
                if value.replace(".", "", 1).isdigit():
                    numbers[column] = float(value)
            elif value and not value.upper().startswith(("[N", "N/A", "[UNKNOWN", "ERR")):
                texts[column] = value
        found.append(GpuSettings(pci_bus_id(values[0]), texts, numbers))
    return tuple(found)


def _ask(host: Host, columns: tuple[str, ...]) -> tuple[GpuSettings, ...]:
    command = ["nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"]
    return gpu_settings(host.output(command, timeout_s=30), columns)


def _read(host: Host) -> tuple[GpuSettings, ...]:
    gpus = _ask(host, _COLUMNS)
    fabric = {gpu.bus_id: gpu.texts for gpu in _ask(host, _FABRIC)} if gpus else {}
    return tuple(
        GpuSettings(gpu.bus_id, {**gpu.texts, **fabric.get(gpu.bus_id, {})}, gpu.numbers) for gpu in gpus
    )


GPU_SETTINGS: Fact[tuple[GpuSettings, ...]] = Fact("gpu_settings", "nvidia-smi --query-gpu", _read)
