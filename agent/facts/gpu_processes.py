"""Processes that use a GPU: those that compute on it, and those that keep its device files open."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Iterable

_COMPUTE = ("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
_HOLDERS = "find /proc/[0-9]*/fd -lname '/dev/nvidia*' -printf '%p\\n' 2>/dev/null; :"
_NODES = "/sys/class/drm"
_KFD = "/sys/class/kfd/kfd/proc"
_SYSTEM = frozenset(
    {"nvidia-persiste", "nv-fabricmanage", "nvidia-imex", "nvlsm", "nv-hostengine", "nvidia-smi"}
)
"""Services of the driver and its tools, which lose no work; the kernel cuts names to 15 bytes (comm)."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU.

    Args:
        pid: its number.
        name: its program.
    """

    pid: int
    name: str

    @property
    def is_workload(self) -> bool:
        """True if it is not a service of the driver."""
        return self.name[:15] not in _SYSTEM

    def __str__(self) -> str:
        """Return a readable form."""
        return f"{self.name} (process {self.pid})"


def compute_apps(text: str | None) -> dict[int, str]:
    """Return programs by process number, from ``nvidia-smi --query-compute-apps``."""
    found = {}
    for line in (text or "").splitlines():
        pid, _, name = (part.strip() for part in line.partition(","))
        if pid.isdigit():
            found[int(pid)] = "" if name.startswith("[") else name.rpartition("/")[2]
    return found


def device_holders(text: str | None) -> tuple[int, ...]:
    """Return the process numbers in paths such as ``/proc/812/fd/5``."""
    return tuple(sorted({int(pid) for pid in re.findall(r"^/proc/(\d+)/fd/", text or "", re.MULTILINE)}))


def _merge(host: Host, computing: dict[int, str], holding: Iterable[int]) -> tuple[GpuProcess, ...]:
    names = dict(computing)
    for pid in {*computing, *holding}:
        comm = (host.text(f"/proc/{pid}/comm") or "").strip()
        names[pid] = names.get(pid) or comm or "a process"
    return tuple(GpuProcess(pid, names[pid]) for pid in sorted(names))


GPU_PROCESSES: Fact[tuple[GpuProcess, ...]] = Fact(
    "gpu_processes",
    "nvidia-smi --query-compute-apps, /proc/*/fd",
    lambda host: _merge(
        host,
        compute_apps(host.output(_COMPUTE, timeout_s=30)),
        device_holders(host.output(["sh", "-c", _HOLDERS], timeout_s=20)),
    ),
)


def _drm_holders(host: Host) -> tuple[GpuProcess, ...]:
    """Return the processes that hold NVIDIA's nodes in /dev/dri; other vendors have nodes there, too."""
    nodes = [
        f"/dev/dri/{name}"
        for name in host.names(_NODES)
        if re.fullmatch(r"(?:card|renderD)\d+", name)
        and (host.text(f"{_NODES}/{name}/device/vendor") or "").strip() == "0x10de"
    ]
    wanted = " -o ".join(f"-lname {node}" for node in (*nodes, "/dev/nvidia-modeset"))
    command = f"find /proc/[0-9]*/fd \\( {wanted} \\) -printf '%p\\n' 2>/dev/null; :"
    return _merge(host, {}, device_holders(host.output(["sh", "-c", command], timeout_s=20)))


NVIDIA_DRM_HOLDERS: Fact[tuple[GpuProcess, ...]] = Fact(
    "nvidia_drm_holders", f"/proc/*/fd, {_NODES}/*/device/vendor", _drm_holders
)
"""Processes that use nvidia-drm and nvidia-modeset: mostly display servers."""
AMD_GPU_PROCESSES: Fact[tuple[GpuProcess, ...]] = Fact(
    "amd_gpu_processes",
    _KFD,
    lambda host: _merge(host, {}, (int(name) for name in host.names(_KFD) if name.isdecimal())),
)
"""Processes that compute on AMD GPUs: amdgpu has a folder for each (``kfd_process.c``)."""
