"""Reads ``nvidia-smi -L``: the GPUs and their MIG devices, without readings."""

from __future__ import annotations

import re

from parsers.nvidia_smi.devices import Device, Seen
from parsers.nvidia_smi.said import said_in

_GPU = re.compile(r"^GPU (?P<index>\d{1,6}): (?P<name>.+?)\s*\(UUID: (?P<uuid>[^)]+)\)", re.MULTILINE)
_MIG = re.compile(r"^\s+MIG (?P<name>.+?)\s+Device\s+\d+:\s*\(UUID: (?P<uuid>[^)]+)\)")
_LINK = re.compile(r"^[ \t]*C2C Link \d+:", re.MULTILINE)


def has_list(text: str) -> bool:
    """Return True if a text is such a list."""
    return _GPU.match(text.lstrip("\ufeff \r\n\t")) is not None and _LINK.search(text) is None


def read_list(text: str) -> Seen:
    """Read the list; an unterminated last line is ignored."""
    seen = Seen(complete=text.endswith("\n"))
    for line in text[: text.rfind("\n") + 1].splitlines():
        if gpu := _GPU.match(line):
            seen.devices.append(Device(int(gpu["index"]), {"name": gpu["name"], "uuid": gpu["uuid"].strip()}))
        elif (mig := _MIG.match(line)) and seen.devices:
            seen.devices[-1].mig_devices.append(mig["uuid"].strip())
            seen.devices[-1].texts["mig.mode.current"] = "Enabled"
        elif reason := said_in(line):
            seen.said.append(reason)
    return seen
