"""Modules of memory and network cards, as dmidecode and lspci list them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.facts.base import Fact, Host

_DMIDECODE = ("dmidecode", "--type", "memory")
_UNITS = {"kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_NO_TEXT = frozenset({"", "Unknown", "Not Specified", "None", "NO DIMM", "Not Provided"})


@dataclass(frozen=True)
class MemoryModule:
    """A module of memory that is in its slot.

    Args:
        size_bytes: its size.
        speed_mt_s: its rated speed in megatransfers a second; None if unknown.
        vendor: its maker; None if unknown.
        part_number: likewise.
        kind: such as ``DDR5``.
    """

    size_bytes: int
    speed_mt_s: int | None = None
    vendor: str | None = None
    part_number: str | None = None
    kind: str | None = None


def memory_modules(text: str | None) -> tuple[MemoryModule, ...]:
    """Read ``dmidecode --type memory``; slots that are empty are left out."""
    modules = []
    for block in re.split(r"\n\s*\n", text or ""):
        if "Memory Device\n" not in block:
            continue
        values = dict(re.findall(r"^\s+([\w ]+): *(.*?) *$", block, re.MULTILINE))
        size = re.fullmatch(r"(\d+) (kB|MB|GB|TB)", values.get("Size", ""))
        if not size:
            continue
        speed = re.match(r"(\d+) M[HT]", values.get("Speed", ""))
        texts = {
            name: None if values.get(name, "") in _NO_TEXT else values[name]
            for name in ("Manufacturer", "Part Number", "Type")
        }
        modules.append(
            MemoryModule(
                int(size[1]) * _UNITS[size[2]],
                int(speed[1]) if speed else None,
                texts["Manufacturer"],
                texts["Part Number"],
                texts["Type"],
            )
        )
    return tuple(modules)


def network_cards(text: str | None) -> tuple[str, ...]:
    """Return the names of the network cards that ``lspci`` lists."""
    found = re.findall(r"^\S+ (?:Ethernet|Network|Infiniband) controller: (.+)$", text or "", re.MULTILINE)
    return tuple(name.strip() for name in found)


def _memory(host: Host) -> tuple[MemoryModule, ...]:
    return memory_modules(host.output(_DMIDECODE))


def _network(host: Host) -> tuple[str, ...]:
    return network_cards(host.output(["lspci"]))


MEMORY_MODULES: Fact[tuple[MemoryModule, ...]] = Fact("memory_modules", " ".join(_DMIDECODE), _memory)
NETWORK_CARDS: Fact[tuple[str, ...]] = Fact("network_cards", "lspci", _network)
