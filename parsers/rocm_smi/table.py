"""Reads rocm-smi's own table, of ROCm 5 and of ROCm 6.1 and later: a row for each GPU between rules."""

from __future__ import annotations

import re

from agent.core.errors import ParseError
from parsers.amd_smi.readings import take
from parsers.nvidia_smi.devices import Device, Seen

_TITLE = re.compile(r"^=+ Concise Info =+\s*$", re.MULTILINE)
_HEADER = re.compile(r"(?:Device|GPU)\s+(?:Node\s+IDs\s+)?Temp\b.*\bVRAM%\s+GPU%\s*")
_SENSOR = re.compile(r"\((?:Die)?(Edge|Junction)\)")
_RULE = re.compile(r"={20,}\s*")
_ROW = re.compile(
    r"(?P<index>\d{1,4})\s+(?:\d+\s+0x[0-9a-fA-F]+,\s+\d+\s+)?(?P<temperature>\S+)\s+(?P<power>\S+)\s+"
    r"(?:(?P<memory_partition>[\w/]+),\s*(?P<compute_partition>[\w/]+),\s*[\w/]+\s+)?"
    r"(?P<graphics_clock>\S+)\s+(?P<memory_clock>\S+)\s+(?P<fan_speed>\S+)\s+\S+\s+(?P<power_limit>\S+)\s+"
    r"(?P<memory_allocated>\S+)\s+(?P<utilization>\S+)\s*",
    re.ASCII,
)
_WIDEST = 400
_READINGS = {
    "power": "power_draw_average",
    "graphics_clock": "graphics_clock",
    "memory_clock": "memory_clock",
    "fan_speed": "fan_speed",
    "power_limit": "power_limit",
    "memory_allocated": "memory_allocated",
    "utilization": "utilization",
}


def has_table(text: str) -> bool:
    """Return True if a text contains such a table."""
    return _TITLE.search(text) is not None and any(map(_HEADER.match, text.splitlines()))


def read_table(text: str) -> Seen:
    """Read every table of a text; a table without its closing rule is incomplete.

    Raises:
        ParseError: if a row does not have rocm-smi's format.
    """
    seen = Seen(complete=text.endswith("\n"))
    sensor, in_rows, open_rows = "", False, False
    for line in text[: text.rfind("\n") + 1].splitlines():
        if len(line) > _WIDEST:
            raise ParseError("a line is wider than any of rocm-smi's table")
        if _HEADER.match(line):
            # Only newer tables have a rule below the header.
            sensor, in_rows, open_rows = _sensor(line), line.startswith("GPU"), True
        elif not open_rows:
            continue
        elif _RULE.fullmatch(line):
            in_rows, open_rows = not in_rows, not in_rows
        elif in_rows and line.strip():
            seen.devices.append(_device(line, sensor))
        elif not in_rows:
            sensor = sensor or _sensor(line)
    seen.complete &= not open_rows
    return seen


def _sensor(line: str) -> str:
    found = _SENSOR.search(line)
    # ROCm 5 measures the edge; not every release states it.
    if found is None and line.startswith("GPU"):
        return "edge"
    return "" if found is None else {"Edge": "edge", "Junction": "hotspot"}[found[1]]


def _device(line: str, sensor: str) -> Device:
    row = _ROW.fullmatch(line)
    if row is None:
        raise ParseError(
            f"a line of the table is not the row of a GPU: {line.strip()[:100]}",
            remedy="see whether the file was changed; rocm-smi --json is safer to read",
        )
    texts = {
        name: value
        for name in ("memory_partition", "compute_partition")
        if (value := row[name]) and value != "N/A"
    }
    device = Device(int(row["index"]), texts)
    if sensor:
        take(device, f"{sensor}_temperature", row["temperature"])
    for name, reading in _READINGS.items():
        take(device, reading, row[name])
    return device
