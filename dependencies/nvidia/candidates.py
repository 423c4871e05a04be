"""Finds the complete drivers that the repositories offer, and ranks them."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dependencies.nvidia.cuda_versions import driver_key
from dependencies.nvidia.driver import DriverWish, InstalledDriver, needed_services
from dependencies.nvidia.packages import (
    LAYOUTS,
    SUBNET_MANAGER,
    Layout,
    belongs_to_driver,
    branch_of,
    other_branch,
    precompiled_module,
    upstream,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.facts.package_solutions import PackageSolution
    from agent.facts.package_versions import PackageOffer
    from agent.facts.packages import InstalledPackage

_VERSION = re.compile(r"\d{3,}(?:\.\d+)+")
_SOURCES = ("nvidia-kernel-source-{branch}-server{open}", "nvidia-kernel-source-{branch}{open}")
_ROLE = re.compile(
    r"(?:nvidia-(?:driver|dkms|headless(?:-no-dkms)?|kernel-common|kernel-source|utils|compute-utils|firmware"
    r"|fabricmanager(?:-dev)?|imex|open)|libnvidia-[a-z0-9]+|xserver-xorg-video-nvidia|linux-modules-nvidia"
    r"|cuda-drivers(?:-fabricmanager)?)-(\d{3})(?:-.*)?"
)


@dataclass(frozen=True)
class Candidate:
    """A driver that a repository offers.

    Args:
        version: the full version.
        origin: the origin of the repository.
        layout: the naming scheme of its packages.
        open_module: whether it has the open kernel module.
        prebuilt: whether the distribution built and signed the module.
        packages: its packages, each with the exact version to install: at first those to request, and after
            solving all that the package manager would change.
        unpinned: further packages to install, in any version.
        pins: the version of every package that is offered in the driver's version.
        changes: everything that would be installed or changed, including packages that are not the driver's.
        problems: the reasons why it is not complete; empty for a complete driver.
    """

    version: str
    origin: str
    layout: Layout
    open_module: bool
    prebuilt: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    unpinned: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the line for a list of candidates."""
        flavour = "open" if self.open_module else "closed"
        text = f"{self.version} from {self.origin} ({self.layout.name} packages, {flavour} kernel module)"
        return f"{text}: {'; '.join(self.problems)}" if self.problems else text

    def loose(self, solution: PackageSolution) -> dict[str, str]:
        """Return packages that would get another version than the driver's, although it is offered."""
        return {
            name: self.pins[name]
            for name, version in solution.changes.items()
            if name in self.pins and self.pins[name].removeprefix("0:") != version.removeprefix("0:")
        }

    def solved(self, solution: PackageSolution) -> Candidate:
        """Return the candidate with all changes of the package manager, or with the problem."""
        if solution.problem:
            return replace(self, problems=solution.problem)
        driver = {
            name: new
            for name, new in solution.changes.items()
            if belongs_to_driver(name) and _VERSION.fullmatch(upstream(new))
        }
        return replace(self, packages={**self.packages, **driver}, changes=solution.changes)


def candidates(
    wish: DriverWish,
    offers: Iterable[PackageOffer],
    *,
    origins: frozenset[str] | None = None,
    installed: InstalledDriver | None = None,
) -> list[Candidate]:
    """Return every driver of the requested branch, best first, including incomplete ones.

    The installed version comes first, because a mismatch is repaired in place. Then the order of the layouts
    counts, then the newest version.

    Args:
        wish: the requested driver.
        offers: the packages in the repositories.
        origins: the accepted origins; None for any.
        installed: the driver that is installed.
    """
    table: dict[str, dict[str, list[PackageOffer]]] = defaultdict(lambda: defaultdict(list))
    names = set()
    for offer in offers:
        names.add(offer.name)
        if origins is None or offer.origin in origins:
            table[offer.origin][offer.name].append(offer)
    found = [
        _Selection(
            wish,
            offered,
            driver,
            layout,
            is_open=is_open,
            headers_offered=layout.headers(wish.kernel) in names,
        ).candidate(installed)
        for offered in table.values()
        for layout in LAYOUTS
        if layout.rpm == wish.rpm
        for is_open in ((False, True) if wish.open_module is None else (wish.open_module,))
        for driver in _drivers(wish, offered, layout, is_open=is_open)
    ]

    def rank(candidate: Candidate) -> tuple[bool, int, bool, tuple[int, ...], bool]:
        there = installed and (candidate.version, candidate.layout) == (installed.version, installed.layout)
        preferred = installed.open_module if there and installed else wish.prefer_open
        newest = tuple(-part for part in driver_key(candidate.version))
        return (
            not there,
            LAYOUTS.index(candidate.layout),
            candidate.open_module != preferred,
            newest,
            candidate.origin == "NVIDIA",
        )

    return sorted(found, key=rank)


