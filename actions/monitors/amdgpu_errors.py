"""Errors that amdgpu writes into the kernel log: memory and other hardware (RAS), hung rings, resets.

Source: the messages of the kernel's driver (drivers/gpu/drm/amd: ``amdgpu_ras.c``, ``amdgpu_job.c``,
``amdgpu_device.c``, ``amdkfd/kfd_device_queue_manager.c``), as public logs show them. Since 6.12 the prefix
is ``amdgpu 0000:03:00.0:``; before, ``amdgpu 0000:03:00.0: amdgpu:`` or ``[drm:function [amdgpu]] *ERROR*``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from actions.monitors.kernel_errors import KernelError

_BUS = re.compile(r"\bamdgpu ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]):", re.IGNORECASE)
_PREFIX = re.compile(r"^.*?(?:\bamdgpu(?: [0-9a-fA-F:.]+)?:|\[drm:\w+ \[amdgpu\]\])\s*(?:amdgpu:\s*)?")
_LONGEST = 200


@dataclass(frozen=True)
class _Known:
    kind: str
    meaning: str
    cause: str
    pattern: re.Pattern[str]


def _known(kind: str, meaning: str, cause: str, pattern: str) -> _Known:
    return _Known(kind, meaning, cause, re.compile(pattern))


_TABLE = (
    # A line with "in total" repeats what the line with "new" says.
    _known(
        "ras_uncorrected",
        "hardware errors were not corrected",
        "hardware",
        r"\b(?!0 )\d+ (?:new )?uncorrectable hardware errors detected in (?!total)\w+ block",
    ),
    _known(
        "ras_corrected",
        "hardware errors were corrected",
        "notice",
        r"\b(?!0 )\d+ (?:new )?correctable hardware errors detected in (?!total)\w+ block",
    ),
    _known(
        "ras_fatal",
        "uncorrected hardware error that stops the GPU",
        "hardware",
        r"[Uu]ncorrectable hardware error ?\(ERREVENT|RAS controller interrupt triggered",
    ),
    _known(
        "ras_poison",
        "a program read memory that is broken",
        "hardware",
        r"poison is consumed|RAS poison consumption|poison consumption",
    ),
    _known(
        "bad_pages",
        "memory has more broken pages than the GPU may have",
        "hardware",
        r"bad page.*(?:threshold|exceed)",
    ),
    _known("lost", "GPU fell off the bus", "hardware", r"device lost from bus"),
    _known("init", "GPU could not be initialized", "hardware", r"Fatal error during GPU init"),
    _known("ring_timeout", "GPU stopped processing a queue", "driver", r"ring \S+ timeout\b"),
    _known(
        "queue_hang",
        "GPU does not give up a queue",
        "driver",
        r"(?:MES|HIQ|cp|CP) might be in (?:an )?unrecoverable state|queue preemption time out",
    ),
    _known(
        "reset_failed",
        "GPU could not be reset",
        "hardware",
        r"GPU reset end with ret = -\d+|GPU reset failed",
    ),
    _known("reset", "GPU is reset, which ends all programs on it", "driver", r"GPU reset begin"),
    _known("page_fault", "a program used memory that is not its own", "application", r"\bpage fault \("),
)


def amdgpu_error_of(line: str) -> KernelError | None:
    """Return the error that a line of the kernel log reports; None if it reports none of amdgpu."""
    if "amdgpu" not in line:
        return None
    known = next((one for one in _TABLE if one.pattern.search(line)), None)
    if known is None:
        return None
    bus = _BUS.search(line)
    text = _PREFIX.sub("", line).removeprefix("*ERROR*").strip()[:_LONGEST]
    of = f" of {bus[1].lower()}" if bus else ""
    return KernelError(
        "kernel_error",
        bus[1].lower() if bus else "",
        f"amdgpu {known.kind} ({known.meaning}){of}",
        {
            "kind": known.kind,
            "pci_bus_id": bus[1].lower() if bus else "",
            "meaning": known.meaning,
            "cause": known.cause,
            "message": text,
        },
    )
