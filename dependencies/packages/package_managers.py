"""The common interface of apt, dnf and zypper: wishes for packages, and the commands that install them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.component.component import Plan, Step, StepContext, StepOutcome
from agent.core.errors import HostError, LiftedBy
from agent.facts.packages import (
    APT_LISTS_AGE_S,
    AVAILABLE_PACKAGES,
    INSTALLED_PACKAGES,
    PACKAGE_MANAGER,
    RPM_MANAGERS,
    installed_as,
)
from agent.facts.users import ROOT
from dependencies.packages.apt import APT_GET, repair_step, require_known, run_apt, update_step
from dependencies.packages.dnf import dnf_install, run_dnf
from dependencies.packages.zypper import run_zypper, zypper_install

if TYPE_CHECKING:
    from agent.facts import Facts
    from agent.facts.packages import InstalledPackage
    from agent.host.processes import ProcessResult

LISTS_LIFE_S = 24 * 3600
"""Seconds after which apt's lists are fetched again before an installation."""

# A dash at the end of a name makes apt remove the package.
_DEB_NAME = r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.](?::[a-z0-9]+(?:-[a-z0-9]+)*)?"
_RPM_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9+._-]*[A-Za-z0-9+._])?"
_VERSION = r"[A-Za-z0-9.+:~^_*-]*[A-Za-z0-9.+~^_*]"


@dataclass(frozen=True)
class PackageWish:
    """A requested package.

    Args:
        name: the name, with ``:architecture`` (``.architecture`` for rpm) if that matters.
        version: the version, which may end with ``*``; None for any.
    """

    name: str
    version: str | None = None

    @classmethod
    def parse(cls, text: str, *, rpm: bool = False) -> PackageWish:
        """Read ``name`` or ``name=version``.

        Raises:
            ValueError: if the text has another form.
        """
        name = _RPM_NAME if rpm else _DEB_NAME
        match = re.fullmatch(rf"({name})(?:=({_VERSION}))?", text)
        if not match:
            raise ValueError(f"{text!r} is not a package: write name or name=version")
        return cls(match.group(1), match.group(2))

    def __str__(self) -> str:
        """Return the text of the wish, as in a profile."""
        return self.name if self.version is None else f"{self.name}={self.version}"

    @property
    def plain_name(self) -> str:
        """The name without apt's ``:architecture``."""
        return self.name.partition(":")[0]

    def fulfilled(self, installed: Mapping[str, InstalledPackage], manager: str = "apt") -> bool:
        """Return True if the package is installed in the requested version."""
        package = installed_as(self.name, installed)
        if package is None or not package.installed:
            return False
        if self.version is None:
            return True
        if manager not in RPM_MANAGERS:
            return fnmatchcase(package.version, self.version)
        several = {package.version} | {
            other.version for name, other in installed.items() if name == f"{self.name}-{other.version}"
        }
        return any(fnmatchcase(spelling, self.version) for one in several for spelling in _rpm_spellings(one))


def _rpm_spellings(version: str) -> set[str]:
    """Return the spellings of an rpm version: with or without epoch, with or without release."""
    plain = version.rpartition(":")[2]
    return {version, plain, version.rpartition("-")[0], plain.rpartition("-")[0]}


Runner = Callable[[StepContext, Sequence[str], float], "ProcessResult"]


@dataclass(frozen=True)
class PackageManager:
    """One package manager.

    Args:
        name: the name, such as ``dnf``.
        run: runs one of its commands when its lock is free; the last argument is the time limit in seconds.
        by_hand: the command that people type to install, for remedies.
        install: returns the command for wishes; the flag includes recommended packages.
    """

    name: str
    run: Runner
    by_hand: str
    install: Callable[[Sequence[PackageWish], bool], list[str]]

    def step(
        self,
        name: str,
        reason: str,
        command: Sequence[str],
        lock_timeout_s: float,
        wishes: Sequence[PackageWish] = (),
        *,
        undo: Mapping[str, Any] | None = None,
    ) -> Step:
        """Return a step that runs one command; the wished packages must be installed afterwards."""

        def run(context: StepContext) -> StepOutcome:
            if wishes and self.name == "apt":  # the others fail if they do not know a name
                require_known(context.facts.fresh(), [wish.plain_name for wish in wishes])
            result = self.run(context, command, lock_timeout_s)
            return StepOutcome(f"done in {result.duration_s:.0f} s")

        def holds(facts: Facts) -> bool:
            return all(wish.fulfilled(facts[INSTALLED_PACKAGES], self.name) for wish in wishes)

        return Step(name, reason, run, shlex.join(command), holds if wishes else None, undo=undo)


def _apt_install(wishes: Sequence[PackageWish], recommends: bool) -> list[str]:  # noqa: FBT001 - see PackageManager
    command = [*APT_GET, "--no-remove", "install"]
    if not recommends:
        command.append("--no-install-recommends")
    if any(wish.version for wish in wishes):
        # A pinned version may be older than the installed one.
        command.append("--allow-downgrades")
    return [*command, *map(str, wishes)]


def _dnf_install(program: str, wishes: Sequence[PackageWish], recommends: bool) -> list[str]:  # noqa: FBT001
    return dnf_install(program, [(wish.name, wish.version) for wish in wishes], recommends=recommends)


def _zypper_install(wishes: Sequence[PackageWish], recommends: bool) -> list[str]:  # noqa: FBT001
    return zypper_install([(wish.name, wish.version) for wish in wishes], recommends=recommends)


