"""Readings of an AMD GPU under the same names as nvidia-smi's readings, and how to read their values.

amd-smi and rocm-smi share this table. A reading that only AMD reports has a name of its own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Relativity
from parsers.numbers import number
from parsers.nvidia_smi.readings import READINGS as NVIDIA_READINGS
from parsers.nvidia_smi.readings import UNITS, Reading, impossible

if TYPE_CHECKING:
    from parsers.nvidia_smi.devices import Device

_SHARED = (
    "utilization", "memory_utilization", "temperature", "memory_temperature", "power_draw_average",
    "graphics_clock", "memory_clock", "video_clock", "max_graphics_clock", "max_memory_clock",
    "memory_total", "memory_free", "memory_used", "power_limit", "fan_speed", "pcie_width", "pcie_replays",
    "ecc_volatile_total_corrected_errors", "ecc_volatile_total_uncorrected_errors",
    "ecc_volatile_dram_corrected_errors", "ecc_volatile_dram_uncorrected_errors",
)  # fmt: skip
_LOWER = Relativity.LOWER
CAUSES = ("ppt", "prochot", "socket_thermal", "vr_thermal", "hbm_thermal")
"""Causes of throttling on Instinct GPUs. amd-smi also counts idle time as a violation; it is omitted here."""
READINGS: dict[str, Reading] = {
    # VirtualClient's names belong to nvidia-smi.
    **{
        reading.name: replace(reading, virtualclient="")
        for reading in NVIDIA_READINGS
        if reading.name in _SHARED
    },
    **{
        reading.name: reading
        for reading in (
            Reading("edge_temperature", (), unit="C", relativity=_LOWER),
            Reading("hotspot_temperature", (), unit="C", relativity=_LOWER),
            Reading("memory_allocated", (), unit="%"),
            Reading("ecc_volatile_total_deferred_errors", (), relativity=_LOWER),
            Reading("energy_consumed", (), unit="joules"),
            Reading("pcie_bandwidth", (), unit="Mb/s"),
            Reading("xgmi_received", (), unit="KiB"),
            Reading("xgmi_transmitted", (), unit="KiB"),
            *(Reading(f"throttle_{cause}", (), unit="%", relativity=_LOWER) for cause in CAUSES),
        )
    },
}
_UNITS = {
    "KB": "KiB",
    "MB": "MiB",
    "GB": "GiB",
    "°C": "C",
    "°c": "C",
    "c": "C",
    "Mhz": "MHz",
    "J": "joules",
    "B": "bytes",
}
"""AMD's spellings of units. Its MB are MiB: the tool divides bytes by 1024²; its KB are taken likewise."""
_WITH_UNIT = re.compile(r"\(?(-?\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z%°]*)\)?", re.ASCII)
_LARGEST = 1e18
_UNKNOWN = 0xFFFF
"""The driver's mark for a value that this GPU does not have."""


def take(device: Device, name: str, value: object) -> bool:
    """Take the value of a reading; return False if the tool did not know the value.

    Args:
        device: the GPU of the value.
        name: the reading's name in `READINGS`.
        value: a number, ``N/A``, a text such as ``(300Mhz)``, or an object with ``value`` and ``unit``.

    Raises:
        ParseError: if the value is not a number, or its unit does not fit the reading.
    """
    reading, unit = READINGS[name], ""
    if isinstance(value, dict):
        unit, value = str(value.get("unit") or ""), value.get("value")
    if isinstance(value, str):
        if value.strip().lower().startswith(("n/a", "unsupported", "none")):
            return False
        if found := _WITH_UNIT.fullmatch(value.strip()):
            value, unit = found[1], found[2] or unit
    found_number = number(value, name)
    unit = _UNITS.get(unit, unit) or reading.unit
    if _base(unit) != _base(reading.unit):
        raise ParseError(
            f"{name} is in {unit[:20]!r}, not in {reading.unit}", remedy="see whether the file was changed"
        )
    if abs(found_number or 0) > _LARGEST:
        raise ParseError(
            f"{name} is {found_number:g}, which no GPU has", remedy="see whether the file was changed"
        )
    if found_number is None or (found_number == _UNKNOWN and reading.unit != "count"):
        return False
    if beyond := impossible(reading, found_number):
        text, code = beyond
        which = f"{name} of GPU {device.label.strip('_')}"
        device.impossible.append((f"{which} is {str(value)[:60]}, which is {text}", code))
    else:
        device.numbers[name] = (found_number, unit)
    return True


def take_first(device: Device, name: str, *values: object) -> None:
    """Take the first of several values that the tool knew; arguments as for `take`."""
    any(take(device, name, value) for value in values)


def choose_temperature(device: Device) -> None:
    """Set the GPU's temperature to the hotspot's, which every Instinct GPU has, or else to the edge's."""
    for sensor in ("hotspot_temperature", "edge_temperature"):
        if sensor in device.numbers:
            device.numbers["temperature"] = device.numbers[sensor]
            return


def _base(unit: str) -> str:
    return UNITS.get(unit, (unit, 1.0))[0]
