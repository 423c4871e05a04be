"""Which driver a host is to have, which one it has, and what is wrong with that.

A driver works only if kernel module, libraries, tools and fabric manager have the same full version: ``550``
and ``550`` are not the same. Everything here is a function of values.
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
        display: whether the host shows pictures, and the X driver comes along.
        loaded: the version of the module that is loaded and answers for every GPU; empty where none does.
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
        precompiled: those of them that are a kernel module which rpm has ready for the kernel that runs.
    """

    version: str
    layout: Layout
    open_module: bool
    packages: Mapping[str, str]
    precompiled: tuple[str, ...] = ()


def find_installed(installed: Mapping[str, InstalledPackage], kernel: str) -> InstalledDriver | None:
    """The driver whose package is installed, with every package that belongs to it.

    Args:
        installed: what dpkg knows, by name.
        kernel: the kernel that runs.
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
                    found = _packages_of(layout, branch, kernel, present, is_open=is_open)
                    signed = layout.fill([layout.prebuilt], branch, kernel, is_open=is_open)
                    found |= {name: version for name, version in prebuilt.items() if name in signed}
                    if SUBNET_MANAGER in installed and installed[SUBNET_MANAGER].installed:
                        found[SUBNET_MANAGER] = installed[SUBNET_MANAGER].version
                    ready = _precompiled(found, version, kernel, is_open=is_open) if layout.rpm else ()
                    return InstalledDriver(version, layout, is_open, found, ready)
    return None


def _driver_version(
    layout: Layout, branch: str, kernel: str, present: Mapping[str, str], *, is_open: bool
) -> str:
    """The version of the package that is the driver; empty where there is none of this layout and branch.

    A library that computes is a driver only with a kernel module, whose name also tells its flavour.
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
    """The precompiled modules of a driver for one kernel."""
    return tuple(
        name
        for name, full in packages.items()
        if (module := precompiled_module(name))
        and module.open == is_open
        and module.serves(kernel)
        and (module.version or upstream(full)) == version
    )


def _packages_of(
    layout: Layout, branch: str, kernel: str, present: Mapping[str, str], *, is_open: bool
) -> dict[str, str]:
    """The installed packages of a driver, by name: all that are part of one, unless of another branch.

    Some have versions of their own: in Debian ``nvidia-modprobe`` and ``nvidia-persistenced``.
    """
    names = _all_names(layout, branch, kernel, is_open=is_open)
    return {
        name: version
        for name, version in present.items()
        if name in names or (belongs_to_driver(name) and not of_another_branch(name, branch))
    }


def _is_alias(name: str, version: str) -> bool:
    """Whether a package stands under another name as well: with its architecture, or with its version."""
    return re.search(r":|\.(?:noarch|x86_64|aarch64|i\d86)$", name) is not None or name.endswith(
        f"-{version}"
    )


def needed_services(wish: DriverWish, layout: Layout, branch: str) -> list[tuple[str, tuple[str, ...]]]:
    """Services that go with the driver: what each is, and the names that its package may have."""
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
    """Why the installed driver is not what is asked for; empty where it is, as a whole.

    Args:
        wish: what is asked for.
        driver: what is installed.
        offered: names of packages that somebody offers in the driver's version: these must have it.
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


def _all_names(layout: Layout, branch: str, kernel: str, *, is_open: bool) -> frozenset[str]:
    names = (
        *layout.drivers, *layout.dkms, layout.prebuilt, *layout.companions, *layout.fabric_managers,
        *layout.imex, *layout.moved_along,
    )  # fmt: skip
    return frozenset(layout.fill(names, branch, kernel, is_open=is_open))