_MANAGERS = {
    "apt": PackageManager("apt", run_apt, "apt-get install", _apt_install),
    "zypper": PackageManager("zypper", run_zypper, "zypper install", _zypper_install),
    **{
        name: PackageManager(name, run_dnf, f"{name} install", partial(_dnf_install, name))
        for name in ("dnf", "yum", "tdnf")
    },
}


def manager_of(facts: Facts, what: str) -> PackageManager:
    """Return the host's package manager.

    Args:
        facts: the facts about the host.
        what: the packages to install, for the message.

    Raises:
        HostError: if the host has no supported package manager.
    """
    name = facts[PACKAGE_MANAGER]
    if name not in _MANAGERS:
        raise HostError(
            f"packages are installed by apt, dnf, yum, tdnf or zypper, and this host has {name or 'none'}",
            remedy=f"install them yourself and take this element out of the profile: {what}",
            lifted_by=LiftedBy.NOTHING,
        )
    return _MANAGERS[name]


def require_root(facts: Facts, manager: PackageManager, names: str) -> None:
    """Refuse to plan an installation without root.

    Raises:
        HostError: if the agent is not root.
    """
    if not facts[ROOT]:
        raise HostError(
            f"root is needed to install {names}",
            remedy=f"run vcagent as root, or once: sudo {manager.by_hand} {names}",
            lifted_by=LiftedBy.NOTHING,
        )


def installation_steps(
    facts: Facts,
    manager: PackageManager,
    missing: Sequence[PackageWish],
    *,
    recommends: bool = False,
    lock_timeout_s: float,
    refreshed: bool = False,
) -> list[Step]:
    """Return the steps that install packages; with apt, fresh lists and a repair first if necessary.

    Args:
        facts: the facts about the host.
        manager: its package manager.
        missing: the packages to install.
        recommends: whether to install recommended packages.
        lock_timeout_s: seconds to wait for another package manager.
        refreshed: whether an earlier step fetches the lists of their repository.
    """
    installed = facts[INSTALLED_PACKAGES]
    steps = []
    if manager.name == "apt":
        if reason := _why_update(facts, missing, refreshed=refreshed):
            steps.append(update_step(reason, lock_timeout_s))
        if broken := broken_packages(installed):
            steps.append(repair_step(broken, lock_timeout_s))
    reason = "; ".join(why_missing(wish, installed) for wish in missing)
    command = manager.install(missing, recommends)
    new = [wish.name for wish in missing if not replace(wish, version=None).fulfilled(installed)]
    undo = {"packages": new, "lock_timeout_s": lock_timeout_s} if new else None
    return [*steps, manager.step("install", reason, command, lock_timeout_s, missing, undo=undo)]


def removal_plan(values: Mapping[str, Any], facts: Facts) -> Plan:
    """Return the plan that undoes an ``install`` step: remove packages that were not installed before.

    dpkg and rpm themselves refuse to remove a package that others need, unlike apt, dnf and zypper.

    Args:
        values: the step's ``undo``.
        facts: the facts about the host.
    """
    installed = facts[INSTALLED_PACKAGES]
    names = [name for asked in values["packages"] if (name := _name_to_remove(asked, installed))]
    told = " ".join(values["packages"])
    if not names:
        return Plan(nothing_to_do=f"not installed any more: {told}")
    manager = manager_of(facts, told)
    require_root(facts, manager, told)
    command = ["dpkg", "--remove", *names] if manager.name == "apt" else ["rpm", "--erase", *names]
    step = manager.step("remove", f"installed: {' '.join(names)}", command, values["lock_timeout_s"])

    def holds(fresh: Facts) -> bool:
        left = fresh[INSTALLED_PACKAGES]
        return not any(name in left and (left[name].installed or left[name].broken) for name in names)

    return Plan((replace(step, holds=holds),))


def _name_to_remove(asked: str, installed: Mapping[str, InstalledPackage]) -> str:
    """Return the name of an installed package for dpkg or rpm; dpkg does not know ``:any``. Empty if none.

    A package that another one provides has no version, and the other may have been installed before.
    """
    package = installed_as(asked, installed)
    if package is None or not (package.installed or package.broken) or not package.version:
        return ""
    plain = asked.partition(":")[0]
    return plain if installed.get(plain) == package else f"{plain}:{package.architecture}"


def broken_packages(installed: Mapping[str, InstalledPackage]) -> list[str]:
    """Return the names of half-installed packages, without their architectures."""
    return sorted({name.partition(":")[0] for name, package in installed.items() if package.broken})


def why_missing(wish: PackageWish, installed: Mapping[str, InstalledPackage]) -> str:
    """Return the reason why a wish is not fulfilled."""
    package = installed_as(wish.name, installed)
    if package is None:
        return f"{wish.name} is not installed"
    if package.installed:
        return f"{wish.name} is {package.version}, not {wish.version}"
    if package.broken:
        return f"{wish.name} is half installed"
    return f"{wish.name} was removed" if package.status.endswith("c") else f"{wish.name} is not installed"


def _why_update(facts: Facts, missing: Sequence[PackageWish], *, refreshed: bool) -> str:
    age_s = facts[APT_LISTS_AGE_S]
    if age_s is None:
        return "apt has no package lists"
    if age_s > LISTS_LIFE_S:
        return f"apt's package lists are {age_s // 3600} hours old"
    if refreshed:
        return ""
    available = facts[AVAILABLE_PACKAGES]
    unknown = [wish.name for wish in missing if wish.plain_name not in available]
    return f"apt's package lists do not know {', '.join(unknown)}" if unknown else ""