def superseded(
    installed: Mapping[str, InstalledPackage],
    chosen: Candidate,
    kernel: str,
    before: InstalledDriver | None = None,
) -> tuple[str, ...]:
    """Return installed packages of another branch, family or kernel module, which the new driver replaces.

    Args:
        installed: the packages that dpkg knows.
        chosen: the driver to install.
        kernel: the running kernel.
        before: the installed driver; its packages that the new one does not have are replaced too.
    """
    branch = branch_of(chosen.version)
    layout = chosen.layout
    other = layout.fill(
        (*layout.drivers, *layout.dkms, layout.prebuilt, "nvidia-kernel-source-{branch}-server{open}"),
        branch,
        kernel,
        is_open=not chosen.open_module,
    )
    if chosen.prebuilt:
        sources = layout.fill((*layout.drivers, *layout.dkms), branch, kernel, is_open=chosen.open_module)
        other = (*other, *sources)
    found = []
    for name, package in installed.items():
        if not (package.installed or package.broken) or name in chosen.packages or ":" in name:
            continue
        match = _ROLE.fullmatch(name)
        flavoured = match and "-server" in name
        shared = re.match(r"nvidia-(?:fabricmanager|imex)|cuda-drivers", name)
        foreign = match and (
            match.group(1) != branch or (not shared and bool(flavoured) != (layout.name == "server"))
        )
        gone = (
            before is not None
            and name in before.packages
            and upstream(package.version) == before.version != chosen.version
            and name not in chosen.pins
        )
        if foreign or gone or name in other:
            found.append(name)
    return tuple(sorted(found))


def _drivers(
    wish: DriverWish, offered: Mapping[str, list[PackageOffer]], layout: Layout, *, is_open: bool
) -> list[PackageOffer]:
    """Return the offers of the main driver package in the requested branch."""
    found = []
    for name, offers in offered.items():
        for offer in offers:
            version = upstream(offer.version)
            branch = branch_of(version)
            if not _VERSION.fullmatch(version) or branch_of(wish.version or version) != branch:
                continue
            whole = wish.display or layout.rpm
            wanted = (
                layout.without_dkms if wish.prebuilt else (layout.drivers if whole else layout.compute)[0]
            )
            if name in layout.fill([wanted], branch, wish.kernel, is_open=is_open):
                found.append(offer)
    return found


