"""Installs packages of the distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan
from agent.core.errors import HostError, LiftedBy
from agent.facts.linux import DISTRIBUTION
from agent.facts.packages import INSTALLED_PACKAGES, PACKAGE_MANAGER, RPM_MANAGERS
from dependencies.packages.bundled_packages import package_downloads
from dependencies.packages.package_managers import (
    PackageWish,
    installation_steps,
    manager_of,
    removal_plan,
    require_root,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts


class LinuxPackageInstallationParameters(ComponentParameters):
    """VirtualClient's parameters (LinuxPackageInstallation.cs): names separated by commas, or lists."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    packages: tuple[str, ...] = Field((), description="Packages with the same name on all distributions.")
    packages_apt: tuple[str, ...] = Field((), description="Further packages on hosts with apt.")
    packages_debian: tuple[str, ...] = Field((), description="Further packages on Debian.")
    packages_ubuntu: tuple[str, ...] = Field((), description="Further packages on Ubuntu.")
    packages_dnf: tuple[str, ...] = Field((), description="Further packages on hosts with dnf.")
    packages_yum: tuple[str, ...] = Field((), description="Further packages on hosts with yum.")
    packages_tdnf: tuple[str, ...] = Field((), description="Further packages on hosts with tdnf.")
    packages_zypper: tuple[str, ...] = Field((), description="Further packages on hosts with zypper.")
    interactive: bool = Field(default=True, description="Accepted from VirtualClient; vcagent never asks.")
    recommends: bool = Field(default=False, description="Whether to install recommended packages.")
    lock_timeout: float = Field(600, ge=0, description="Seconds to wait for another package manager.")

    @field_validator(
        "packages", "packages_apt", "packages_debian", "packages_ubuntu", "packages_dnf", "packages_yum",
        "packages_tdnf", "packages_zypper", mode="before",
    )  # fmt: skip
    @classmethod
    def _names(cls, value: Any, info: ValidationInfo) -> Any:
        parts = value.split(",") if isinstance(value, str) else value or ()
        names = tuple(name for name in (str(part).strip() for part in parts) if name)
        for name in names:
            PackageWish.parse(name, rpm=(info.field_name or "").rpartition("_")[2] in RPM_MANAGERS)
        return names


class LinuxPackageInstallation(Dependency):
    """Installs missing packages of a list, and changes nothing else."""

    changes_host = True
    lifts = frozenset({LiftedBy.PROGRAM, LiftedBy.DOCKER, LiftedBy.DRIVER, LiftedBy.SYSTEM})
    Parameters = LinuxPackageInstallationParameters
    parameters: LinuxPackageInstallationParameters

    def plan(self, facts: Facts) -> Plan:
        """Install missing packages; with apt, first fetch its lists if they are old or lack a package."""
        name = facts[PACKAGE_MANAGER]
        wishes = self._wishes(name, facts[DISTRIBUTION].id)
        if not wishes:
            return Plan(nothing_to_do="no packages are asked for on this distribution")
        manager = manager_of(facts, ", ".join(map(str, wishes)))
        installed = facts[INSTALLED_PACKAGES]
        missing = [wish for wish in wishes if not wish.fulfilled(installed, manager.name)]
        if not missing:
            return Plan(nothing_to_do=f"installed: {', '.join(map(str, wishes))}")
        require_root(facts, manager, " ".join(map(str, missing)))
        steps = installation_steps(
            facts,
            manager,
            missing,
            recommends=self.parameters.recommends,
            lock_timeout_s=self.parameters.lock_timeout,
        )
        return Plan(tuple(steps))

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the packages of the host's distribution."""
        name = facts[PACKAGE_MANAGER]
        wishes = self._wishes(name, facts[DISTRIBUTION].id)
        return package_downloads(name, wishes, recommends=self.parameters.recommends)

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Remove the packages that were not installed before."""
        return removal_plan(values, facts)

    def _wishes(self, manager: str | None, distribution: str) -> list[PackageWish]:
        names = [*self.parameters.packages]
        for suffix in (manager, distribution):
            names += getattr(self.parameters, f"packages_{suffix}", ())
        rpm = manager in RPM_MANAGERS
        try:
            return [PackageWish.parse(name, rpm=rpm) for name in dict.fromkeys(names)]
        except ValueError as error:  # names for all hosts are checked as apt's when they are read
            raise HostError(
                f"{error}, and packages are installed by {manager} here",
                remedy="give it under Packages-Apt, and its name on this host under "
                f"Packages-{str(manager).capitalize()}",
                lifted_by=LiftedBy.NOTHING,
            ) from error
