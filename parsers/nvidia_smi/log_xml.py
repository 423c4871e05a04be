"""Reads ``nvidia-smi -q -x`` of drivers 418 to 590; in a loop it writes one document after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from agent.core.errors import ParseError
from parsers.nvidia_smi.devices import Device, Seen
from parsers.nvidia_smi.readings import READINGS, spoken
from parsers.nvidia_smi.said import said_in

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN, _END = "<nvidia_smi_log", "</nvidia_smi_log>"
_TEXTS = {
    "name": "product_name",
    "uuid": "uuid",
    "serial": "serial",
    "pstate": "performance_state",
    "mig.mode.current": "mig_mode/current_mig",
    "ecc.mode.current": "ecc_mode/current_ecc",
    "persistence_mode": "persistence_mode",
    "compute_mode": "compute_mode",
    "pcie.link.gen.max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
}
_RESET = {"gpu_reset_status/reset_required": "Yes", "gpu_recovery_action": "Reset"}


def has_xml(text: str) -> bool:
    """Return True if a text contains such a document."""
    return _BEGIN in text


def read_xml(text: str) -> Seen:
    """Read every document of a text; an incomplete one is ignored.

    Entities are never defined: documents are read without their DOCTYPE.

    Raises:
        ParseError: if there is no complete document, or one is broken.
    """
    seen = Seen()
    place = 0
    while (begin := text.find(_BEGIN, place)) >= 0:
        _note(text[place:begin], seen)
        end = text.find(_END, begin)
        again = text.find(_BEGIN, begin + 1)
        if end < 0 or 0 <= again < end:
            seen.complete = False
            place = again if again >= 0 else len(text)
            continue
        place = end + len(_END)
        seen.devices += _document(text[begin:place], seen)
        _note(text[begin:place], seen)
    _note(text[place:], seen)
    seen.complete &= not text[place:].lstrip().startswith("<")  # the beginning of another document
    if not seen.devices and not seen.complete:
        raise ParseError("nvidia-smi's XML is cut or broken: a document has no end")
    return seen


def _note(text: str, seen: Seen) -> None:
    for line in text.splitlines():
        if reason := said_in(line):
            seen.said.append(reason)


def _document(text: str, seen: Seen) -> Iterator[Device]:
    try:
        root = ET.fromstring(text)  # noqa: S314 - without a DOCTYPE there is no entity to expand
    except (ET.ParseError, RecursionError) as error:
        raise ParseError(f"nvidia-smi's XML is cut or broken: {error}") from error
    common = {"driver_version": _text(root, "driver_version"), "timestamp": _text(root, "timestamp")}
    gpus = list(root.iter("gpu"))
    # nvidia-smi lists GPUs by their index; for a selection (-i) only the bus id is known.
    all_listed = _text(root, "attached_gpus") == str(len(gpus))
    for index, gpu in enumerate(gpus):
        device = Device(index if all_listed else None, dict(common))
        for column, element in _TEXTS.items():
            device.texts[column] = _text(gpu, element)
        device.texts["pci.bus_id"] = _text(gpu, "pci/pci_bus_id") or gpu.get("id", "").strip()
        if device.index is None and not (device.texts["pci.bus_id"] or device.texts["uuid"]):
            raise ParseError("a GPU of nvidia-smi's XML has neither a bus id nor a UUID")
        for reading in READINGS:
            for element in reading.elements:
                if device.take(reading, gpu.findtext(element) or ""):
                    break
        device.mig_devices = [uuid for mig in gpu.iter("mig_device") if (uuid := _text(mig, "uuid"))]
        if any(_text(gpu, element) == value for element, value in _RESET.items()) and (
            reason := said_in(f"GPU {device.texts['pci.bus_id']} requires reset")
        ):
            seen.said.append(reason)
        yield device


def _text(element: ET.Element, path: str) -> str:
    return spoken(element.findtext(path) or "")
