"""Kernel modules that hold an NVIDIA GPU: NVIDIA's own, open or closed, nouveau and nova."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPETITORS = ("nouveau", "nova_core")
"""Modules of the kernel itself that use an NVIDIA GPU (drivers/gpu/drm/nouveau, drivers/gpu/nova-core)."""

_SYS = "/sys/module"
_SOURCE = f"/proc/modules, {_SYS}"


@dataclass(frozen=True)
class NvidiaModule:
    """NVIDIA's loaded kernel module.

    Args:
        version: its full version, such as ``550.90.07``.
        open: True for the open flavour (MIT/GPL); None if unknown.
    """

    version: str
    open: bool | None = None


def nvidia_module(text: str | None) -> NvidiaModule | None:
    """Read ``/proc/driver/nvidia/version``; the open flavour calls itself ``Open Kernel Module``."""
    match = re.search(r"^NVRM version:.*?Kernel Module.*?\s(\d{3,}(?:\.\d+)+)\s", text or "", re.MULTILINE)
    if not match:
        return None
    return NvidiaModule(match.group(1), "Open Kernel Module" in match.group(0))


def proc_modules(text: str | None) -> frozenset[str] | None:
    """Return the names in ``/proc/modules`` without modules being unloaded; None if not readable."""
    if text is None:
        return None
    lines = (line.split() for line in text.splitlines())
    return frozenset(fields[0] for fields in lines if fields and "Unloading" not in fields)


def module_use(text: str | None, module: str) -> int | None:
    """Return a module's use count, from ``/proc/modules``, or None if it is not loaded."""
    for line in (text or "").splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[0] == module and fields[2].isdigit():  # noqa: PLR2004 - proc_modules(5)
            return int(fields[2])
    return None


def sys_modules(states: Mapping[str, str | None]) -> frozenset[str] | None:
    """Return the modules in ``/sys/module`` without modules being unloaded; None if empty.

    Args:
        states: each name's ``initstate``; None for a built-in module, which does not have this file.
    """
    if not states:
        return None
    return frozenset(name for name, state in states.items() if state and state.strip() != "going")


def _modules(host: Host) -> frozenset[str] | None:
    listed = proc_modules(host.text("/proc/modules"))
    if listed is not None:
        return listed
    return sys_modules({name: host.text(f"{_SYS}/{name}/initstate") for name in host.names(_SYS)})


NVIDIA_MODULE: Fact[NvidiaModule | None] = Fact(
    "nvidia_module",
    "/proc/driver/nvidia/version",
    lambda host: nvidia_module(host.text("/proc/driver/nvidia/version")),
)
LOADED_MODULES: Fact[frozenset[str] | None] = Fact("loaded_modules", _SOURCE, _modules)
COMPETING_MODULES: Fact[tuple[str, ...] | None] = Fact(
    "competing_modules",
    _SOURCE,
    lambda host: (
        None if (loaded := _modules(host)) is None else tuple(name for name in COMPETITORS if name in loaded)
    ),
)
NVIDIA_DRM_USERS: Fact[int | None] = Fact(
    "nvidia_drm_users", "/proc/modules", lambda host: module_use(host.text("/proc/modules"), "nvidia_drm")
)
