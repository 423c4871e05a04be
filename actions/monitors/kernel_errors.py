"""An error of a GPU that the kernel log reports, in the form that the monitors of all vendors record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actions.monitors.xid import xid_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.core.records import MetadataValue


@dataclass(frozen=True)
class KernelError:
    """One error.

    Args:
        name: the end of the metric's name, such as ``xid``.
        bus_id: the PCI address of the device; empty if the line does not name one.
        said: the error for people.
        metadata: what is known about it; empty texts are left out.
        device: the kind of device, for an error whose GPU is not watched or that is not a GPU's.
    """

    name: str
    bus_id: str
    said: str
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    device: str = "gpu"


def nvidia_error_of(line: str) -> KernelError | None:
    """Return the Xid or SXid that a line of the kernel log reports; None if it reports none."""
    xid = xid_of(line)
    if xid is None:
        return None
    metadata: dict[str, MetadataValue] = {
        "xid": xid.number,
        "pci_bus_id": xid.bus_id,
        "meaning": xid.meaning,
        "cause": xid.cause,
        "message": xid.text,
    }
    if xid.of_switch:
        return KernelError("sxid", xid.bus_id, str(xid), metadata, "nvswitch")
    return KernelError("xid", xid.bus_id, str(xid), metadata)
