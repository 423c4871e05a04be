"""Generations of NVIDIA GPUs by PCI device number, and their requirements on the driver.

Sources: the PCI ID repository (pci.ids, vendor 10de); NVIDIA/open-gpu-kernel-modules, README, "Compatible
GPUs"; NVIDIA's Driver Installation Guide, "Kernel Modules": the open modules need Turing or newer, and Grace
Hopper and Blackwell need the open modules; the CUDA release notes: 580 is the last branch for GPUs before
Turing, and 570 the first for Blackwell.
"""

from __future__ import annotations

from enum import IntEnum


class Generation(IntEnum):
    """Generations, oldest first."""

    BEFORE_VOLTA = 0
    VOLTA = 1
    TURING = 2
    AMPERE = 3
    ADA = 4
    HOPPER = 5
    BLACKWELL = 6


_RANGES = (
    (0x0000, 0x1D7F, Generation.BEFORE_VOLTA),
    (0x1D80, 0x1DFF, Generation.VOLTA),  # GV100
    (0x1E00, 0x1FFF, Generation.TURING),  # TU102, TU104, TU106, TU117
    (0x2080, 0x20FF, Generation.AMPERE),  # GA100
    (0x2180, 0x21FF, Generation.TURING),  # TU116
    (0x2200, 0x22FF, Generation.AMPERE),  # GA102
    (0x2300, 0x23FF, Generation.HOPPER),  # GH100
    (0x2400, 0x25FF, Generation.AMPERE),  # GA103 to GA107
    (0x2680, 0x28FF, Generation.ADA),  # AD102 to AD107
    (0x2900, 0x29FF, Generation.BLACKWELL),  # GB100: B200 is 2901, GB200 is 2941
    (0x2B80, 0x2FFF, Generation.BLACKWELL),  # GB202 to GB207
    (0x3180, 0x31FF, Generation.BLACKWELL),  # GB110: B300 is 3182, GB300 is 31c2
)
_GRACE_HOPPER = frozenset({0x2342, 0x2345, 0x2348})
_NVLINK_DOMAIN = frozenset({0x2941, 0x31C2, 0x31C3})


def _number(pci_id: str | None) -> int | None:
    try:
        return int(pci_id or "", 16)
    except ValueError:
        return None


def generation(pci_id: str | None) -> Generation | None:
    """Return the generation of a PCI device number such as ``0x2330``, or None if not in the table."""
    number = _number(pci_id)
    if number is None:
        return None
    return next((found for first, last, found in _RANGES if first <= number <= last), None)


def needs_open_module(pci_id: str | None) -> bool:
    """Return True if the closed kernel module does not support it: Blackwell and Grace Hopper."""
    return generation(pci_id) is Generation.BLACKWELL or _number(pci_id) in _GRACE_HOPPER


def needs_imex(pci_id: str | None) -> bool:
    """Return True if it is part of an NVLink domain of several hosts (GB200 and GB300 NVL72).

    In such a domain the switch trays run the fabric manager, and each host the IMEX service (NVIDIA's IMEX
    guide).
    """
    return _number(pci_id) in _NVLINK_DOMAIN


def first_branch(found: Generation) -> int:
    """Return the first driver branch for a generation, for those newer than branch 525."""
    return 570 if found is Generation.BLACKWELL else 0


def last_branch(found: Generation) -> int | None:
    """Return the last driver branch for a generation, or None if there is no end yet."""
    return 580 if found < Generation.TURING else None
