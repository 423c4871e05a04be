"""AMD GPUs from the PCI bus, which needs no driver, and from the files of amdgpu if it is loaded.

Sources: the kernel's documentation of amdgpu (``amdgpu_pm.c``, amdgpu/driver-misc); the KFD topology that
ROCm/k8s-device-plugin records; for ``xgmi_num_links`` ROCm/rocm-systems, issue 5763.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent.facts.base import Fact, Host
from agent.facts.known_amd_gpus import amd_gpu_name_of, is_virtual_function

_PCI = "/sys/bus/pci/devices"
_DRIVERS = "/sys/bus/pci/drivers"
_KFD = "/sys/class/kfd/kfd/topology/nodes"
_AMD = "0x1002"
_CLASSES = ("0x03", "0x12")
"""Display controllers and processing accelerators; Instinct cards belong to the second class."""
_OTHER_DRIVERS = ("gim", "vfio-pci")
"""Drivers of a host that passes its GPUs to virtual machines."""

Node = Mapping[str, int]
"""Numbers in a file ``properties`` of the KFD topology."""


@dataclass(frozen=True)
class AmdGpu:
    """One AMD GPU; an unknown value is None.

    Args:
        bus_id: the PCI address, such as ``0000:0c:00.0``.
        pci_id: the PCI device number, such as ``0x74a1``.
        name: the product's name by its PCI device number.
        virtual: True for a virtual function of a GPU.
        driver: the kernel driver that holds it: amdgpu, gim or vfio-pci.
        gfx: the architecture, such as ``gfx942``.
        memory_bytes: its memory.
        compute_partition: SPX, DPX, TPX, QPX or CPX.
        memory_partition: NPS1, NPS2, NPS4 or NPS8.
        partitions: number of devices visible to programs; 1 for a whole GPU.
        power_cap_w: its power limit.
        corrected: memory errors that ECC corrected since amdgpu was loaded.
        uncorrected: memory errors that ECC did not correct.
        xgmi_peers: GPUs that it has direct XGMI links to.
    """

    bus_id: str
    pci_id: str
    name: str | None = None
    virtual: bool = False
    driver: str | None = None
    gfx: str | None = None
    memory_bytes: int | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    partitions: int | None = None
    power_cap_w: float | None = None
    corrected: int | None = None
    uncorrected: int | None = None
    xgmi_peers: int | None = None


def error_count(text: str | None, kind: str) -> int | None:
    """Return a count of a file in ``ras``, whose lines are ``ue: 0`` and ``ce: 0``; None if it has none.

    Args:
        text: the file.
        kind: ``ue`` for uncorrected errors, ``ce`` for corrected ones.
    """
    found = re.search(rf"^{kind}:\s*(\d{{1,18}})\s*$", text or "", re.MULTILINE)
    return int(found[1]) if found else None


def gfx_name(version: int) -> str | None:
    """Return the architecture of a ``gfx_target_version``: 90402 is gfx942, 90010 is gfx90a."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if major else None


def kfd_node(text: str | None) -> Node:
    """Read a file ``properties`` of the KFD topology."""
    pairs = (line.split() for line in (text or "").splitlines())
    return {
        pair[0]: int(pair[1])
        for pair in pairs
        if len(pair) == 2 and re.fullmatch(r"\d{1,20}", pair[1], re.ASCII)  # noqa: PLR2004 - name and number
    }


def nodes_of(bus_id: str, nodes: list[Node]) -> list[Node]:
    """Return the KFD nodes of a GPU: one, or one for each partition.

    Args:
        bus_id: the GPU's PCI address.
        nodes: all nodes; those of processors have no ``simd_count``.
    """
    domain, bus, slot = int(bus_id[:4], 16), int(bus_id[5:7], 16), int(bus_id[8:10], 16)
    # Partitions differ in the function, the lowest three bits.
    place = (domain, bus << 5 | slot)
    return [
        node
        for node in nodes
        if node.get("simd_count") and (node.get("domain", 0), node.get("location_id", -1) >> 3) == place
    ]


def _gpus(host: Host) -> tuple[AmdGpu, ...]:
    found = [
        (address, device)
        for address in host.names(_PCI)
        if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address)
        if _line(host, f"{_PCI}/{address}/vendor") == _AMD
        if (_line(host, f"{_PCI}/{address}/class") or "").startswith(_CLASSES)
        if (device := _line(host, f"{_PCI}/{address}/device"))
    ]
    if not found:
        return ()
    drivers = {
        address: driver
        for driver in ("amdgpu", *_OTHER_DRIVERS)
        for address in host.names(f"{_DRIVERS}/{driver}")
    }
    nodes = [kfd_node(host.text(f"{_KFD}/{name}/properties")) for name in host.names(_KFD)]
    return tuple(_gpu(host, address, device, drivers.get(address), nodes) for address, device in found)


def _gpu(host: Host, address: str, pci_id: str, driver: str | None, nodes: list[Node]) -> AmdGpu:
    folder = f"{_PCI}/{address}"
    own = nodes_of(address, nodes)
    errors = host.text(f"{folder}/ras/umc_err_count") or host.text(f"{folder}/ras/aca_umc")
    caps = (_number(host, f"{folder}/hwmon/{name}/power1_cap") for name in host.names(f"{folder}/hwmon"))
    cap_uw = next((cap for cap in caps if cap), None)
    links = _line(host, f"{folder}/xgmi_num_links")
    return AmdGpu(
        bus_id=address,
        pci_id=pci_id,
        name=amd_gpu_name_of(pci_id),
        virtual=is_virtual_function(pci_id),
        driver=driver,
        gfx=gfx_name(own[0].get("gfx_target_version", 0)) if own else None,
        memory_bytes=_number(host, f"{folder}/mem_info_vram_total"),
        compute_partition=_line(host, f"{folder}/current_compute_partition"),
        memory_partition=_line(host, f"{folder}/current_memory_partition"),
        partitions=len(own) or None,
        power_cap_w=cap_uw / 1e6 if cap_uw else None,
        corrected=error_count(errors, "ce"),
        uncorrected=error_count(errors, "ue"),
        xgmi_peers=sum(link.strip("0") != "" for link in links.split()) if links else None,
    )


def _line(host: Host, path: str) -> str | None:
    return (host.text(path) or "").strip() or None


def _number(host: Host, path: str) -> int | None:
    text = _line(host, path) or ""
    return int(text) if re.fullmatch(r"\d{1,20}", text, re.ASCII) else None


AMD_GPUS: Fact[tuple[AmdGpu, ...]] = Fact("amd_gpus", f"{_PCI}, {_KFD}", _gpus)
