"""Reads ``nvidia-smi dmon``: a row for each GPU and second, below two lines with the columns and units."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from parsers.nvidia_smi.devices import BY_NAME, Device, Seen, even
from parsers.nvidia_smi.said import said_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HEAD = re.compile(r"^#\s*(?:Date\s+)?(?:Time\s+)?gpu\s+(?!.*\bpid\b)\S", re.MULTILINE)
_READINGS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "pwr": ("power_draw_average", {"W": "W"}),
    "gtemp": ("temperature", {"C": "C"}),
    "temp": ("temperature", {"C": "C"}),
    "mtemp": ("memory_temperature", {"C": "C"}),
    "sm": ("utilization", {"%": "%"}),
    "mem": ("memory_utilization", {"%": "%"}),
    "enc": ("encoder_utilization", {"%": "%"}),
    "dec": ("decoder_utilization", {"%": "%"}),
    "mclk": ("memory_clock", {"MHz": "MHz"}),
    "pclk": ("graphics_clock", {"MHz": "MHz"}),
    "fb": ("memory_used", {"MB": "MiB"}),  # bytes shifted by 20 bits
    "pci": ("pcie_replays", {"errs": ""}),
}
"""For each column: the reading, and its possible units with their meanings."""


def has_dmon(text: str) -> bool:
    """Return True if a text is such a log."""
    return _HEAD.search(text) is not None


def read_dmon(text: str) -> Seen:
    """Read all rows; an unterminated last row is ignored.

    Raises:
        ParseError: if a row has more cells than its header, or a column has an unexpected unit.
    """
    seen = Seen(complete=text.endswith("\n"))
    names: list[str] = []
    units: list[str] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        words = line.lstrip("# ").split()
        if _HEAD.match(line):
            names, units = [word.lower() for word in words], []
        elif line.startswith("#"):
            units = words
        elif reason := said_in(line):
            seen.said.append(reason)
        elif words and names:
            seen.devices.append(_device(names, units, words, line))
    seen.complete &= even(seen.devices)
    return seen


def _device(names: Sequence[str], units: Sequence[str], cells: Sequence[str], line: str) -> Device:
    if len(cells) != len(names) or len(units) != len(names):
        raise ParseError(
            f"a row of dmon has {len(cells)} cells, its header {len(names)}, its units {len(units)}",
            remedy="see whether lines were lost or the file was changed",
            details=(line[:80],),
        )
    values = dict(zip(names, cells, strict=True))
    if not re.fullmatch(r"\d{1,6}", values["gpu"], re.ASCII):
        raise ParseError(f"a row of dmon does not name its GPU: {line[:80]}")
    device = Device(int(values["gpu"]))
    if "date" in values and "time" in values:
        device.texts["timestamp"] = f"{values['date']} {values['time']}"
    for column, unit in zip(names, units, strict=True):
        if column not in _READINGS or values[column] == "-":
            continue
        name, known = _READINGS[column]
        if unit not in known:
            raise ParseError(f"dmon's column {column} is in {unit[:20]!r}, not in {', '.join(known)}")
        device.take(BY_NAME[name], values[column], known[unit])
    return device
