"""Reads ``nvidia-smi -q`` as text, in full or in part (``-d POWER``), once or in a loop, drivers 418 to 590.

A line is a key with a value, or a section's name; the indentation shows the section it belongs to.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parsers.nvidia_smi.devices import BY_NAME, Device, Seen
from parsers.nvidia_smi.readings import spoken
from parsers.nvidia_smi.said import said_in

if TYPE_CHECKING:
    from collections.abc import Mapping

_BEGIN = "NVSMI LOG"
_GPU = re.compile(r"GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_LINE = re.compile(r"(?P<indent> *)(?P<key>[^:]*?)\s*(?::(?P<value> .*| *))?")
_TEXTS: Mapping[str, str] = {
    "product name": "name",
    "gpu uuid": "uuid",
    "serial number": "serial",
    "performance state": "pstate",
    "mig mode/current": "mig.mode.current",
    "ecc mode/current": "ecc.mode.current",
    "persistence mode": "persistence_mode",
    "compute mode": "compute_mode",
    "pci/gpu link info/pcie generation/max": "pcie.link.gen.max",
}
_POWER = ("gpu power readings", "power readings")
_NAMES: Mapping[str, str] = {
    "utilization/gpu": "utilization",
    "utilization/memory": "memory_utilization",
    "utilization/encoder": "encoder_utilization",
    "utilization/decoder": "decoder_utilization",
    "temperature/gpu current temp": "temperature",
    "temperature/memory current temp": "memory_temperature",
    "fb memory usage/total": "memory_total",
    "fb memory usage/used": "memory_used",
    "fb memory usage/free": "memory_free",
    "fb memory usage/reserved": "memory_reserved",
    "clocks/graphics": "graphics_clock",
    "clocks/sm": "sm_clock",
    "clocks/memory": "memory_clock",
    "clocks/video": "video_clock",
    "max clocks/graphics": "max_graphics_clock",
    "max clocks/sm": "max_sm_clock",
    "max clocks/memory": "max_memory_clock",
    "fan speed": "fan_speed",
    "pci/gpu link info/pcie generation/current": "pcie_generation",
    "pci/gpu link info/link width/current": "pcie_width",
    "pci/replays since reset": "pcie_replays",
    "remapped rows/correctable error": "remapped_rows_corrected",
    "remapped rows/uncorrectable error": "remapped_rows_uncorrected",
    **{f"{section}/{key}": "power_draw_average"
       for section in _POWER for key in ("average power draw", "power draw")},
    **{f"{section}/{key}": "power_draw_instant"
       for section in _POWER for key in ("instantaneous power draw", "instant power draw")},
    **{f"{section}/{key}": "power_limit"
       for section in _POWER for key in ("current power limit", "power limit")},
    **{f"gpu memory power readings/{key}": "memory_power_draw"
       for key in ("average power draw", "power draw")},
    **{f"ecc errors/{when}/{where} {told}": f"ecc_{when}_{where}_{kind}_errors"
       for when in ("volatile", "aggregate") for where in ("sram", "dram")
       for told, kind in (("correctable", "corrected"), ("uncorrectable", "uncorrected"))},
    **{f"ecc errors/{when}/sram uncorrectable parity": f"ecc_{when}_sram_uncorrected_parity_errors"
       for when in ("volatile", "aggregate")},
    **{f"ecc errors/{when}/{bits} bit/{where}": f"ecc_{when}_{where.replace(' ', '_')}_{kind}_errors"
       for when in ("volatile", "aggregate") for where in ("device memory", "total")
       for bits, kind in (("single", "corrected"), ("double", "uncorrected"))},
}  # fmt: skip
_RESET = {"gpu reset status/reset required": "yes", "gpu recovery action": "reset"}


def has_log_text(text: str) -> bool:
    """Return True if a text is such a log."""
    return (
        _BEGIN in text
        and re.search(r"^GPU [0-9A-Fa-f]{4,8}:|^Attached GPUs ", text, re.MULTILINE) is not None
    )


def read_log_text(text: str) -> Seen:
    """Read every log of a text; an unterminated last line is ignored.

    Raises:
        ParseError: if a reading is not a number, or has an unexpected unit.
    """
    seen = Seen(complete=text.endswith("\n"))
    for log in text[: text.rfind("\n") + 1].split(_BEGIN)[1:]:
        _log(log, seen)
    return seen


def _log(text: str, seen: Seen) -> None:
    common: dict[str, str] = {}
    attached = ""
    found: list[Device] = []
    last_keys: list[str] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        if gpu := _GPU.fullmatch(line):
            found.append(Device(None, {**common, "pci.bus_id": gpu["bus"]}))
            last_keys.append("")
            path = []
            continue
        if reason := said_in(line):
            seen.said.append(reason)
            continue
        match = _LINE.fullmatch(line)
        if match is None or not match["key"]:
            continue
        indent, key = len(match["indent"]), match["key"].lower()
        value = (match["value"] or "").strip()
        if not found:
            common |= {"timestamp": value} if key == "timestamp" else {}
            common |= {"driver_version": value} if key == "driver version" else {}
            attached = value if key == "attached gpus" else attached
            continue
        while path and path[-1][0] >= indent:
            path.pop()
        if not path:
            last_keys[-1] = key
        path.append((indent, key))
        _take(found[-1], "/".join(name for _, name in path), value, seen)
    if attached == str(len(found)):  # nvidia-smi lists GPUs by their index
        for index, device in enumerate(found):
            device.index = index
    seen.complete &= len(set(last_keys)) <= 1
    seen.devices += found


def _take(device: Device, place: str, value: str, seen: Seen) -> None:
    if column := _TEXTS.get(place):
        device.texts[column] = spoken(value)
    elif (name := _NAMES.get(place)) and name not in device.numbers:
        device.take(BY_NAME[name], value)
    if value.lower() == _RESET.get(place) and (
        reason := said_in(f"GPU {device.texts['pci.bus_id']} requires reset")
    ):
        seen.said.append(reason)
