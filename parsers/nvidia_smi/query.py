"""Reads ``nvidia-smi --query-gpu=… --format=csv``, with or without units, once or in a loop.

nvidia-smi does not quote cells, and separates them by a comma and a blank.
"""

from __future__ import annotations

import re

from agent.core.errors import ParseError
from parsers.nvidia_smi.devices import Device, Seen, even
from parsers.nvidia_smi.readings import READINGS, number_of, spoken, unit_of
from parsers.nvidia_smi.said import said_in

_OLD_NAMES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}
_COLUMNS = {column for reading in READINGS for column in reading.columns} | set(_OLD_NAMES)
_COLUMNS |= {
    "index", "timestamp", "driver_version", "name", "uuid", "serial", "pci.bus_id", "pstate",
    "mig.mode.current", "ecc.mode.current", "persistence_mode", "compute_mode", "pcie.link.gen.max",
}  # fmt: skip
IDENTITIES = ("index", "pci.bus_id", "uuid")

Column = tuple[str, str]
"""A column's name and unit."""


def has_query(text: str) -> bool:
    """Return True if a text contains a query's header."""
    return any(map(_header, text.splitlines()))


def read_query(text: str) -> Seen:
    """Read a query's rows.

    A row that ends too early keeps its complete cells: all but the last, and the last as well if it has its
    unit.

    Raises:
        ParseError: if a row has more cells than its header, a cell does not fit its column, or no column
            identifies the GPU.
    """
    seen = Seen()
    header: list[Column] = []
    block: list[Device] = []
    lines = text.splitlines()
    for place, line in enumerate(lines, 1):
        cut = place == len(lines) and not text.endswith("\n")
        if found := _header(line):
            header = found
            seen.complete &= even(block)
            block = []
        elif reason := said_in(line):
            seen.said.append(reason)
        if found or not header or not line.strip():
            continue
        device = _row(line, header, place, cut=cut)
        if device is None:
            seen.complete &= not cut
            if not cut and said_in(line) is None:
                seen.warnings.append(f"line {place} is not a row: {line.strip()[:80]}")
            continue
        cells = line.split(",")
        seen.complete &= len(cells) == len(header) and (not cut or _has_unit(cells[-1]))
        block.append(device)
        seen.devices.append(device)
    seen.complete &= even(block)
    return seen


def _header(line: str) -> list[Column]:
    """Return the columns in a line, or an empty list if it is not a header."""
    if "," not in line:
        return []
    columns = [unit_of(cell) for cell in line.split(",")]
    known = [name for name, _ in columns if name in _COLUMNS]
    if len(known) < 2 or len(known) * 2 < len(columns):  # noqa: PLR2004 - a single word is not a header
        return []
    return [(_OLD_NAMES.get(name, name), unit) for name, unit in columns]


def _row(line: str, header: list[Column], place: int, *, cut: bool) -> Device | None:
    """Return the content of a row, or None if the line is not a row."""
    cells = line.split(",")
    if len(cells) == 1:
        return None
    if len(cells) > len(header):
        raise ParseError(
            f"line {place} has {len(cells)} cells, its header {len(header)}",
            remedy="see whether the file was changed, or written with a decimal comma",
        )
    if (cut or len(cells) < len(header)) and not _has_unit(cells[-1]):
        cells.pop()
    values = {name: cell.strip() for (name, _), cell in zip(header, cells, strict=False)}
    if not any(name in dict(header) for name in IDENTITIES):
        raise ParseError(
            "no column identifies the GPU of a row",
            remedy="query index or pci.bus_id as well",
        )
    index = spoken(values.get("index", ""))
    if index and not re.fullmatch(r"\d{1,6}", index, re.ASCII):
        raise ParseError(f"line {place} begins with {line.strip()[:60]!r}; its index is not a number")
    device = Device(int(index) if index else None, {name: spoken(cell) for name, cell in values.items()})
    if not any(device.texts.get(name) for name in IDENTITIES):
        return None
    units = dict(header)
    for reading in READINGS:
        for column in reading.columns:
            if column in values and device.take(reading, values[column], units[column]):
                break
    return device


def _has_unit(cell: str) -> bool:
    try:
        found = number_of(cell, "the last cell")
    except ParseError:
        return False
    return found is not None and bool(found[1])
