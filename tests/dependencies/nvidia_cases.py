"""Short forms for NVIDIA's packages in cases: a family stands for the packages that it consists of.

``server``, ``server-open``, ``headless``, ``branch``, ``branch-open``, ``plain-open``, ``debian``, ``rpm``,
``rpm-open`` are keys of ``installed_packages`` and first words in ``package_offers``; the branch follows from
the version. ``held_packages: driver`` holds all installed packages of the driver, ``exclusions: driver``
writes the settings for unattended-upgrades, ``version_lock: driver`` the agent's part of dnf's versionlock.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.facts.cuda_toolkits import CudaToolkit
from agent.facts.gpu_processes import GpuProcess
from agent.facts.gpus import Gpu
from agent.facts.nvidia_module import NvidiaModule
from agent.facts.package_solutions import PackageSolution
from agent.facts.package_versions import PackageOffer
from agent.facts.services import ServiceState
from agent.facts.unattended_upgrades import UnattendedUpgrades
from dependencies.packages.version_lock import VersionLock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.facts.packages import InstalledPackage

__all__ = ["NVIDIA_READERS", "expand", "solution_of"]

_LIBRARIES = ("libnvidia-compute", "libnvidia-cfg1", "nvidia-kernel-common", "nvidia-utils")
_DEBIAN = ("nvidia-driver", "nvidia-kernel-dkms", "nvidia-smi", "libcuda1")
_EXCLUSIONS = "text[/etc/apt/apt.conf.d/52vcagent-nvidia]"
_RPM = ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "nvidia-kmod-common", "libnvidia-ml")
_LOCKS = {False: Path("/etc/dnf/plugins/versionlock.list"), True: Path("/etc/dnf/versionlock.toml")}
"""By whether the host has dnf 5."""
_FAMILY = re.compile(r"(server|headless|branch|plain|debian|rpm)(-open)?")


def _family(word: str, version: str) -> tuple[str, ...]:
    match = _FAMILY.fullmatch(word)
    assert match, word
    name, flavour = match.group(1), match.group(2) or ""
    if name == "rpm":
        return (*_RPM, f"kmod-nvidia{flavour or '-latest'}-dkms")
    branch = version.partition(".")[0]
    suffix = {
        "server": f"-{branch}-server",
        "headless": f"-{branch}-server",
        "branch": f"-{branch}",
        "plain": "",
        "debian": "",
    }[name]
    if name == "debian":
        return _DEBIAN
    roles: tuple[str, ...] = ("nvidia-driver", "nvidia-dkms", "nvidia-kernel-source")
    if name == "headless":
        roles = ("nvidia-headless-no-dkms", "nvidia-kernel-source")
    return (
        *(f"{role}{suffix}{flavour}" for role in roles),
        *(f"{library}{suffix}" for library in _LIBRARIES),
    )


def _offers(lines: list[str]) -> tuple[PackageOffer, ...]:
    offers = []
    for line in lines:
        name, version, origin, *depends = line.split(maxsplit=3)
        names = _family(name, version) if _FAMILY.fullmatch(name) else (name,)
        needs = ", ".join(each for each in names[1:] if not each.startswith("kmod-"))
        offers += [
            PackageOffer(each, version, origin, "".join(depends) or (needs if each == names[0] else ""))
            for each in names
        ]
    return tuple(dict.fromkeys(offers))


def solution_of(
    command: str, offers: tuple[PackageOffer, ...], installed: Mapping[str, InstalledPackage]
) -> PackageSolution:
    """Return a package manager's solution: the named packages, and their dependencies in the same version.

    Real package managers are used in ``nvidia/test_apt_closure.py`` and ``test_dnf_driver.py``.
    """
    by_name = {(offer.name, offer.version): offer for offer in offers}
    words = [word for word in shlex.split(command) if not word.startswith("--")]
    named = [tuple(word.split("=", 1)) for word in words if "=" in word]
    named += [offer for offer in by_name if f"{offer[0]}-{offer[1]}" in words]
    changes: dict[str, str] = {}
    while named:
        name, version = named.pop()
        offer = by_name.get((name, version))
        if name in changes or offer is None:
            continue
        changes[name] = version
        named += [(need, version) for need in offer.depends.split(", ") if need]
    changes = {
        name: version
        for name, version in changes.items()
        if name not in installed or installed[name].version != version
    }
    return PackageSolution(changes, tuple(word[:-1] for word in words if word.endswith("-")))


def expand(values: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a case with its short forms written out."""
    values = dict(values)
    installed = {}
    for name, state in (values.get("installed_packages") or {}).items():
        names = _family(name, state[0]) if _FAMILY.fullmatch(name) else (name,)
        installed |= dict.fromkeys(names, state)
    if installed:
        values["installed_packages"] = installed
    driver = sorted(
        name
        for name, (_, *status) in installed.items()
        if re.search("nvidia|cuda|nvlsm", name) and status and status[0][1] == "i"
    )
    if values.pop("version_lock", None) == "driver":
        path = _LOCKS[values.get("dnf_5", False)]
        locks = {name: installed[name][0] for name in driver}
        values[f"text[{path}]"] = VersionLock(path).with_locks(None, locks)
    if values.get("held_packages") == "driver":
        values["held_packages"] = driver
    if (exclusions := values.pop("exclusions", None)) is not None:
        names = driver if exclusions == "driver" else exclusions
        lines = "".join(f'    "^{name}$";\n' for name in sorted(names))
        values[_EXCLUSIONS] = (
            "// Written by vcagent: a driver works only in one version, and an upgrade would break a run.\n"
            f"Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"
        )
    return values


NVIDIA_READERS: dict[str, Callable[[Any], Any]] = {
    "competing_modules": tuple,
    "cuda_toolkit": lambda value: value and CudaToolkit(**value),
    "gpu_processes": lambda value: tuple(GpuProcess(*process) for process in value),
    "gpus": lambda value: tuple(Gpu(**gpu) for gpu in value),
    "held_packages": frozenset,
    "loaded_modules": frozenset,
    "nvidia_module": lambda value: value and NvidiaModule(*value),
    "package_offers": _offers,
    "rpm_driver_offers": _offers,
    "package_solution": lambda value: PackageSolution(**value),
    "service": lambda value: value and ServiceState(**value),
    "unattended_upgrades": lambda value: UnattendedUpgrades(
        enabled=value["enabled"], excluded=tuple(value.get("excluded", ()))
    ),
}
