"""AMD Instinct GPUs by their PCI device number, so that they have names before any driver is installed.

Sources: the PCI ID repository (pci.ids, vendor 1002); for virtual functions the table of
ROCm/device-metrics-exporter (``pkg/exporter/globals/testrunner.go``).
"""

from __future__ import annotations

_WHOLE: dict[int, str] = {
    0x738C: "AMD Instinct MI100",
    0x738E: "AMD Instinct MI100",
    0x7408: "AMD Instinct MI250X",
    0x740C: "AMD Instinct MI250X/MI250",
    0x740F: "AMD Instinct MI210",
    0x74A0: "AMD Instinct MI300A",
    0x74A1: "AMD Instinct MI300X",
    0x74A2: "AMD Instinct MI308X",
    0x74A5: "AMD Instinct MI325X",
    0x74A9: "AMD Instinct MI300X HF",
    0x75A0: "AMD Instinct MI350X",
    0x75A3: "AMD Instinct MI355X",
    0x75A8: "AMD Instinct MI350P",
}
_VIRTUAL: dict[int, str] = {
    0x7410: "AMD Instinct MI210 VF",
    0x74B5: "AMD Instinct MI300X VF",
    0x74B6: "AMD Instinct MI308X VF",
    0x74B9: "AMD Instinct MI325X VF",
    0x74BD: "AMD Instinct MI300X HF VF",
    0x75B0: "AMD Instinct MI350X VF",
    0x75B3: "AMD Instinct MI355X VF",
    0x75B8: "AMD Instinct MI350P VF",
}


def _number(pci_id: str) -> int:
    try:
        return int(pci_id, 16)
    except ValueError:
        return -1


def amd_gpu_name_of(pci_id: str) -> str | None:
    """Return the name of a GPU such as ``0x74a1``; None if not in the table."""
    number = _number(pci_id)
    return _WHOLE.get(number) or _VIRTUAL.get(number)


def is_virtual_function(pci_id: str) -> bool:
    """Return True if a device is a virtual function: a virtual machine's part of a GPU."""
    return _number(pci_id) in _VIRTUAL