class _Selection:
    """Selects the packages that belong to an offered driver, and collects problems.

    Args:
        wish: the requested driver.
        offered: the packages of the driver's own origin, by name.
        driver: the driver.
        layout: the naming scheme of its packages.
        is_open: whether it has the open kernel module.
        headers_offered: whether any repository has the headers of the running kernel.
    """

    def __init__(
        self,
        wish: DriverWish,
        offered: Mapping[str, list[PackageOffer]],
        driver: PackageOffer,
        layout: Layout,
        *,
        is_open: bool,
        headers_offered: bool,
    ) -> None:
        self._headers_offered = headers_offered
        self._wish = wish
        self._offered = offered
        self._driver = driver
        self._layout = layout
        self._is_open = is_open
        self._version = upstream(driver.version)
        self._branch = branch_of(self._version)
        self._packages: dict[str, str] = {}
        self._unpinned: list[str] = []
        self._problems: list[str] = []

    def candidate(self, installed: InstalledDriver | None) -> Candidate:
        """Return the candidate, complete or with its problems."""
        if objection := self._wish.objection(self._version):
            self._problems.append(objection)
        self._take([self._driver.name], "driver")
        if not self._problems:
            if installed and installed.precompiled and installed.version == self._version:
                pass  # a correct installed module stays
            elif self._layout.rpm and (ready := self._precompiled(installed)):
                self._packages[ready.name] = ready.version
            elif self._wish.prebuilt:
                self._take_prebuilt()
            else:
                self._take_dkms()
            for what, names in needed_services(self._wish, self._layout, self._branch):
                self._take(names, what)
            self._take_subnet_manager()
            self._take_what_computes()
            self._take_companions(installed.packages if installed else {})
        return Candidate(
            self._version,
            self._driver.origin,
            self._layout,
            self._is_open,
            self._wish.prebuilt,
            self._packages,
            tuple(self._unpinned),
            self._pins(),
            problems=tuple(self._problems),
        )

    def _pins(self) -> dict[str, str]:
        """Return every package that is offered in the driver's version, preferably in its revision."""
        pins = {name: offer.version for name in self._offered if (offer := self._of_this_version(name))}
        return {**pins, **self._packages}

    def _fill(self, names: Iterable[str]) -> tuple[str, ...]:
        return self._layout.fill(names, self._branch, self._wish.kernel, is_open=self._is_open)

    def _of_this_version(self, name: str) -> PackageOffer | None:
        found = [offer for offer in self._offered.get(name, ()) if upstream(offer.version) == self._version]
        exact = [offer for offer in found if offer.version == self._driver.version]
        return next(iter(exact or found), None)

    def _take(self, names: Sequence[str], what: str) -> None:
        """Take the first name that is offered in the driver's version."""
        offer = next((offer for offer in map(self._of_this_version, names) if offer), None)
        if offer is None:
            others = {upstream(offer.version) for name in names for offer in self._offered.get(name, ())}
            told = f", only {', '.join(sorted(others))}" if others else ""
            self._problems.append(f"no {what} {self._version}{told}")
        elif lead := other_branch(offer.depends, self._branch):
            self._problems.append(f"{offer.name} only leads to {lead}")
        elif self._layout.name != "server" and f"-{self._branch}-server-" in offer.depends:
            self._problems.append(f"{offer.name} goes with the server packages alone")
        else:
            self._packages[offer.name] = offer.version

    def _take_dkms(self) -> None:
        self._take(self._fill(self._layout.dkms), "kernel module")
        headers = self._layout.headers(self._wish.kernel)
        if self._wish.headers:
            return
        if self._headers_offered:
            self._unpinned.append(headers)
        else:
            self._problems.append(f"no headers of the kernel {self._wish.kernel} to build its module with")

    def _precompiled(self, installed: InstalledDriver | None) -> PackageOffer | None:
        """Return a prebuilt module, if the host already has such modules."""
        if installed is None or not any(map(precompiled_module, installed.packages)):
            return None
        for name, offers in self._offered.items():
            module = precompiled_module(name)
            if (
                module
                and (module.version, module.open) == (self._version, self._is_open)
                and (module.serves(self._wish.kernel))
            ):
                return offers[0]
        return None

    def _take_prebuilt(self) -> None:
        """Take a prebuilt module: its version is the kernel's, and its dependencies name its driver."""
        (name,) = self._fill([self._layout.prebuilt])
        for offer in self._offered.get(name, ()):
            if f"(>= {self._version})" in offer.depends or f"(= {self._driver.version})" in offer.depends:
                self._packages[name] = offer.version
                return
        self._problems.append(f"no signed kernel module {self._version} for {self._wish.kernel}")

    def _take_subnet_manager(self) -> None:
        if not self._wish.subnet_manager:
            return
        if offers := self._offered.get(SUBNET_MANAGER):
            self._packages[SUBNET_MANAGER] = offers[0].version
        else:
            self._problems.append(f"{self._driver.origin} has no {SUBNET_MANAGER}")

    def _take_what_computes(self) -> None:
        """Take the other tools and libraries if they are offered as separate packages."""
        for name in self._fill(self._layout.compute):
            offer = self._of_this_version(name)
            if offer and name not in self._packages and not other_branch(offer.depends, self._branch):
                self._packages[name] = offer.version

    def _take_companions(self, present: Mapping[str, str]) -> None:
        """Update installed packages along; apt brings the rest, but dnf would take its newest version."""
        companions = self._fill(self._layout.companions)
        excluded = self._of_another_module()
        there = tuple(name for name in present if belongs_to_driver(name) and name not in excluded)
        for name in dict.fromkeys((*companions, *there)):
            offer = self._of_this_version(name)
            wanted = self._layout.rpm or name in present
            if offer and wanted and not other_branch(offer.depends, self._branch):
                self._packages[name] = offer.version
            elif not offer and name in present and name in companions:
                self._problems.append(f"no {name} {self._version}")

    def _of_another_module(self) -> frozenset[str]:
        """Return the packages for the other kind of kernel module: open or closed, prebuilt or built here."""
        layout = self._layout
        module = (*layout.drivers, *layout.dkms, *_SOURCES)
        names = layout.fill(module, self._branch, self._wish.kernel, is_open=not self._is_open)
        mine = layout.fill(layout.drivers, self._branch, self._wish.kernel, is_open=self._is_open)
        built = self._fill(module) if self._wish.prebuilt else ()
        return frozenset(names).difference(mine) | frozenset(built)
