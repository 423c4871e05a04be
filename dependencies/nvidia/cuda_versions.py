"""The drivers and GPU architectures that CUDA toolkits support.

Source: CUDA Toolkit release notes 13.2, table 3, "CUDA Toolkit and Corresponding Driver Versions" (Linux),
and table 2, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version Compatibility".
Architectures: the release notes of each version, and nvcc's manual, "GPU Feature List".
"""

from __future__ import annotations

import re
import sys

_NEEDED = {
    "13.2.2": "595.71.05",
    "13.2.1": "595.58.03",
    "13.2.0": "595.45.04",
    "13.1.1": "590.48.01",
    "13.1.0": "590.44.01",
    "13.0.2": "580.95.05",
    "13.0.1": "580.82.07",
    "13.0.0": "580.65.06",
    "12.9.1": "575.57.08",
    "12.9.0": "575.51.03",
    "12.8.1": "570.124.06",
    "12.8.0": "570.26",
    "12.6.3": "560.35.05",
    "12.6.2": "560.35.03",
    "12.6.1": "560.35.03",
    "12.6.0": "560.28.03",
    "12.5.1": "555.42.06",
    "12.5.0": "555.42.02",
    "12.4.1": "550.54.15",
    "12.4.0": "550.54.14",
    "12.3.1": "545.23.08",
    "12.3.0": "545.23.06",
    "12.2.2": "535.104.05",
    "12.2.1": "535.86.09",
    "12.2.0": "535.54.03",
    "12.1.1": "530.30.02",
    "12.1.0": "530.30.02",
    "12.0.1": "525.85.12",
    "12.0.0": "525.60.13",
    "11.8.0": "520.61.05",
    "11.7.1": "515.48.07",
    "11.7.0": "515.43.04",
    "11.6.2": "510.47.03",
    "11.6.1": "510.47.03",
    "11.6.0": "510.39.01",
    "11.5.2": "495.29.05",
    "11.5.1": "495.29.05",
    "11.5.0": "495.29.05",
    "11.4.4": "470.82.01",
    "11.4.3": "470.82.01",
    "11.4.2": "470.57.02",
    "11.4.1": "470.57.02",
    "11.4.0": "470.42.01",
}
_COMPATIBLE = {"13": "580.65.06", "12": "525.60.13", "11": "450.80.02"}

_FIRST = {
    75: (10, 0), 80: (11, 0), 86: (11, 1), 87: (11, 4), 89: (11, 8), 90: (11, 8),
    100: (12, 8), 101: (12, 8), 120: (12, 8), 103: (12, 9), 121: (12, 9), 88: (13, 0), 110: (13, 0),
}  # fmt: skip
"""The first toolkit that compiles for an architecture."""
_WITHOUT = ((50, (12, 0)), (75, (13, 0)))
"""The first toolkit that no longer compiles for architectures below one."""

_RUNFILE = re.compile(r"cuda_(\d+\.\d+\.\d+)_(?:(\d{3}(?:\.\d+)+)_)?linux(_sbsa|_ppc64le)?\.run$")


def driver_key(version: str) -> tuple[int, ...]:
    """Return a driver's version for comparison: ``550.54.14`` is before ``550.163.01``."""
    return tuple(int(part) for part in version.split("."))


def needed_driver(cuda: str) -> str | None:
    """Return the driver that a toolkit was made for; None if the table does not have the toolkit.

    Args:
        cuda: ``12.4`` for its first release, or ``12.4.1``.
    """
    return _NEEDED.get(cuda if cuda.count(".") > 1 else f"{cuda}.0")


def compatible_driver(cuda: str) -> str | None:
    """Return the oldest driver that runs programs of a toolkit's major version, without newer features."""
    return _COMPATIBLE.get(cuda.partition(".")[0])


def compiles_for(cuda: str, architecture: int) -> bool:
    """Return True if a toolkit's compiler supports an architecture, or if the tables do not have it.

    Args:
        cuda: the toolkit's version, such as ``12.4`` or ``12.4.1``.
        architecture: ten times the compute capability: 90 for 9.0, 100 for 10.0.
    """
    version = tuple(int(part) for part in cuda.split(".")[:2])
    ended = (end for below, end in _WITHOUT if architecture < below)
    return _FIRST.get(architecture, version) <= version < next(ended, (sys.maxsize, 0))


def runfile_versions(name: str) -> tuple[str, str | None, str] | None:
    """Return the toolkit, the driver and the platform in a runfile's name.

    ``cuda_12.4.0_550.54.14_linux.run`` is for ``x86_64``, ``_linux_sbsa`` for ``aarch64``. None for any
    other name.
    """
    match = _RUNFILE.search(name)
    if not match:
        return None
    machine = {None: "x86_64", "_sbsa": "aarch64", "_ppc64le": "ppc64le"}[match.group(3)]
    return match.group(1), match.group(2), machine
