"""Installs packages of the distribution."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field, field_validator

from agent.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.errors import DependencyFailedError, HostError
from agent.facts.linux import DISTRIBUTION
from agent.facts.packages import (
    APT_LISTS_AGE_S,
    AVAILABLE_PACKAGES,
    INSTALLED_PACKAGES,
    PACKAGE_MANAGER,
    apt_names,
    installed_as,
)
from agent.facts.users import ROOT
from dependencies.apt import APT_GET, APT_UPDATE, DPKG_REPAIR, run_apt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.facts import Facts
    from agent.facts.packages import InstalledPackage

__all__ = ["LinuxPackageInstallation", "LinuxPackageInstallationParameters", "PackageWish"]

LISTS_LIFE_S = 24 * 3600
"""Seconds after which apt's lists are fetched again before something is installed."""

# apt removes a package whose name is given with a dash at its end.
_NAME = r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.](?::[a-z0-9]+(?:-[a-z0-9]+)*)?"
_VERSION = r"[A-Za-z0-9.+:~*-]*[A-Za-z0-9.+~*]"


@dataclass(frozen=True)
class PackageWish:
    """A package that is asked for.

    Args:
        name: its name, with ``:architecture`` where that matters.
        version: the version, which may end with ``*``; None for any.
    """

    name: str
    version: str | None = None

    @classmethod
    def parse(cls, text: str) -> PackageWish:
        """Read ``name`` or ``name=version``.

        Raises:
            ValueError: if it is neither.
        """
        match = re.fullmatch(rf"({_NAME})(?:=({_VERSION}))?", text)
        if not match:
            raise ValueError(f"{text!r} is no package: write name or name=version")
        return cls(match.group(1), match.group(2))

    def __str__(self) -> str:
        """As apt takes it."""
        return self.name if self.version is None else f"{self.name}={self.version}"

    @property
    def plain_name(self) -> str:
        """The name without its architecture."""
        return self.name.partition(":")[0]

    def fulfilled(self, installed: Mapping[str, InstalledPackage]) -> bool:
        """Whether the package is installed, and in that version."""
        package = installed_as(self.name, installed)
        if package is None or not package.installed:
            return False
        return self.version is None or fnmatchcase(package.version, self.version)


