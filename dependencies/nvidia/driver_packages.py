"""Steps that install a driver's packages in one version, and hold them there."""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.counts import count_of
from agent.core.errors import DependencyFailedError, HostError
from agent.facts.dkms import NVIDIA_MODULE_FILE
from agent.facts.files import text_of
from agent.facts.package_solutions import apt_solution
from agent.facts.package_versions import HELD_PACKAGES, package_offers
from agent.facts.packages import APT_LISTS_AGE_S, INSTALLED_PACKAGES
from agent.facts.system_paths import SYSTEM_ROOT
from agent.facts.unattended_upgrades import UNATTENDED_UPGRADES
from dependencies.nvidia.candidates import Candidate, candidates, superseded
from dependencies.nvidia.driver import DriverWish, InstalledDriver, faults, find_installed
from dependencies.nvidia.packages import (
    LAYOUTS,
    NVIDIA_ORIGINS,
    belongs_to_driver,
    branch_of,
    driver_package_names,
    upstream,
)
from dependencies.nvidia.repository import NvidiaRepository, debian_components
from dependencies.packages.apt import (
    APT_GET,
    known_remedy,
    repair_step,
    run_apt,
    simulated_changes,
    update_step,
)
from dependencies.packages.apt_repository import require_readable_sources
from dependencies.packages.holding import excluded_names, exclusion_text
from dependencies.packages.module_change import enrolment, require_built
from dependencies.packages.package_folder import write_whole
from dependencies.packages.package_lock import wait_for_lock
from dependencies.packages.package_managers import LISTS_LIFE_S, broken_packages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agent.facts import Fact, Facts
    from agent.facts.package_solutions import PackageSolution
    from agent.facts.package_versions import PackageOffer

_SHOWN = 8
"""The number of candidates that an error lists."""

_ROUNDS = 4
"""The number of times that more packages of a driver are named: dnf takes the newest of unnamed ones."""

_TRIED = 4
"""The number of candidates to try with the package manager before giving up."""


