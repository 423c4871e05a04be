"""Parse Xid errors, which NVIDIA's kernel module writes into the kernel log for GPU errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agent.core.yaml_data import yaml_data
from agent.facts.gpus import pci_bus_id

_TABLE = Path(__file__).with_name("xids.yaml")
_LINE = re.compile(
    r"(?P<what>S?Xid) \((?:PCI:)?(?P<bus>[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+(?:\.\d)?)\): "
    r"(?P<number>\d+)(?:, )?(?P<text>.*)"
)


@dataclass(frozen=True)
class Xid:
    """One Xid error.

    Args:
        number: NVIDIA's number.
        bus_id: the PCI address of the GPU or, if ``of_switch``, of the NVSwitch.
        text: the rest of the line.
        meaning: meaning of the number in NVIDIA's catalogue; empty if our table does not have it.
        cause: ``application``, ``hardware``, ``driver`` or ``notice``; empty if the meaning is.
        of_switch: True for an NVSwitch's error (SXid), whose numbers have other meanings.
    """

    number: int
    bus_id: str
    text: str
    meaning: str = ""
    cause: str = ""
    of_switch: bool = False

    def __str__(self) -> str:
        """Return the error for people, such as ``Xid 79 (GPU fell off the bus) of 0000:3b:00.0``."""
        meaning = f" ({self.meaning})" if self.meaning else f" ({self.text})" if self.text else ""
        return f"{'SXid' if self.of_switch else 'Xid'} {self.number}{meaning} of {self.bus_id}"


def xid_of(line: str) -> Xid | None:
    """Return the error in a line of the kernel log; None if the line is not an Xid error.

    Examples of lines are ``NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the
    bus.`` and ``nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted …``.
    """
    found = _LINE.search(line)
    if found is None or not ("NVRM" in line or "nvswitch" in line):
        return None
    number, of_switch = int(found["number"]), found["what"] == "SXid"
    known = {} if of_switch else _table().get(number, {})
    bus = found["bus"] if "." in found["bus"] else f"{found['bus']}.0"
    return Xid(
        number,
        pci_bus_id(bus),
        found["text"].strip(),
        str(known.get("meaning", "")),
        str(known.get("cause", "")),
        of_switch,
    )


@cache
def _table() -> dict[int, dict[str, Any]]:
    return dict(yaml_data(_TABLE.read_text(encoding="utf-8")))
