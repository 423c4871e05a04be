"""nvidia-smi's messages about a GPU that it cannot read, each with a remedy."""

from __future__ import annotations

import re

from agent.core.records import Reason

_REBOOT = "reboot the host; if it comes again, reseat or replace the GPU (see Xid 79 in the kernel's log)"
_SAYINGS: tuple[tuple[str, str, str, str], ...] = (
    (
        r"GPU is lost",
        "gpu_lost",
        "a GPU is lost: it fell off the bus",
        _REBOOT,
    ),
    (
        r"(?:GPU )?requires? reset",
        "gpu_requires_reset",
        "a GPU requires a reset",
        "stop what uses the GPU, then nvidia-smi --gpu-reset -i INDEX, or reboot",
    ),
    (
        r"Driver/library version mismatch",
        "driver_library_mismatch",
        "driver and library differ: the driver was updated while the old one is loaded",
        "reboot the host, so that the new driver is loaded",
    ),
    (
        r"couldn't communicate with the NVIDIA driver",
        "driver_not_loaded",
        "nvidia-smi cannot talk to the driver: it is not loaded",
        "load it (modprobe nvidia) or install it; dmesg says why it is not loaded",
    ),
    (
        r"couldn't find libnvidia-ml\.so",
        "driver_library_missing",
        "nvidia-smi does not find the driver's library",
        "install the driver, or start the container with GPUs (--gpus all)",
    ),
    (
        r"nvidia-smi: (?:command )?not found",
        "no_nvidia_smi",
        "there is no nvidia-smi",
        "install the driver, or start the container with GPUs (--gpus all)",
    ),
    (
        r"No devices (?:were )?found",
        "no_devices",
        "nvidia-smi found no device",
        "see whether lspci lists the GPU, and what dmesg says about it",
    ),
    (
        r"Unable to determine the device handle for (?:GPU|gpu)",
        "gpu_handle",
        "nvidia-smi cannot get hold of a GPU",
        _REBOOT,
    ),
    (
        r"Failed to initialize NVML",
        "nvml",
        "the driver's library cannot be used",
        "see dmesg; in a container that lost its GPUs, start it again",
    ),
    (
        r"Insufficient Permissions",
        "permissions",
        "nvidia-smi lacks permissions",
        "run it as root, or give the account access to /dev/nvidia*",
    ),
    (
        r"is not a valid field to query",
        "query_field",
        "a column does not exist in this driver",
        "leave it out; nvidia-smi --help-query-gpu lists those that exist",
    ),
)
_PATTERNS = tuple((re.compile(pattern), code, meaning, remedy) for pattern, code, meaning, remedy in _SAYINGS)
_LONGEST = 160


def said_in(line: str) -> Reason | None:
    """Return the reason in a line about a GPU that cannot be read, or None if it has none.

    Args:
        line: a line of nvidia-smi's output.
    """
    for pattern, code, meaning, remedy in _PATTERNS:
        if pattern.search(line):
            return Reason(f"{meaning}: nvidia-smi says “{line.strip()[:_LONGEST]}”", remedy, code=code)
    return None