@dataclass(frozen=True)
class DriverPackages:
    """A driver's packages on a host with apt; ``RpmDriverPackages`` is for dnf.

    Args:
        wish: the requested driver.
        origins: the accepted origins; None for any.
        hold: whether to hold its packages at their version.
        lock_timeout_s: seconds to wait for another package manager.
        why_prebuilt: the reason why only a signed kernel module works, for errors.
        repository: NVIDIA's repository, which is added if no other has the driver; None to add none.
        non_free: whether Debian's components with the driver may be enabled.
    """

    wish: DriverWish
    origins: frozenset[str] | None = None
    hold: bool = True
    lock_timeout_s: float = 600
    why_prebuilt: str = ""
    repository: NvidiaRepository | None = None
    non_free: bool = False

    def installed(self, facts: Facts) -> InstalledDriver | None:
        """Return the installed driver."""
        return find_installed(facts[INSTALLED_PACKAGES], self.wish.kernel)

    def faults(self, facts: Facts) -> list[str]:
        """Return the faults of the installed packages."""
        driver = self.installed(facts)
        if driver is None:
            return faults(self.wish, None)
        offered = {one.name for one in self._offers(facts) if upstream(one.version) == driver.version}
        return faults(self.wish, driver, offered)

    def chosen(self, facts: Facts) -> Candidate | None:
        """Return the driver to install, with all changes that the package manager makes for it."""
        return next((one for one in self._solved(facts) if not one.problems), None)

    def _solved(self, facts: Facts) -> Iterator[Candidate]:
        """Yield complete candidates, best first, as solved by the package manager."""
        whole = (one for one in self._candidates(facts, self.wish) if not one.problems)
        for candidate in itertools.islice(whole, _TRIED):
            asked = candidate
            for _ in range(_ROUNDS):
                solution = facts[self._solution(facts, asked)]
                loose = asked.loose(solution)
                if not loose:
                    break
                asked = replace(asked, packages={**asked.packages, **loose})
            # While packages are half installed, apt finds no solution: it is solved again after their repair.
            unsure = solution.problem and broken_packages(facts[INSTALLED_PACKAGES])
            yield asked if unsure else asked.solved(solution)

    def _solution(self, facts: Facts, candidate: Candidate) -> Fact[PackageSolution]:
        """Return the package manager's solution for a candidate."""
        return apt_solution(self._install_command(facts, candidate), candidate.pins)

    def steps(self, facts: Facts) -> list[Step]:
        """Return the steps that correct the packages.

        Raises:
            HostError: if no repository has such a driver, or a package that must change is held by others.
        """
        steps: list[Step] = []
        if wrong := self.faults(facts):
            if not self.wish.rpm:
                require_readable_sources(facts)
            chosen = self.chosen(facts)
            fetching = self._fetching_steps(facts)
            added = [] if chosen else self._repository_steps(facts)
            if chosen is None and not (fetching or added):
                raise self.refusal(facts)
            if chosen:
                self._require_no_foreign_hold(facts, chosen)
            steps += [*fetching, *added, *self._repair_steps(facts)]
            steps.append(self._install_step(facts, wrong, chosen))
        steps += self._keep_steps(facts, wrong=bool(wrong))
        return steps

    def _repository_steps(self, facts: Facts) -> list[Step]:
        """Return the steps that add NVIDIA's repository, if that can help.

        They do nothing if the newly fetched lists have the driver.
        """
        offers, wish = self._offers(facts), self.wish
        if self.non_free and (components := debian_components(facts, self.lock_timeout_s)):
            return [self._where_needed(step) for step in components]
        unknown_gpus = (
            wish.maximum_branch and wish.version and int(branch_of(wish.version)) > wish.maximum_branch
        )
        if (
            self.repository is None
            or unknown_gpus
            or wish.prebuilt  # it has no module that the distribution signed
            or (offers and not wish.headers and not self._has_headers(facts))
            or any(offer.origin in NVIDIA_ORIGINS for offer in offers)
        ):
            return []
        return [self._where_needed(step) for step in self.repository.steps(facts, self.lock_timeout_s)]

    def _has_headers(self, facts: Facts) -> bool:
        """Return True if the headers of the running kernel are offered."""
        names = {layout.headers(self.wish.kernel) for layout in LAYOUTS}
        return any(offer.name in names for offer in self._offers(facts))

    def _where_needed(self, step: Step) -> Step:
        def run(context: StepContext) -> StepOutcome | None:
            if offered := self.chosen(context.facts.fresh()):
                return StepOutcome(f"not needed: {offered.origin} has driver {offered.version}")
            return step.run(context)

        def holds(after: Facts) -> bool:
            return step.holds is None or step.holds(after) or self.chosen(after) is not None

        reason = f"no repository that is known has {self._asked} as a whole, and {step.reason}"
        return replace(step, reason=reason, run=run, holds=holds if step.holds else None)

    @property
    def _asked(self) -> str:
        return f"driver {self.wish.version}" if self.wish.version else "a driver"

    def _fetching_steps(self, facts: Facts) -> list[Step]:
        """Return the step that updates the package manager's lists."""
        reason = _why_update(facts)
        return [update_step(reason, self.lock_timeout_s)] if reason else []

    def _repair_steps(self, facts: Facts) -> list[Step]:
        """Return the step that repairs half-installed packages; their dependencies come with the driver."""
        installed = facts[INSTALLED_PACKAGES]
        broken = broken_packages(installed)
        chosen = self.chosen(facts)
        if chosen and all(self._replaced(facts, name, chosen) for name in broken):
            return []  # rebuilding a failed module only to replace it takes minutes for nothing
        return [repair_step(broken, self.lock_timeout_s, fix=False)] if broken else []

    def _replaced(self, facts: Facts, name: str, chosen: Candidate) -> bool:
        """Return True if a half-installed package gets another version or is removed."""
        version = facts[INSTALLED_PACKAGES][name].version
        return chosen.packages.get(name, version) != version or name in self._superseded(facts, chosen)

    def refusal(self, facts: Facts) -> HostError:
        """Return the error if no offered driver is suitable, with similar drivers and other branches."""
        unsolved = [candidate for candidate in self._solved(facts) if candidate.problems]
        near = [str(one) for one in (*unsolved, *self._candidates(facts, self.wish)) if one.problems]
        refused = {one.version for one in unsolved}
        others = [
            str(candidate)
            for candidate in self._candidates(facts, replace(self.wish, version=""))
            if not candidate.problems and candidate.version not in refused
        ]
        origin = f" of {', '.join(sorted(self.origins))}" if self.origins else ""
        lines = [f"not {line}" for line in near[:_SHOWN]] + [f"whole: {line}" for line in others[:_SHOWN]]
        versions = list(dict.fromkeys(line.partition(" ")[0] for line in others))
        look = "dnf --showduplicates list 'nvidia-driver*'" if self.wish.rpm else "apt-cache policy"
        remedy = f"see {look}; NVIDIA's repository has more versions than the distribution's"
        if versions:
            remedy = f"ask for one that is whole, such as {versions[0]}; or add the repository that has it"
        elif unsolved:
            told = "\n".join(line for one in unsolved for line in one.problems)
            remedy = self._remedy(told) or f"see above what the package manager lacks; {remedy}"
        if not others and not self.non_free and debian_components(facts, 0):
            remedy = "give NonFree=true: Debian has the driver in contrib and non-free, which are not enabled"
        message = f"no repository{origin} has {self._asked} as a whole for this host"
        if not (self.wish.headers or self._has_headers(facts)):
            kernel = self.wish.kernel
            message = f"{self._asked} needs the headers of the kernel {kernel}, which no repository has"
            remedy = f"install the headers of the kernel {kernel}, or boot one whose headers are offered"
        if self.why_prebuilt:
            how = enrolment(rpm=self.wish.rpm)
            remedy = f"{self.why_prebuilt}: enrol a key ({how}), or turn Secure Boot off"
        return HostError(message, remedy=remedy, details=tuple(lines))

    def _remedy(self, told: str) -> str | None:
        """Return the remedy for the package manager's output."""
        return known_remedy(told)

    def _candidates(self, facts: Facts, wish: DriverWish) -> list[Candidate]:
        return candidates(wish, self._offers(facts), origins=self.origins, installed=self.installed(facts))

    def _offers(self, facts: Facts) -> tuple[PackageOffer, ...]:
        return facts[package_offers("nvidia", driver_package_names(self.wish.kernel))]

    def _install_command(self, facts: Facts, chosen: Candidate) -> list[str]:
        pinned = (f"{name}={version}" for name, version in chosen.packages.items())
        removed = (f"{name}-" for name in self._superseded(facts, chosen))
        # Without this option apt refuses everything while any package has missing dependencies.
        options = [
            *("--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages", "--fix-broken")
        ]
        return [*APT_GET, "install", *options, *pinned, *chosen.unpinned, *removed]

    def headers_command(self, facts: Facts) -> list[str]:
        """Return the command that installs the headers of the running kernel.

        Raises:
            HostError: if they are not available.
        """
        kernel = self.wish.kernel
        names = [layout.headers(kernel) for layout in LAYOUTS if layout.rpm == self.wish.rpm]
        if not self._has_headers(facts):
            raise HostError(
                f"the driver has no module for the kernel {kernel}, and no repository has its headers",
                remedy=f"install {names[0]} by hand, or boot a kernel whose headers are offered",
            )
        return self._headers_install(names[0])

    def _headers_install(self, name: str) -> list[str]:
        return [*APT_GET, "--no-remove", "install", "--no-install-recommends", name]

    def run_manager(self, context: StepContext, command: Sequence[str]) -> None:
        """Run a command of the package manager."""
        run_apt(context, command, self.lock_timeout_s)

    def _superseded(self, facts: Facts, chosen: Candidate) -> tuple[str, ...]:
        return superseded(facts[INSTALLED_PACKAGES], chosen, self.wish.kernel, self.installed(facts))

    def _change(self, context: StepContext, chosen: Candidate) -> None:
        """Install the driver, after checking that no other package is changed for it."""
        now = context.facts.fresh()
        command = self._install_command(now, chosen)
        simulated = run_apt(context, [*command, "--simulate"], self.lock_timeout_s)
        removed, changed = simulated_changes(simulated.stdout)
        foreign = [name for name in removed if not belongs_to_driver(name)]
        held = sorted(now[HELD_PACKAGES] & (changed - self._ours(now) - chosen.packages.keys()))
        if foreign or held:
            raise DependencyFailedError(
                f"driver {chosen.version} would "
                + (f"remove {', '.join(foreign)}" if foreign else f"change what is held: {', '.join(held)}"),
                remedy="decide yourself: remove it or release it (apt-mark unhold), then run again",
            )
        run_apt(context, command, self.lock_timeout_s)

    def _install_step(self, facts: Facts, wrong: list[str], chosen: Candidate | None) -> Step:
        def run(context: StepContext) -> StepOutcome:
            wait_for_lock(context, self.lock_timeout_s)
            now = context.facts.fresh()
            solved = self.chosen(now)
            if solved is None:
                refusal = self.refusal(now)
                raise DependencyFailedError(
                    refusal.message, remedy=refusal.remedy, details=refusal.details
                ) from refusal
            self._require_no_foreign_hold(now, solved)
            self._change(context, solved)
            now = context.facts.fresh()
            require_built(now, now[NVIDIA_MODULE_FILE], solved.version)
            return StepOutcome(f"driver {solved.version} from {solved.origin}")

        command = (
            shlex.join(self._install_command(facts, chosen))
            if chosen
            else f"{'dnf' if self.wish.rpm else 'apt-get'} install {self._asked}, exact versions solved "
            "from the new lists"
        )
        there = self.installed(facts)
        installed = facts[INSTALLED_PACKAGES]
        undo = {
            "driver": there.version if there else "",
            "before": sorted(
                name for name, state in installed.items() if state.installed and "nvidia" in name
            ),
            "lock_timeout_s": self.lock_timeout_s,
        }
        return Step(
            "driver",
            "; ".join(wrong),
            run,
            command,
            lambda after: not self.faults(after),
            estimate_s=180,
            undo=undo,
        )

    def _keep_steps(self, facts: Facts, *, wrong: bool) -> list[Step]:
        if not self.hold:
            return []
        steps = []
        names = self._coming_names(facts) if wrong else self._names(facts)
        if not names or facts[text_of(_exclusions(facts))] != exclusion_text(names):
            acts = facts[UNATTENDED_UPGRADES].enabled
            who = "unattended-upgrades is on and would" if acts else "an automatic upgrade could"
            steps.append(
                Step(
                    "exclude",
                    f"{who} change the driver under a run",
                    self._exclude,
                    f"write {_exclusions(facts)}",
                    None if self._excluded(facts) else self._excluded,
                    undo={"file": str(_exclusions(facts))},
                )
            )
        held = facts[HELD_PACKAGES]
        free = sorted(names - held)
        if wrong or free:
            reason = "a driver works only in one version" if wrong else f"not held: {', '.join(free)}"
            told = " ".join(sorted(names) if wrong else free) or "the driver's packages"
            command = f"apt-mark hold {told}"
            # A package that was held may no longer be held after the change.
            holds = None if self._held(facts) else self._held
            undo = {
                "unhold": sorted(held),
                "kernel": sorted(names & self._kernel_names(facts)),
                "lock_timeout_s": self.lock_timeout_s,
            }
            steps.append(Step("hold", reason, self._hold, command, holds, undo=undo))
        return steps

    def _coming_names(self, facts: Facts) -> set[str]:
        """Return the names of the driver's packages after the installation; empty if not solved yet."""
        chosen = self.chosen(facts)
        if chosen is None:
            return set()
        gone = self._superseded(facts, chosen)
        kept = (name for name in self._names(facts) if name not in gone)
        return {*chosen.packages, *kept, *(self._kernel_names(facts) if chosen.prebuilt else ())}

    def _excluded(self, facts: Facts) -> bool:
        return facts[text_of(_exclusions(facts))] == exclusion_text(self._names(facts))

    def _held(self, facts: Facts) -> bool:
        names, held = self._names(facts), facts[HELD_PACKAGES]
        return bool(names) and names <= held

    def _names(self, facts: Facts) -> set[str]:
        """Return the packages to hold: the driver's, with a prebuilt module also those of the kernel."""
        driver = self.installed(facts)
        names = set(driver.packages) if driver else set()
        prebuilt = any(name.startswith("linux-modules-nvidia-") for name in names)
        return names | (self._kernel_names(facts) if prebuilt else set())

    def _kernel_names(self, facts: Facts) -> set[str]:
        """Return the packages that bring a new kernel, which must wait for a module of one kernel."""
        flavour = self.wish.kernel.partition("-")[2].partition("-")[2]
        pattern = rf"linux(?:-image|-headers)?-{re.escape(flavour)}(?:-(?:hwe-|lts-)?[\d.]+)?(?:-edge)?"
        return {
            name
            for name, package in facts[INSTALLED_PACKAGES].items()
            if flavour and package.installed and re.fullmatch(pattern, name)
        }

    def _exclude(self, context: StepContext) -> StepOutcome:
        path = _exclusions(context.facts)
        names = self._names(context.facts.fresh())
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, exclusion_text(names))
        return StepOutcome(count_of(len(names), "package"))

    def _hold(self, context: StepContext) -> StepOutcome:
        names = sorted(self._names(context.facts.fresh()))
        run_apt(context, ["apt-mark", "hold", *names], self.lock_timeout_s)
        return StepOutcome(count_of(len(names), "package"))

    def _require_no_foreign_hold(self, facts: Facts, chosen: Candidate) -> None:
        """Refuse to change packages that others hold; those in vcagent's file of exclusions are its own."""
        installed = facts[INSTALLED_PACKAGES]
        changing = {
            name
            for name, version in chosen.packages.items()
            if name in installed and installed[name].installed and installed[name].version != version
        }
        held = facts[HELD_PACKAGES]
        changing |= set(self._superseded(facts, chosen))
        if foreign := sorted((changing & held) - self._ours(facts)):
            names = " ".join(foreign)
            raise HostError(
                f"driver {chosen.version} would change packages that somebody holds: {names}",
                remedy=f"apt-mark unhold {names}, or ask for the version that is installed",
            )

    @staticmethod
    def _ours(facts: Facts) -> set[str]:
        """Return the packages that vcagent holds."""
        return excluded_names(facts[text_of(_exclusions(facts))])


def _exclusions(facts: Facts) -> Path:
    return facts[SYSTEM_ROOT] / "etc/apt/apt.conf.d/52vcagent-nvidia"


def _why_update(facts: Facts) -> str:
    age_s = facts[APT_LISTS_AGE_S]
    if age_s is None:
        return "apt has no package lists"
    if age_s > LISTS_LIFE_S:
        return f"apt's package lists are {age_s // 3600} hours old"
    return ""
