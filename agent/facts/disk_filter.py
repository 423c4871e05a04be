"""VirtualClient's language for choosing disks: ``OSDisk:false&SizeGreaterThan:1000gb``.

Source: microsoft/VirtualClient, VirtualClient.Contracts/DiskFilters.cs and TextParsingExtensions.cs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.core.names import did_you_mean
from agent.facts.disks import BlockDevice

Disks = tuple[BlockDevice, ...]
Keep = Callable[[BlockDevice, Disks], bool]
"""Returns True if a disk is kept; gets all remaining disks."""

_UNITS = "bkmgtp"
_SLACK = 0.01
"""Disks rarely have exactly their nominal size."""


def size_of(text: str) -> float:
    """Return the bytes in ``1000gb``, ``1.5 TiB``, ``4096``; units count by 1024, as in VirtualClient.

    Raises:
        ValueError: if it is not a size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(?:([kmgtp])(?:i?b)?|b)?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not a size: write 500gb, 1.5tb, or bytes")
    power = _UNITS.index((match.group(2) or "b").lower())
    return float(float(match.group(1)) * 1024**power)


def parse_disk_filter(text: str) -> tuple[Keep, ...]:
    """Return the filters in a text, in order.

    Raises:
        ValueError: if one of them is unknown or its value is wrong.
    """
    return tuple(_parse(part) for part in text.split("&") if part.strip())


def filter_disks(devices: Disks, text: str) -> Disks:
    """Return the disks that a filter selects; a loop device only if its path is named.

    Args:
        devices: all block devices.
        text: the filter; if empty, VirtualClient's default: the biggest disks.
    """
    text = text if text.strip() else "BiggestSize"
    names = {part.partition(":")[0].strip().lower() for part in text.split("&")}
    kinds = (
        {"disk"} | ({"loop"} if "diskpath" in names else set()) | ({"lvm"} if "logical" in names else set())
    )
    found = {device.path: device for top in devices for device in top.walk() if device.kind in kinds}
    disks = tuple(device for device in found.values() if device.is_disk or device.kind in ("loop", "lvm"))
    for keep in parse_disk_filter(text):
        disks = tuple(disk for disk in disks if keep(disk, disks))
    return disks


def _parse(part: str) -> Keep:
    name, _, value = (piece.strip() for piece in part.partition(":"))
    make = _FILTERS.get(name.lower())
    if make is None:
        raise ValueError(f"{name!r} is not a disk filter; {did_you_mean(name, _FILTERS)}")
    return make(value)


def _between(least: float, most: float) -> Keep:
    return lambda disk, _: least <= disk.size_bytes <= most


def _extreme(choose: Callable[[list[int]], int]) -> Keep:
    return lambda disk, disks: disk.size_bytes == choose([other.size_bytes for other in disks])


def _os_disk(value: str) -> Keep:
    if value.lower() not in ("", "true", "false"):
        raise ValueError(f"OSDisk is true or false, not {value!r}")
    return lambda disk, _: disk.holds_system == (value.lower() != "false")


def _disk_path(value: str) -> Keep:
    paths = {path.strip() for path in value.split(",")}
    return lambda disk, _: bool(paths & {disk.path, *_points(disk)})


def _points(disk: BlockDevice) -> set[str]:
    return {point for device in disk.walk() for point in device.mount_points}


_FILTERS: dict[str, Callable[[str], Keep]] = {
    "none": lambda _: lambda _disk, _disks: True,
    "includeoffline": lambda _: lambda _disk, _disks: True,  # Windows
    "biggestsize": lambda _: _extreme(max),
    "smallestsize": lambda _: _extreme(min),
    "sizegreaterthan": lambda value: _between(size_of(value), float("inf")),
    "sizelessthan": lambda value: _between(0, size_of(value)),
    "sizeequalto": lambda value: _between(size_of(value) * (1 - _SLACK), size_of(value) * (1 + _SLACK)),
    "osdisk": _os_disk,
    "diskpath": _disk_path,
    "accesspath": lambda value: (
        lambda disk, _: any(value.lower() in point.lower() for point in _points(disk))
    ),
    "logical": lambda _: lambda disk, _disks: disk.kind == "lvm",
}
