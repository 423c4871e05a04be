"""Reads nvidia-smi's own table, of drivers 418 to 590, once or in a loop.

Each GPU has two lines, or three since driver 450, between rules: name and bus id, then temperature, power,
memory and utilization.
"""

from __future__ import annotations

import re

from agent.core.errors import ParseError
from parsers.nvidia_smi.devices import BY_NAME, Device, Seen, even
from parsers.nvidia_smi.readings import spoken
from parsers.nvidia_smi.said import said_in

_HEAD = re.compile(r"^\| NVIDIA-SMI +(?P<smi>\S+) +Driver Version: +(?P<driver>[\d.]+)", re.MULTILINE)
_RULE = re.compile(r"[+|][-=+]{20,}[+|]\s*")
_FIRST = re.compile(
    r"\|\s+(?P<index>\d{1,5})\s+(?P<name>\S.*?)\s+\S+\s*"
    r"\|\s+(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s+\S+\s*\|[^|]*\|\s*"
)
_SECOND = re.compile(
    r"\|\s*(?P<fan>\S+)\s+(?P<temperature>\S+)\s+(?P<pstate>\S+)\s+"
    r"(?P<power>N/A|[^|/]+?)\s*/\s*(?P<limit>N/A|[^|/]+?)\s*"
    r"\|(?:\s*(?P<used>N/A|[^|/]+?)\s*/\s*(?P<total>N/A|[^|/]+?)\s*|[^|/]*)\|\s*(?P<utilization>\S+)\s[^|]*\|\s*"
)
_WIDEST = 400
_A_GPU = re.compile(r"\|\s+\d+\s[^|]*\|[^|]*\|[^|]*\|\s*")
_READINGS = {
    "fan": "fan_speed",
    "temperature": "temperature",
    "power": "power_draw_average",
    "limit": "power_limit",
    "used": "memory_used",
    "total": "memory_total",
    "utilization": "utilization",
}
_TIME = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\s*")


def has_table(text: str) -> bool:
    """Return True if a text contains such a table."""
    return _HEAD.search(text) is not None


def read_table(text: str) -> Seen:
    """Read every table of a text.

    Raises:
        ParseError: if a GPU's lines do not have nvidia-smi's format.
    """
    lines = text.splitlines()
    # An unterminated last rule is complete if it is as long as another one.
    if not text.endswith("\n") and lines[-1] in lines[:-1] and _RULE.fullmatch(lines[-1]):
        text = f"{text}\n"
    seen = Seen(complete=text.endswith("\n"))
    timestamp = driver = ""
    rows: list[str] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        if len(line) > _WIDEST:
            raise ParseError("a line is wider than any of nvidia-smi's table")
        if reason := said_in(line):
            seen.said.append(reason)
        elif head := _HEAD.match(line):
            driver = head["driver"]
        elif _TIME.fullmatch(line):
            timestamp = line.strip()
        elif _RULE.fullmatch(line):
            if driver and rows and _is_gpu(rows[0]):
                seen.devices.append(_device(rows, driver, timestamp))
            rows = []
        else:
            rows += [line] if line.startswith("|") else []
    seen.complete &= not (rows and _is_gpu(rows[0])) and even(seen.devices)
    return seen


def _is_gpu(line: str) -> bool:
    """Return True if a line is the first of a GPU; raise ParseError if it only looks like one."""
    if not _A_GPU.fullmatch(line):
        return False
    if not _FIRST.fullmatch(line):
        raise ParseError(f"a line of the table is not that of a GPU: {line.strip()[:100]}")
    return True


def _device(rows: list[str], driver: str, timestamp: str) -> Device:
    first, second = _FIRST.fullmatch(rows[0]), _SECOND.fullmatch(rows[1]) if len(rows) > 1 else None
    if first is None or second is None:
        raise ParseError(f"a GPU's lines in the table are not nvidia-smi's: {' '.join(rows)[:160]}")
    texts = {"driver_version": driver, "timestamp": timestamp, "pci.bus_id": first["bus"]}
    # Older drivers cut long names.
    texts |= {} if first["name"].endswith("...") else {"name": first["name"]}
    texts["pstate"] = spoken(second["pstate"])
    device = Device(int(first["index"]), texts)
    for name, reading in _READINGS.items():
        device.take(BY_NAME[reading], second[name] or "")
    return device
