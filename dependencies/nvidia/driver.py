"""Determines the requested driver, the installed driver, and the faults of the latter.

A driver works only if kernel module, libraries, tools and fabric manager have the same full version; the same
branch, such as ``550``, is not enough. All functions here are pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dependencies.nvidia.cuda_versions import driver_key
from dependencies.nvidia.packages import (
    LAYOUTS,
    SUBNET_MANAGER,
    Layout,
    belongs_to_driver,
    branch_of,
    of_another_branch,
    precompiled_module,
    upstream,
)

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from agent.facts.packages import InstalledPackage


@dataclass(frozen=True)
class DriverWish:
    """The requested driver.

    Args:
        version: a branch such as ``550``, a full version such as ``550.90.07``, or empty for any.
        kernel: the running kernel.
        open_module: whether the kernel module must be the open one; None if both work.
        prefer_open: whether to prefer the open one if both work.
        prebuilt: whether the kernel module must be built and signed by the distribution.
        fabric_manager: whether the host has NVSwitches that need the fabric manager.
        subnet_manager: whether they also need the NVLink subnet manager.
        imex: whether the host is part of an NVLink domain of several hosts.
        minimum: the oldest full version that is accepted, such as CUDA's; empty for any.
        minimum_for: the name of the component that needs the minimum.
        maximum_branch: the newest branch that supports the GPUs; None for no limit.
        headers: whether the kernel's headers are installed.
        rpm: whether the packages are rpm packages.
        display: whether the host has a display and needs the X driver.
        loaded: the version of the loaded module that answers for every GPU; empty if none does.
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
    display: bool = False
    loaded: str = ""

    def objection(self, version: str) -> str:
        """Return the reason why a full version does not match the wish; empty if it matches."""
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
        version: the full version.
        layout: the naming scheme of its packages.
        open_module: whether it has the open kernel module.
        packages: its packages and their versions, including those with another driver's version.
        precompiled: its rpm packages with a precompiled kernel module for the running kernel.
    """

    version: str
    layout: Layout
    open_module: bool
    packages: Mapping[str, str]
    precompiled: tuple[str, ...] = ()


def find_installed(installed: Mapping[str, InstalledPackage], kernel: str) -> InstalledDriver | None:
    """Return the installed driver with all of its packages.

    Args:
        installed: the packages that dpkg knows, by name.
        kernel: the running kernel.
    """
    present = {
        name: package.version
        for name, package in installed.items()
        if package.installed
        and re.match(r"\d{3,}\.", upstream(package.version))
        and not _is_alias(name, package.version)
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
                version = _driver_version(layout, branch, kernel, present | prebuilt, is_open=is_open)
                if branch_of(version) == branch:
                    found = _packages_of(branch, present)
                    signed = layout.fill([layout.prebuilt], branch, kernel, is_open=is_open)
                    found |= {name: version for name, version in prebuilt.items() if name in signed}
                    if SUBNET_MANAGER in installed and installed[SUBNET_MANAGER].installed:
                        found[SUBNET_MANAGER] = installed[SUBNET_MANAGER].version
                    ready = _precompiled(found, version, kernel, is_open=is_open)
                    return InstalledDriver(version, layout, is_open, found, ready)
    return None


def _driver_version(
    layout: Layout, branch: str, kernel: str, present: Mapping[str, str], *, is_open: bool
) -> str:
    """Return the version of the main driver package; empty if none of this layout and branch is installed.

    A compute library counts only together with a kernel module, whose name shows if it is the open one.
    """
    modules = layout.fill((*layout.dkms, layout.prebuilt), branch, kernel, is_open=is_open)
    has_module = any(name in present for name in modules)
    if layout.rpm:
        has_module = has_module or any(
            module.open == is_open for name in present if (module := precompiled_module(name))
        )
    computing = layout.fill(layout.compute, branch, kernel, is_open=is_open)
    for name in layout.fill(layout.drivers, branch, kernel, is_open=is_open):
        if name in present and (has_module or (layout.prebuilt and name not in computing)):
            return upstream(present[name])
    return ""


def _precompiled(packages: Mapping[str, str], version: str, kernel: str, *, is_open: bool) -> tuple[str, ...]:
    """Return the precompiled modules of a driver for one kernel."""
    return tuple(
        name
        for name, full in packages.items()
        if (module := precompiled_module(name))
        and module.open == is_open
        and module.serves(kernel)
        and (module.version or upstream(full)) == version
    )


def _packages_of(branch: str, present: Mapping[str, str]) -> dict[str, str]:
    """Return the installed packages of a driver: all that can be part of one, except of another branch.

    Some have their own versions: in Debian ``nvidia-modprobe`` and ``nvidia-persistenced``.
    """
    return {
        name: version
        for name, version in present.items()
        if belongs_to_driver(name) and not of_another_branch(name, branch)
    }


def _is_alias(name: str, version: str) -> bool:
    """Return True if a package also has a plain name: without its architecture or its version."""
    return re.search(r":|\.(?:noarch|x86_64|aarch64|i\d86)$", name) is not None or name.endswith(
        f"-{version}"
    )


def needed_services(wish: DriverWish, layout: Layout, branch: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the services that belong to the driver: the name of each, and its possible package names."""
    services = []
    if wish.fabric_manager:
        names = layout.fill(layout.fabric_managers, branch, wish.kernel, is_open=False)
        services.append(("fabric manager", names))
    if wish.imex:
        services.append(("IMEX service", layout.fill(layout.imex, branch, wish.kernel, is_open=False)))
    return services


def faults(
    wish: DriverWish, driver: InstalledDriver | None, offered: Container[str] = frozenset()
) -> list[str]:
    """Return the faults of the installed driver; empty if it matches the wish and is complete.

    Args:
        wish: the requested driver.
        driver: the installed driver.
        offered: names of packages that are offered in the driver's version, and must have it.
    """
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
    ready = any(name in driver.packages for name in (prebuilt, *(() if wish.prebuilt else modules)))
    if not (ready or driver.precompiled or wish.loaded == driver.version):
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
        if (name in exact or name in offered) and upstream(version) != driver.version
    ]
    found += [
        f"the {what} is not installed"
        for what, names in services
        if not any(name in driver.packages for name in names)
    ]
    if wish.subnet_manager and SUBNET_MANAGER not in driver.packages:
        found.append("the NVLink subnet manager is not installed")
    return found
