"""Steps that install a driver's packages in one version with dnf, and hold them there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from typing_extensions import override

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.counts import count_of
from agent.core.errors import DependencyFailedError, HostError
from agent.facts.files import text_of
from agent.facts.package_solutions import dnf_solution
from agent.facts.packages import INSTALLED_PACKAGES
from agent.facts.repositories import RPM_REPOSITORIES
from agent.facts.rpm_offers import NVIDIA_HOST, every_stream, rpm_driver_offers
from dependencies.nvidia.driver_packages import DriverPackages
from dependencies.nvidia.packages import belongs_to_driver
from dependencies.packages.dnf import REMEDIES, dnf_install, from_bundle, run_dnf, simulate_dnf
from dependencies.packages.epel import epel_steps
from dependencies.packages.holding import version_lock_file, version_lock_steps
from dependencies.packages.package_lock import remedy_among
from dependencies.packages.system_file import write_system_file
from dependencies.packages.version_lock import VersionLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.facts import Fact, Facts
    from agent.facts.package_solutions import PackageSolution
    from agent.facts.package_versions import PackageOffer
    from dependencies.nvidia.candidates import Candidate


class RpmDriverPackages(DriverPackages):
    """A driver's packages on a host of RHEL's family."""

    def _offers(self, facts: Facts) -> tuple[PackageOffer, ...]:
        return rpm_driver_offers(facts)

    def _solution(self, facts: Facts, candidate: Candidate) -> Fact[PackageSolution]:
        lock = VersionLock(version_lock_file(facts))
        program, *rest = self._install_command(facts, candidate)
        # vcagent's own locks are taken out before the change; others' are refused with their lines.
        free = [lock.without] if facts[text_of(lock.path)] else []
        return dnf_solution(from_bundle(facts, [program, *free, *rest]))

    def _remedy(self, told: str) -> str | None:
        return remedy_among(REMEDIES, told)

    def _headers_install(self, name: str) -> list[str]:
        return dnf_install("dnf", [(name, None)])

    @override
    def run_manager(self, context: StepContext, command: Sequence[str]) -> None:
        run_dnf(context, command, self.lock_timeout_s)

    def _fetching_steps(self, facts: Facts) -> list[Step]:  # noqa: ARG002 - dnf fetches by itself
        return []

    def _repository_steps(self, facts: Facts) -> list[Step]:
        return [*super()._repository_steps(facts), *self._epel_steps(facts)]

    def _epel_steps(self, facts: Facts) -> list[Step]:
        """Return the step that adds EPEL if neither the distribution nor NVIDIA has dkms."""
        if self.wish.prebuilt:
            return []
        return epel_steps(
            facts,
            self.lock_timeout_s,
            vendor="NVIDIA",
            allowed=self.repository is not None,
            otherwise="; or install NVIDIA's driver with its precompiled kernel module yourself",
        )

    def _repair_steps(self, facts: Facts) -> list[Step]:  # noqa: ARG002 - rpm has no such state
        return []

    def _install_command(self, facts: Facts, chosen: Candidate) -> list[str]:
        wanted = [*chosen.packages.items(), *((name, None) for name in chosen.unpinned)]
        program, *rest = dnf_install("dnf", wanted)
        command = rest.index("install") + 1
        ours = [
            one.identifier
            for one in facts[RPM_REPOSITORIES]
            if any(NVIDIA_HOST in address for address in one.addresses)
        ]
        # Packages that conflict with the other kind of module are replaced in the same transaction; see
        # _change.
        options = ("--allowerasing", "--setopt=clean_requirements_on_remove=False")
        # dnf 5 knows --allowerasing only as an option of install.
        return [program, *every_stream(ours), *rest[:command], *options, *rest[command:]]

    def _change(self, context: StepContext, chosen: Candidate) -> None:
        """Install without vcagent's own locks, after checking that no other package is removed for it."""
        now = context.facts.fresh()
        command = self._install_command(now, chosen)
        path = version_lock_file(now)
        before = now[text_of(path)]
        free = VersionLock(path).with_locks(before, {})
        if free != (before or ""):
            write_system_file(path, free.encode())
        try:
            told = simulate_dnf(context, command, self.lock_timeout_s)
            if foreign := [name for name in removed_by(told) if not belongs_to_driver(name)]:
                raise DependencyFailedError(
                    f"driver {chosen.version} would remove {', '.join(foreign)}",
                    remedy="remove it yourself if it may go, then run again",
                )
            run_dnf(context, command, self.lock_timeout_s)
        except BaseException:
            if before is not None and free != before:
                write_system_file(path, before.encode())
            raise

    def _keep_steps(self, facts: Facts, *, wrong: bool) -> list[Step]:
        if not self.hold:
            return []
        path = version_lock_file(facts)
        steps = version_lock_steps(facts, self.lock_timeout_s)
        if wrong or not self._locked(facts):
            reason = (
                "a driver works only in one version" if wrong else "the driver is not held at its version"
            )

            def lock(context: StepContext) -> StepOutcome:
                now = context.facts.fresh()
                write_system_file(path, self._locks(now).encode())
                return StepOutcome(count_of(len(self._packages(now)), "package"))

            # A driver that was locked may no longer be locked after the change.
            holds = None if self._locked(facts) else self._locked
            undo = {"versionlock": str(path)}
            steps.append(
                Step("hold", reason, lock, f"write the driver's versions to {path}", holds, undo=undo)
            )
        return steps

    def _packages(self, facts: Facts) -> dict[str, str]:
        driver = self.installed(facts)
        return dict(driver.packages) if driver else {}

    def _locks(self, facts: Facts) -> str:
        lock = VersionLock(version_lock_file(facts))
        return lock.with_locks(facts[text_of(lock.path)], self._packages(facts))

    def _locked(self, facts: Facts) -> bool:
        return bool(self._packages(facts)) and facts[text_of(version_lock_file(facts))] == self._locks(facts)

    def _require_no_foreign_hold(self, facts: Facts, chosen: Candidate) -> None:
        installed = facts[INSTALLED_PACKAGES]
        changing = {
            name: installed[name].version
            for name, version in chosen.packages.items()
            if name in installed and installed[name].version.removeprefix("0:") != version.removeprefix("0:")
        }
        path = version_lock_file(facts)
        if lines := VersionLock(path).foreign_locks(facts[text_of(path)], changing, chosen.packages):
            raise HostError(
                f"driver {chosen.version} is kept out by somebody's versionlock: {', '.join(lines)}",
                remedy=f"take these lines out of {path}, or ask for the version that they allow",
            )


def removed_by(table: str) -> list[str]:
    """Return the packages that dnf's transaction table lists for removal.

    A row begins with one blank; if a name is long, the rest of its row is on the next line, indented further.
    """
    removed, removing = [], False
    for line in table.splitlines():
        if re.match(r"\S", line):
            removing = line.startswith("Removing")
        elif removing and (match := re.match(r" (\S+)", line)):
            removed.append(match.group(1))
    return removed
