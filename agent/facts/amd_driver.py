"""AMD's kernel driver and ROCm, and access to their devices."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.facts.base import Fact, Host

_MODULE = "/sys/module/amdgpu"
_MODPROBE = "/etc/modprobe.d"
_ROCM_FILES = ("/opt/rocm/.info/version", "/opt/rocm/core/.info/version")
_VERSION_COMMAND = ("amd-smi", "version", "--json")


@dataclass(frozen=True)
class AmdgpuModule:
    """The loaded kernel module amdgpu.

    Args:
        version: the version of AMD's own module, such as ``6.12.12``; None for the kernel's module, which
            has no version.
    """

    version: str | None = None


@dataclass(frozen=True)
class DeviceAccess:
    """A device that ROCm needs.

    Args:
        path: such as ``/dev/kfd``.
        group: the name of the group that may use it; its number if it has no name here.
        group_number: the number of that group.
        mine: True if this user can open it: as root, or as a member of the group.
    """

    path: str
    group: str
    group_number: int
    mine: bool


def blacklists_amdgpu(text: str | None) -> bool:
    """Return True if a file of ``/etc/modprobe.d`` keeps amdgpu from loading."""
    pattern = r"^\s*(?:blacklist\s+amdgpu|install\s+amdgpu\s+/(?:usr/)?bin/(?:false|true))\s*$"
    return re.search(pattern, text or "", re.MULTILINE) is not None


def rocm_version(text: str | None) -> str | None:
    """Return the version in ``.info/version`` ("6.3.1-48") or ``amd-smi version``; None if there is none."""
    found = re.search(
        r"(?:^|\"rocm_version\"\s*:\s*\"|ROCm version: )(\d+\.\d+(?:\.\d+)?)", (text or "").strip()
    )
    return found[1] if found else None


def _module(host: Host) -> AmdgpuModule | None:
    state = host.text(f"{_MODULE}/initstate")
    version = (host.text(f"{_MODULE}/version") or "").strip()
    # A module built into the kernel does not have a state, only parameters.
    if (state is None and not host.names(_MODULE)) or (state or "").strip() == "going":
        return None
    return AmdgpuModule(version or None)


def _blacklists(host: Host) -> tuple[str, ...]:
    return tuple(
        f"{_MODPROBE}/{name}"
        for name in host.names(_MODPROBE)
        if name.endswith(".conf") and blacklists_amdgpu(host.text(f"{_MODPROBE}/{name}"))
    )


def _rocm(host: Host) -> str | None:
    files = [*_ROCM_FILES, *(f"/opt/{name}/.info/version" for name in reversed(host.names("/opt")))]
    found = next(
        (version for path in files if "rocm" in path if (version := rocm_version(host.text(path)))), None
    )
    return found or rocm_version(host.output(_VERSION_COMMAND))


def _access(host: Host) -> tuple[DeviceAccess, ...]:
    paths = ["/dev/kfd"] if "kfd" in host.names("/dev") else []
    paths += [f"/dev/dri/{name}" for name in host.names("/dev/dri") if name.startswith(("card", "renderD"))]
    if not paths:
        return ()
    own = {int(group) for group in (host.output(["id", "-G"]) or "").split() if group.isdigit()}
    root = (host.output(["id", "-u"]) or "").strip() == "0"
    found = []
    for line in (host.output(["stat", "--format=%n %G %g", *paths]) or "").splitlines():
        path, group, number = line.rsplit(" ", 2)
        name = number if group == "UNKNOWN" else group
        found.append(DeviceAccess(path, name, int(number), root or int(number) in own))
    return tuple(found)


AMDGPU_MODULE: Fact[AmdgpuModule | None] = Fact("amdgpu_module", _MODULE, _module)
AMDGPU_BLACKLISTS: Fact[tuple[str, ...]] = Fact("amdgpu_blacklists", _MODPROBE, _blacklists)
ROCM_VERSION: Fact[str | None] = Fact("rocm_version", f"{_ROCM_FILES[0]}, amd-smi version", _rocm)
AMD_DEVICES: Fact[tuple[DeviceAccess, ...]] = Fact("amd_devices", "/dev/kfd, /dev/dri, id, stat", _access)
