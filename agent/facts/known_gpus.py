"""GPUs by their PCI device number: their names, and the first driver for each.

The table identifies GPUs before a driver is installed. Sources: the PCI ID repository (pci.ids, vendor 10de);
the lists of GPUs in the README of every release of NVIDIA/open-gpu-kernel-modules from 515.43.04 to
595.45.04; for guests with a part of a GPU, tseliot/ubuntu-drivers-common.
"""

from __future__ import annotations

_GPUS: dict[int, tuple[str, tuple[str, ...]]] = {
    0x1DB1: ("Tesla V100-SXM2-16GB", ()),
    0x1DB5: ("Tesla V100-SXM2-32GB", ()),
    0x1DB4: ("Tesla V100-PCIE-16GB", ()),
    0x1DB6: ("Tesla V100-PCIE-32GB", ()),
    0x1EB8: ("Tesla T4", ()),
    0x20B0: ("NVIDIA A100-SXM4-40GB", ()),
    0x20B2: ("NVIDIA A100-SXM4-80GB", ()),
    0x20F1: ("NVIDIA A100-PCIE-40GB", ()),
    0x20B5: ("NVIDIA A100 80GB PCIe", ()),
    0x20B7: ("NVIDIA A30", ()),
    0x2235: ("NVIDIA A40", ()),
    0x2236: ("NVIDIA A10", ()),
    0x2237: ("NVIDIA A10G", ()),
    0x2230: ("NVIDIA RTX A6000", ()),
    0x2231: ("NVIDIA RTX A5000", ()),
    0x2204: ("NVIDIA GeForce RTX 3090", ()),
    0x27B8: ("NVIDIA L4", ("525.105.17",)),
    0x26B5: ("NVIDIA L40", ("525.78.01",)),
    0x26B9: ("NVIDIA L40S", ("535.104.05",)),
    0x2684: ("NVIDIA GeForce RTX 4090", ("525.78.01",)),
    0x2331: ("NVIDIA H100 PCIe", ()),
    0x2330: ("NVIDIA H100 80GB HBM3", ("525.85.05",)),
    0x2339: ("NVIDIA H100", ("525.105.17",)),
    0x2321: ("NVIDIA H100 NVL", ("535.104.05",)),
    0x2335: ("NVIDIA H200", ("550.90.07",)),
    0x233B: ("NVIDIA H200 NVL", ("570.86.15",)),
    0x2329: ("NVIDIA H20", ("535.161.07",)),
    0x232C: ("NVIDIA H20-3e", ("535.216.03", "550.127.08")),
    0x2342: ("NVIDIA GH200 120GB", ("535.129.03",)),
    0x2348: ("NVIDIA GH200 144G HBM3e", ("570.86.15",)),
    0x29BC: ("NVIDIA B100", ("570.86.15",)),
    0x2901: ("NVIDIA B200", ("570.86.15",)),
    0x2941: ("NVIDIA GB200", ("570.124.04",)),
    0x3182: ("NVIDIA B300 SXM6 AC", ("580.82.07",)),
    0x31C2: ("NVIDIA GB300", ("580.82.07",)),
    0x31C3: ("NVIDIA GB300", ("580.82.07",)),
    0x2E12: ("NVIDIA GB10", ("580.119.02", "590.48.01")),
    0x2B85: ("NVIDIA GeForce RTX 5090", ("570.86.16",)),
    0x2BB1: ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", ("570.133.07",)),
    0x2BB4: ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", ("570.133.07",)),
    0x2BB5: ("NVIDIA RTX PRO 6000 Blackwell Server Edition", ("575.57.08",)),
    0x2C3A: ("NVIDIA RTX PRO 4500 Blackwell Server Edition", ("580.142",)),
}
"""Name as reported by the driver; the first release, for branches without support from their start."""

_VGPUS = frozenset({(0x2236, 0x14BB), (0x1DB6, 0x1396)})
"""Device and subsystem of parts of a GPU, seen in guests: Azure's NVadsA10_v5, a GRID V100D."""


def _number(text: str | None) -> int | None:
    try:
        return int(text or "", 16)
    except ValueError:
        return None


def gpu_name_of(pci_id: str | None) -> str | None:
    """Return the driver's name for a GPU such as ``0x2330``, or None if not in the table."""
    known = _GPUS.get(_number(pci_id) or 0)
    return known[0] if known else None


def first_driver(pci_id: str | None, branch: str = "") -> str:
    """Return the oldest driver for a GPU; empty if any driver works or the GPU is not in the table.

    Args:
        pci_id: the PCI device number.
        branch: the requested branch: a newer branch may support a GPU only from a later release.
    """
    _, firsts = _GPUS.get(_number(pci_id) or 0, ("", ()))
    of_branch = [first for first in firsts if branch and first.partition(".")[0] == branch]
    return next(iter((*of_branch, *firsts)), "")


def is_vgpu(pci_id: str | None, subsystem: str | None) -> bool:
    """Return True if it is a part of a GPU (vGPU): only its subsystem differs from the whole GPU's."""
    return (_number(pci_id), _number(subsystem)) in _VGPUS
