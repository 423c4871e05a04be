"""Which driver a host is to have, which one it has, and what is wrong with that.

A driver works only if kernel module, libraries, tools and fabric manager have the same full version: ``550``
and ``550`` are not the same. Everything here is a function of values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dependencies.nvidia.cuda_versions import driver_key
from dependencies.nvidia.packages import LAYOUTS, SUBNET_MANAGER, Layout, branch_of, upstream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts.packages import InstalledPackage

__all__ = ["DriverWish", "InstalledDriver", "faults", "find_installed", "needed_services"]


@dataclass(frozen=True)
class DriverWish:
    """The driver that a host is to have.

    Args:
        version: a branch such as ``550``, a full version such as ``550.90.07``, or empty for any.
        kernel: the kernel that runs.
        open_module: whether the kernel module is to be the open one; None where either will do.
        prefer_open: which one to take where either will do.
        prebuilt: whether the kernel module must be one that the distribution built and signed.
        fabric_manager: whether the host has NVSwitches that need the fabric manager.
        subnet_manager: whether they also need the NVLink subnet manager.
        imex: whether the host is part of an NVLink domain of several hosts.
        minimum: the oldest full version that will do, such as CUDA's; empty for any.
        minimum_for: who needs the minimum, in words.
        maximum_branch: the newest branch that knows the GPUs; None for no limit.
        headers: whether the kernel's headers are there.
        rpm: whether its packages are rpm's.
    """

    version: str
    kernel: str
    open_module: bool | None = None
    prefer_open: bool = False
    prebuilt: bool = False
    fabric_manager: bool = False
    subnet_manager: bool = False
    imex: bool = False
    minimum: str = ""
    minimum_for: str = ""
    maximum_branch: int | None = None
    headers: bool = True
    rpm: bool = False

    def objection(self, version: str) -> str:
        """Why a full version is not what is asked for; empty where it is."""
        if self.version and version != self.version and branch_of(version) != self.version:
            return f"it is not {self.version}"
        if self.minimum and driver_key(version) < driver_key(self.minimum):
            return f"{self.minimum_for} needs {self.minimum} or newer"
        if self.maximum_branch is not None and int(branch_of(version)) > self.maximum_branch:
            return f"the GPUs here are known until branch {self.maximum_branch}"
        return ""


@dataclass(frozen=True)
class InstalledDriver:
    """The driver whose packages are installed.

    Args:
        version: its full version.
        layout: how its packages are named.
        open_module: whether it has the open kernel module.
        packages: its packages and their versions; also those that have another driver's version.
    """

    version: str
    layout: Layout
    open_module: bool
    packages: Mapping[str, str]


def find_installed(installed: Mapping[str, InstalledPackage], kernel: str) -> InstalledDriver | None:
    """The driver whose package is installed, with every package that belongs to it.

    Args:
        installed: what dpkg knows, by name.
        kernel: the kernel that runs.
    """
    present = {
        name: package.version
        for name, package in installed.items()
        if package.installed and re.match(r"\d{3,}\.", upstream(package.version))
    }
    prebuilt = {
        name: package.version
        for name, package in installed.items()
        if package.installed and name.startswith("linux-modules-nvidia-")
    }
    branches = sorted({branch_of(upstream(version)) for version in present.values()}, reverse=True)
    for layout in LAYOUTS:
        for branch in branches:
            for is_open in (False, True):
                drivers = layout.fill(layout.drivers, branch, kernel, is_open=is_open)
                version = next((upstream(present[name]) for name in drivers if name in present), "")
                modules = layout.fill(layout.dkms, branch, kernel, is_open=is_open)
                # Where the driver's name tells nothing, the kernel module's does.
                told = layout.prebuilt or any(name in present for name in modules)
                if branch_of(version) == branch and told:
                    names = _all_names(layout, branch, kernel, is_open=is_open)
                    found = {name: version for name, version in (present | prebuilt).items() if name in names}
                    if SUBNET_MANAGER in installed and installed[SUBNET_MANAGER].installed:
                        found[SUBNET_MANAGER] = installed[SUBNET_MANAGER].version
                    return InstalledDriver(version, layout, is_open, found)
    return None


def needed_services(wish: DriverWish, layout: Layout, branch: str) -> list[tuple[str, tuple[str, ...]]]:
    """Services that go with the driver: what each is, and the names that its package may have."""
    services = []
    if wish.fabric_manager:
        names = layout.fill(layout.fabric_managers, branch, wish.kernel, is_open=False)
        services.append(("fabric manager", names))
    if wish.imex:
        services.append(("IMEX service", layout.fill(layout.imex, branch, wish.kernel, is_open=False)))
    return services


def faults(wish: DriverWish, driver: InstalledDriver | None) -> list[str]:
    """Why the installed driver is not what is asked for; empty where it is, as a whole."""
    if driver is None:
        return ["no driver is installed"]
    found = []
    if objection := wish.objection(driver.version):
        found.append(f"driver {driver.version} is installed: {objection}")
    if wish.open_module is not None and driver.open_module != wish.open_module:
        there, wanted = ("open", "closed") if driver.open_module else ("closed", "open")
        found.append(f"the {there} kernel module is installed, not the {wanted} one")
    branch, layout = branch_of(driver.version), driver.layout
    prebuilt = layout.fill([layout.prebuilt], branch, wish.kernel, is_open=driver.open_module)[0]
    modules = layout.fill(layout.dkms, branch, wish.kernel, is_open=driver.open_module)
    if not any(name in driver.packages for name in (prebuilt, *(() if wish.prebuilt else modules))):
        signed = "signed " if wish.prebuilt else ""
        found.append(f"there is no {signed}kernel module for {wish.kernel}")
    if wish.prebuilt:
        found += [f"{name} builds a module that is not signed" for name in modules if name in driver.packages]
    services = needed_services(wish, layout, branch)
    exact = {*modules, *layout.fill(layout.companions, branch, wish.kernel, is_open=driver.open_module)}
    exact |= {name for _, names in services for name in names}
    found += [
        f"{name} is {upstream(version)}, the driver {driver.version}"
        for name, version in sorted(driver.packages.items())
        if name in exact and upstream(version) != driver.version
    ]
    found += [
        f"the {what} is not installed"
        for what, names in services
        if not any(name in driver.packages for name in names)
    ]
    if wish.subnet_manager and SUBNET_MANAGER not in driver.packages:
        found.append("the NVLink subnet manager is not installed")
    return found


def _all_names(layout: Layout, branch: str, kernel: str, *, is_open: bool) -> frozenset[str]:
    names = (
        *layout.drivers, *layout.dkms, layout.prebuilt, *layout.companions, *layout.fabric_managers,
        *layout.imex, *layout.moved_along,
    )  # fmt: skip
    return frozenset(layout.fill(names, branch, kernel, is_open=is_open))
