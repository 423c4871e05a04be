"""The GPUs in nvidia-smi's output, whether it is a query's CSV, ``-q -x`` or ``-L``."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from agent.core.errors import ParseError
from parsers.nvidia_smi.readings import READINGS, number_of, spoken, unit_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Device", "Gpu", "devices", "gpus", "kind"]

_GPU_LINE = re.compile(r"^GPU (?P<index>\d+): (?P<name>.+?)\s*\(UUID: (?P<uuid>[^)]+)\)", re.MULTILINE)
_MIG_LINE = re.compile(r"^\s+MIG (?P<name>.+?)\s+Device\s+\d+:\s*\(UUID: (?P<uuid>[^)]+)\)")
_DOCTYPE = re.compile(r"<!DOCTYPE[^>\[]*(\[.*?\]\s*)?>", re.DOTALL)
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, for facts about a host; what nvidia-smi did not tell is None or empty.

    Args:
        index: nvidia-smi's index.
        name: the product's whole name; "NVIDIA L40S" is no "NVIDIA L4".
        memory_bytes: its memory in bytes.
        driver_version: the driver's full version.
        uuid: its UUID.
        mig_mode: Enabled or Disabled.
        mig_devices: UUIDs of the devices it is split into.
    """

    index: int
    name: str
    memory_bytes: int | None = None
    driver_version: str = ""
    uuid: str = ""
    mig_mode: str = ""
    mig_devices: tuple[str, ...] = ()


@dataclass(slots=True)
class Device:
    """One row or element: texts by column name, and numbers by reading.

    Args:
        index: the GPU's index.
        texts: everything nvidia-smi says, by the query's column names.
        numbers: number and unit by the reading's name.
        mig_devices: UUIDs of MIG devices.
    """

    index: int
    texts: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, tuple[float, str]] = field(default_factory=dict)
    mig_devices: list[str] = field(default_factory=list)


def kind(text: str) -> str:
    """What the text is: query, xml, list, or empty for nothing that nvidia-smi writes."""
    head = text.lstrip("\ufeff \r\n\t")
    if head.startswith(("<?xml", "<nvidia_smi_log", "<!DOCTYPE nvidia")) and "<nvidia_smi_log" in head[:4096]:
        return "xml"
    first = head.split("\n", 1)[0]
    names = {unit_of(column)[0] for column in first.split(",")}
    if len(names) > 1 and len(names & _COLUMNS) > 1:
        return "query"
    return "list" if _GPU_LINE.match(head) else ""


def devices(text: str) -> list[Device]:
    """The GPUs of nvidia-smi's output; a query that was repeated gives one per row.

    Args:
        text: the output of ``--query-gpu=… --format=csv`` (with units or without), ``-q -x`` or ``-L``.

    Raises:
        ParseError: if the text is none of these, or is cut.
    """
    what = kind(text)
    if what == "xml":
        return list(_from_xml(text))
    if what == "query":
        return list(_from_query(text))
    if what == "list":
        return _from_list(text)
    raise ParseError("is neither a query of nvidia-smi, nor its XML, nor its list of GPUs")


def gpus(text: str) -> tuple[Gpu, ...]:
    """The GPUs of nvidia-smi's output, once each.

    Args:
        text: as for `devices`.

    Raises:
        ParseError: if the text is none of nvidia-smi's, or is cut.
    """
    found: dict[int, Gpu] = {}
    for device in devices(text):
        memory = device.numbers.get("memory_total")
        found[device.index] = Gpu(
            index=device.index,
            name=device.texts.get("name", ""),
            memory_bytes=int(memory[0] * MIB) if memory else None,
            driver_version=device.texts.get("driver_version", ""),
            uuid=device.texts.get("uuid", ""),
            mig_mode=device.texts.get("mig.mode.current", ""),
            mig_devices=tuple(device.mig_devices),
        )
    return tuple(found[index] for index in sorted(found))


_TEXTS = {
    "name": "product_name",
    "uuid": "uuid",
    "serial": "serial",
    "pci.bus_id": "pci/pci_bus_id",
    "pstate": "performance_state",
    "mig.mode.current": "mig_mode/current_mig",
    "ecc.mode.current": "ecc_mode/current_ecc",
    "persistence_mode": "persistence_mode",
    "compute_mode": "compute_mode",
    "pcie.link.gen.max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
}
_COLUMNS = {column for reading in READINGS for column in reading.columns} | set(_TEXTS)
_COLUMNS |= {"index", "timestamp", "driver_version", "gpu_name", "gpu_uuid", "gpu_bus_id"}
_OLD_NAMES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}


def _from_query(text: str) -> Iterator[Device]:
    rows = csv.reader(text.lstrip("\ufeff").splitlines(), skipinitialspace=True)
    header: list[tuple[str, str]] = []
    seen = 0
    for row in rows:
        if not row or not any(cell.strip() for cell in row):
            continue
        names = [unit_of(cell) for cell in row]
        if len({name for name, _ in names} & _COLUMNS) > 1:
            header = [(_OLD_NAMES.get(name, name), unit) for name, unit in names]
            seen = 0
            continue
        cells = dict(zip([name for name, _ in header], row, strict=False))
        units = dict(header)
        index = cells.get("index", str(seen)).strip()
        seen += 1
        if index.isdigit():
            device = Device(int(index), {name: spoken(cell) for name, cell in cells.items()})
            _read_columns(device, cells, units)
            yield device


def _read_columns(device: Device, cells: dict[str, str], units: dict[str, str]) -> None:
    for reading in READINGS:
        for column in reading.columns:
            if (number := number_of(cells.get(column, ""))) is not None:
                device.numbers[reading.name] = (number[0], number[1] or units.get(column, ""))
                break


def _from_xml(text: str) -> Iterator[Device]:
    """The elements ``<gpu>``. The DOCTYPE goes, and with it any entity that could expand."""
    try:
        root = ET.fromstring(_DOCTYPE.sub("", text.lstrip("\ufeff \r\n\t"), count=1))  # noqa: S314 (no DTD)
    except ET.ParseError as error:
        raise ParseError(f"nvidia-smi's XML is cut or broken: {error}") from error
    driver = root.findtext("driver_version", "").strip()
    for index, gpu in enumerate(root.iter("gpu")):
        device = Device(index, {"driver_version": driver})
        for column, element in _TEXTS.items():
            device.texts[column] = spoken(gpu.findtext(element, ""))
        for reading in READINGS:
            if reading.element and (number := number_of(gpu.findtext(reading.element, ""))) is not None:
                device.numbers[reading.name] = number
        device.mig_devices = [
            uuid for mig in gpu.iter("mig_device") if (uuid := mig.findtext("uuid", "").strip())
        ]
        yield device


def _from_list(text: str) -> list[Device]:
    found: list[Device] = []
    for line in text.splitlines():
        if gpu := _GPU_LINE.match(line):
            found.append(Device(int(gpu["index"]), {"name": gpu["name"], "uuid": gpu["uuid"].strip()}))
        elif (mig := _MIG_LINE.match(line)) and found:
            found[-1].mig_devices.append(mig["uuid"].strip())
            found[-1].texts["mig.mode.current"] = "Enabled"
    return found