class LinuxPackageInstallationParameters(ComponentParameters):
    """VirtualClient's parameters (LinuxPackageInstallation.cs): names separated by commas, or lists."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    packages: tuple[str, ...] = Field((), description="Packages by the name they have everywhere.")
    packages_apt: tuple[str, ...] = Field((), description="Further packages where apt installs.")
    packages_debian: tuple[str, ...] = Field((), description="Further packages on Debian.")
    packages_ubuntu: tuple[str, ...] = Field((), description="Further packages on Ubuntu.")
    packages_dnf: tuple[str, ...] = Field((), description="Further packages where dnf installs.")
    packages_yum: tuple[str, ...] = Field((), description="Further packages where yum installs.")
    packages_zypper: tuple[str, ...] = Field((), description="Further packages where zypper installs.")
    interactive: bool = Field(default=True, description="VirtualClient's; nothing is ever asked here.")
    recommends: bool = Field(default=False, description="Whether recommended packages come along.")
    lock_timeout: float = Field(600, ge=0, description="Seconds to wait for another package manager.")

    @field_validator(
        "packages", "packages_apt", "packages_debian", "packages_ubuntu", "packages_dnf", "packages_yum",
        "packages_zypper", mode="before",
    )  # fmt: skip
    @classmethod
    def _names(cls, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value or ()
        names = tuple(name for name in (str(part).strip() for part in parts) if name)
        for name in names:
            PackageWish.parse(name)
        return names


class LinuxPackageInstallation(Dependency):
    """Installs what is missing of a list of packages, and changes nothing else."""

    Parameters = LinuxPackageInstallationParameters
    parameters: LinuxPackageInstallationParameters

    def plan(self, facts: Facts) -> Plan:
        """Install what is missing; fetch apt's lists first where they are old or do not know it."""
        manager = facts[PACKAGE_MANAGER]
        wishes = self._wishes(manager, facts[DISTRIBUTION].id)
        if not wishes:
            return Plan(nothing_to_do="no packages are asked for on this distribution")
        if manager != "apt":
            names = ", ".join(map(str, wishes))
            raise HostError(
                f"packages are installed by apt only in this version, and this host has {manager or 'none'}",
                remedy=f"install them yourself and take this element out of the profile: {names}",
            )
        installed = facts[INSTALLED_PACKAGES]
        missing = [wish for wish in wishes if not wish.fulfilled(installed)]
        names = " ".join(map(str, missing))
        if not missing:
            return Plan(nothing_to_do=f"installed: {', '.join(map(str, wishes))}")
        if not facts[ROOT]:
            raise HostError(
                f"root is needed to install {names}",
                remedy=f"run vcagent as root, or once: sudo apt-get install {names}",
            )
        steps = []
        if broken := sorted({name.partition(":")[0] for name, state in installed.items() if state.broken}):
            steps.append(
                self._step(
                    "repair",
                    f"an earlier installation was cut short: {', '.join(broken)}",
                    list(DPKG_REPAIR),
                )
            )
        if reason := _why_update(facts, missing):
            steps.append(self._step("update", reason, list(APT_UPDATE)))
        steps.append(
            self._step(
                "install",
                "; ".join(_why(wish, installed) for wish in missing),
                self._install_command(missing),
                missing,
            )
        )
        return Plan(tuple(steps))

    def _wishes(self, manager: str | None, distribution: str) -> list[PackageWish]:
        names = [*self.parameters.packages]
        for suffix in (manager, distribution):
            names += getattr(self.parameters, f"packages_{suffix}", ())
        return [PackageWish.parse(name) for name in dict.fromkeys(names)]

    def _install_command(self, missing: list[PackageWish]) -> list[str]:
        command = [*APT_GET, "install", "--no-remove"]
        if not self.parameters.recommends:
            command.append("--no-install-recommends")
        if any(wish.version for wish in missing):
            # A pinned version may be older than the one that is there.
            command.append("--allow-downgrades")
        return [*command, *map(str, missing)]

    def _step(
        self, name: str, reason: str, command: list[str], wishes: list[PackageWish] | None = None
    ) -> Step:
        def run(context: StepContext) -> StepOutcome:
            _check_names(context.facts.fresh(), wishes or ())
            result = run_apt(context, command, self.parameters.lock_timeout)
            return StepOutcome(f"done in {result.duration_s:.0f} s")

        def holds(facts: Facts) -> bool:
            return all(wish.fulfilled(facts[INSTALLED_PACKAGES]) for wish in wishes or ())

        return Step(name, reason, run, shlex.join(command), holds if wishes else None)


def _why(wish: PackageWish, installed: Mapping[str, InstalledPackage]) -> str:
    package = installed_as(wish.name, installed)
    if package is None:
        return f"{wish.name} is not installed"
    if package.installed:
        return f"{wish.name} is {package.version}, not {wish.version}"
    if package.broken:
        return f"{wish.name} is half installed"
    return f"{wish.name} was removed" if package.status.endswith("c") else f"{wish.name} is not installed"


def _why_update(facts: Facts, missing: list[PackageWish]) -> str:
    age_s = facts[APT_LISTS_AGE_S]
    if age_s is None:
        return "apt has no package lists"
    if age_s > LISTS_LIFE_S:
        return f"apt's package lists are {age_s // 3600} hours old"
    available = facts[AVAILABLE_PACKAGES]
    unknown = [wish.name for wish in missing if wish.plain_name not in available]
    return f"apt's package lists do not know {', '.join(unknown)}" if unknown else ""


def _check_names(facts: Facts, wishes: Iterable[PackageWish]) -> None:
    """See that apt knows each name; one that it does not know it takes for a pattern, ``gcc-1.`` for 700.

    Raises:
        DependencyFailedError: if it does not know one; with those that are spelled alike.
    """
    available = facts[AVAILABLE_PACKAGES]
    for name in (wish.plain_name for wish in wishes):
        if name not in available and name not in facts[apt_names(name)]:
            near = ", ".join(get_close_matches(name, sorted(available), n=3, cutoff=0.8))
            remedy = f"no repository of this host has {name}; correct its name or add its repository"
            raise DependencyFailedError(
                f"apt knows no package {name}", remedy=f"{remedy}; near to it: {near}" if near else remedy
            )
