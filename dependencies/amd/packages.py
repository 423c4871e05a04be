"""AMD's packages on a host: which are installed, what holds them, and the steps to install them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.component.component import Step, StepContext, StepOutcome
from agent.component.downloads import Download
from agent.core.counts import count_of
from agent.core.errors import HostError
from agent.facts import Facts
from agent.facts.bundle import bundle_of
from agent.facts.files import text_of
from agent.facts.kernel_headers import KERNEL_HEADERS, rpm_headers
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION, KERNEL
from agent.facts.package_versions import HELD_PACKAGES, package_offers
from agent.facts.packages import APT_LISTS_AGE_S, AVAILABLE_PACKAGES, INSTALLED_PACKAGES
from agent.facts.rpm_offers import rpm_driver_offers
from agent.facts.system_paths import SYSTEM_ROOT
from dependencies.amd.releases import KEY_FINGERPRINT, ORIGIN, module_version
from dependencies.packages.apt import run_apt
from dependencies.packages.apt_repository import AptRepositoryWish, deb_architecture
from dependencies.packages.bundled_debs import OtherApt
from dependencies.packages.bundled_rpms import OtherDnf
from dependencies.packages.epel import epel_steps
from dependencies.packages.holding import (
    VERSION_LOCK,
    excluded_names,
    exclusion_text,
    version_lock_file,
    version_lock_steps,
)
from dependencies.packages.package_managers import PackageWish, broken_packages, installation_steps
from dependencies.packages.rpm_repository import RpmRepositoryWish
from dependencies.packages.signing_key import SigningKey
from dependencies.packages.system_file import write_system_file
from dependencies.packages.version_lock import AMD_LOCKS, VersionLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.component.downloads import Fetching
    from agent.facts.packages import InstalledPackage
    from dependencies.amd.releases import RocmRelease
    from dependencies.packages.package_managers import PackageManager

DRIVER = "amdgpu-dkms"
ROCM = "ROCm"
"""The kind of AMD's packages in a bundle."""
MONITORING = ("rocm-core", "rocminfo", "rocm-smi-lib", "amd-smi-lib")
"""Tools that read the state of GPUs, without libraries for programs."""
_RPM_END = "-*"
_DEB_END = "-*[0-9]"
"""The end of a pattern of versions; apt does not read a pattern that ends with ``*``, only a prefix."""
_DRIVER_NAMES = (DRIVER, "amdgpu-dkms-firmware", "amdgpu-core")
_PIN = (
    "# Written by vcagent: the distribution has packages of the same names.\n"
    f"Package: *\nPin: release o={ORIGIN}\nPin-Priority: 600\n"
)


def driver_module(facts: Facts) -> str:
    """Return the version of the module that the installed amdgpu-dkms has; empty for none or half of one."""
    package = facts[INSTALLED_PACKAGES].get(DRIVER)
    return module_version(package.version) if package and package.installed else ""


def amd_packages(installed: Mapping[str, InstalledPackage]) -> dict[str, str]:
    """Return AMD's packages that are installed: the driver's, and those of the release of rocm-core."""
    core = installed.get("rocm-core")
    found = re.search(r"\.(\d{5,})-", core.version) if core and core.installed else None
    code = f".{found[1]}-" if found else None
    return {
        name: package.version
        for name, package in installed.items()
        if package.installed
        and ":" not in name
        and (name in _DRIVER_NAMES or (code is not None and code in package.version))
    }


@dataclass(frozen=True)
class AmdPackages:
    """The packages to install from one release of AMD's repositories.

    Args:
        release: the release.
        manager: the host's package manager.
        uri: where the repositories are.
        key: what they are signed with; None for AMD's own.
        add_repository: whether they may be added.
        hold: whether AMD's packages are held at their version.
        lock_timeout_s: seconds to wait for another package manager.
    """

    release: RocmRelease
    manager: PackageManager
    uri: str
    key: SigningKey | None
    add_repository: bool
    hold: bool
    lock_timeout_s: float

    @property
    def apt(self) -> bool:
        """True if apt installs here."""
        return self.manager.name == "apt"

    def driver_wishes(self) -> tuple[PackageWish, ...]:
        """Return the driver in its release's version: rpms have only the module's version."""
        if self.apt:
            return (PackageWish(DRIVER, f"*.{self.release.driver_code}{_DEB_END}"),)
        return (PackageWish(DRIVER, f"{self.release.module}*" if self.release.module else None),)

    def rocm_wishes(self, names: Iterable[str]) -> tuple[PackageWish, ...]:
        """Return ROCm's packages in the release's version."""
        end = _DEB_END if self.apt else _RPM_END
        return tuple(PackageWish(name, f"*.{self.release.code}{end}") for name in names)

    def steps(self, facts: Facts, missing: Sequence[PackageWish], *, driver: bool) -> list[Step]:
        """Return the steps that install packages: headers, repositories, pin, release of holds, packages.

        Args:
            facts: the host.
            missing: the packages to install.
            driver: whether the driver is among them.

        Raises:
            HostError: if no repository has the headers, the repositories cannot be added, or somebody else
                holds a package that must change.
        """
        self._require_no_foreign_hold(facts, missing)
        headers = self._header_steps(facts) if driver else []
        repositories = self._repository_steps(facts)
        clearing = self._clear_steps(facts) if driver else []
        installation = installation_steps(
            facts,
            self.manager,
            missing,
            lock_timeout_s=self.lock_timeout_s,
            refreshed=any(step.name.startswith("refresh") for step in repositories),
        )
        known = amd_packages(facts[INSTALLED_PACKAGES])
        undo = {"amd": sorted(known), "lock_timeout_s": self.lock_timeout_s}
        installation = [
            replace(step, undo=undo, estimate_s=900) if step.name == "install" else step
            for step in installation
        ]
        # What is cleared away needs no repair.
        cleared = {DRIVER} if clearing else set()
        dropped = {"repair"} if set(broken_packages(facts[INSTALLED_PACKAGES])) <= cleared else set()
        early = [step for step in installation if step.name in {"update", "repair"} - dropped]
        late = [step for step in installation if step.name == "install"]
        pins = self._pin_steps(facts)
        return [*clearing, *early, *headers, *repositories, *pins, *self._release_steps(facts), *late]

    def hold_steps(self, facts: Facts, *, changing: bool) -> list[Step]:
        """Return the steps that keep AMD's packages at their versions.

        Args:
            facts: the host.
            changing: whether earlier steps install packages.
        """
        names, held = amd_packages(facts[INSTALLED_PACKAGES]), facts[HELD_PACKAGES]
        if not self.hold or not (changing or names):
            return []
        if not self.apt:
            return self._lock_steps(facts, changing=changing)
        if not changing and self._held(facts):
            return []
        reason = (
            "amdgpu and ROCm belong together"
            if changing
            else f"not held: {', '.join(sorted(names.keys() - held)) or 'by vcagent'}"
        )
        path = self._exclusions(facts)

        def hold(context: StepContext) -> StepOutcome:
            now = sorted(amd_packages(context.facts.fresh()[INSTALLED_PACKAGES]))
            # The record comes first: a hold without it would be taken for somebody else's.
            write_system_file(path, exclusion_text(now).encode())
            run_apt(context, ["apt-mark", "hold", *now], self.lock_timeout_s)
            return StepOutcome(count_of(len(now), "package"))

        undo = {
            "unhold": sorted(held),
            "file": str(path),
            "lock_timeout_s": self.lock_timeout_s,
        }
        told = "AMD's packages" if changing else " ".join(sorted(names))
        command = f"write {path}; apt-mark hold {told}"
        # What was held may not be while it is changed.
        holds = None if self._held(facts) else self._held
        return [Step("hold", reason, hold, command, holds, undo=undo)]

    def _held(self, facts: Facts) -> bool:
        names = set(amd_packages(facts[INSTALLED_PACKAGES]))
        return (
            bool(names)
            and names <= facts[HELD_PACKAGES]
            and facts[text_of(self._exclusions(facts))] == exclusion_text(names)
        )

    def _lock_steps(self, facts: Facts, *, changing: bool) -> list[Step]:
        path = version_lock_file(facts)
        steps = version_lock_steps(facts, self.lock_timeout_s)

        def text(now: Facts) -> str:
            return VersionLock(path).with_locks(
                now[text_of(path)], amd_packages(now[INSTALLED_PACKAGES]), AMD_LOCKS
            )

        def locked(now: Facts) -> bool:
            return bool(amd_packages(now[INSTALLED_PACKAGES])) and now[text_of(path)] == text(now)

        def lock(context: StepContext) -> StepOutcome:
            now = context.facts.fresh()
            write_system_file(path, text(now).encode())
            return StepOutcome(count_of(len(amd_packages(now[INSTALLED_PACKAGES])), "package"))

        if changing or not locked(facts):
            reason = "amdgpu and ROCm belong together" if changing else "AMD's packages are not held"
            undo = {"versionlock": str(path), "begin": AMD_LOCKS}
            holds = None if locked(facts) else locked
            steps.append(Step("hold", reason, lock, f"write their versions to {path}", holds, undo=undo))
        return steps

    def _release_steps(self, facts: Facts) -> list[Step]:
        """Return the steps that release vcagent's own holds for a change."""
        if not self.apt:
            path = version_lock_file(facts)
            before = facts[text_of(path)] or ""
            if VersionLock(path).with_locks(before, {}, AMD_LOCKS) == before:
                return []

            def free(context: StepContext) -> StepOutcome:
                now = context.facts.fresh()[text_of(path)]
                write_system_file(path, VersionLock(path).with_locks(now, {}, AMD_LOCKS).encode())
                return StepOutcome("released")

            return [
                Step("release", "vcagent holds the versions before", free, f"take our lines out of {path}")
            ]
        held = facts[HELD_PACKAGES]
        names = sorted(held & self._ours(facts))
        if not names:
            return []
        command = ["apt-mark", "unhold", *names]

        def run(context: StepContext) -> StepOutcome:
            run_apt(context, command, self.lock_timeout_s)
            return StepOutcome(count_of(len(names), "package"))

        return [Step("release", "vcagent holds the versions before", run, shlex.join(command))]

    def _require_no_foreign_hold(self, facts: Facts, missing: Sequence[PackageWish]) -> None:
        there = amd_packages(facts[INSTALLED_PACKAGES])
        wanted = {wish.name for wish in missing}
        kinds = {name in _DRIVER_NAMES for name in wanted}
        changing = {name: version for name, version in there.items() if (name in _DRIVER_NAMES) in kinds}
        if self.apt:
            held = facts[HELD_PACKAGES]
            foreign = sorted((held & changing.keys()) - self._ours(facts))
            remedy = f"apt-mark unhold {' '.join(foreign)}, or ask for the version that is installed"
        else:
            path = version_lock_file(facts)
            foreign = VersionLock(path).foreign_locks(facts[text_of(path)], changing, {})
            remedy = f"take these lines out of {path}, or ask for the version that they allow"
        if foreign:
            raise HostError(
                f"ROCm {self.release.version} would change what somebody holds: {', '.join(foreign)}",
                remedy=remedy,
            )

    def _ours(self, facts: Facts) -> set[str]:
        return excluded_names(facts[text_of(self._exclusions(facts))])

    @staticmethod
    def _exclusions(facts: Facts) -> Path:
        return facts[SYSTEM_ROOT] / "etc/apt/apt.conf.d/52vcagent-amdgpu"

    def headers_command(self, facts: Facts) -> list[str]:
        """Return the command that installs the running kernel's headers; empty if installed or unknown.

        Raises:
            HostError: if no repository offers them.
        """
        if facts[KERNEL_HEADERS] is not False:
            return []
        kernel = facts[KERNEL]
        name = f"linux-headers-{kernel}" if self.apt else rpm_headers(kernel)
        if self.apt:
            # Without lists nobody knows yet; the installation itself says so then.
            offered = facts[APT_LISTS_AGE_S] is None or name in facts[AVAILABLE_PACKAGES]
        else:
            offered = any(offer.name == name for offer in rpm_driver_offers(facts))
        if not offered:
            raise HostError(
                f"amdgpu-dkms needs the headers of the kernel {kernel}, which no repository has",
                remedy=f"install {name} by hand, or boot a kernel whose headers are offered",
            )
        return self.manager.install([PackageWish(name)], False)

    def _header_steps(self, facts: Facts) -> list[Step]:
        steps = (
            []
            if self.apt
            else epel_steps(facts, self.lock_timeout_s, vendor="AMD", allowed=self.add_repository)
        )
        command = self.headers_command(facts)
        # The kernel's modules that amdgpu builds on; kernels of clouds have them in one package.
        extra = f"linux-modules-extra-{facts[KERNEL]}"
        if self.apt and extra in facts[AVAILABLE_PACKAGES]:
            package = facts[INSTALLED_PACKAGES].get(extra)
            if package is None or not package.installed:
                wish = [PackageWish(extra)]
                command = [*command, extra] if command else self.manager.install(wish, False)
        if command:
            kernel = facts[KERNEL]
            reason = f"the module is built for the kernel {kernel}"
            steps.append(self.manager.step("headers", reason, command, self.lock_timeout_s))
        return steps

    def _repository_steps(self, facts: Facts) -> list[Step]:
        distribution = facts[DISTRIBUTION]
        folders = (
            self.release.apt_folders(distribution) if self.apt else self.release.rpm_folders(distribution)
        )
        base = self.uri.rstrip("/")
        steps: list[Step] = []
        if bundle_of(facts):
            return steps  # the bundle has the packages
        for name in folders:
            if self.apt:
                wish = self.apt_repositories(facts)[name]
                found = wish.steps(facts, self.lock_timeout_s)
                if not found and not wish.is_listed(facts):
                    found = [wish.refresh_step(facts, self.lock_timeout_s)]
            else:
                release = distribution.version.partition(".")[0]
                variables = {"releasever": release, "basearch": facts[ARCHITECTURE]}
                found = self.rpm_repositories(facts)[name].steps(facts, variables)
            steps += [replace(step, name=f"{step.name}-{name}") for step in found]
        if steps and not self.add_repository:
            raise HostError(
                f"no repository of this host has ROCm {self.release.version} with its driver",
                remedy=f"add {base}/{next(iter(folders.values()))} and its kin, or give AddRepository=true",
            )
        return steps

    def apt_repositories(self, facts: Facts) -> dict[str, AptRepositoryWish]:
        """Return the release's repositories for apt by a short name; empty if AMD has none for the host."""
        distribution, base = facts[DISTRIBUTION], self.uri.rstrip("/")
        key = self.key or SigningKey.of(f"{base}/rocm/rocm.gpg.key", KEY_FINGERPRINT)
        suite, machine = self.release.codename(distribution), deb_architecture(facts[ARCHITECTURE])
        return {
            name: AptRepositoryWish(f"vcagent-amd-{name}", f"{base}/{folder}", suite, ("main",), machine, key)
            for name, folder in self.release.apt_folders(distribution).items()
        }

    def rpm_repositories(self, facts: Facts) -> dict[str, RpmRepositoryWish]:
        """Return the release's repositories for dnf by a short name; empty if AMD has none for the host."""
        base = self.uri.rstrip("/")
        key = self.key or SigningKey.of(f"{base}/rocm/rocm.gpg.key", KEY_FINGERPRINT)
        return {
            name: RpmRepositoryWish(
                f"vcagent-amd-{name}",
                f"{base}/{folder}",
                key,
                signed_packages=True,
                signed_index=False,
                manager="dnf",
                priority=50,
            )
            for name, folder in self.release.rpm_folders(facts[DISTRIBUTION]).items()
        }

    def download(self, wishes: Sequence[PackageWish], name: str) -> Download:
        """Return the download of packages with everything that they need.

        Args:
            wishes: the packages.
            name: the name of the whole, in the bundle's list of contents.
        """

        def fetch(fetching: Fetching) -> None:
            fetching.say(f"ROCm {name}")
            (self._fetch_debs if self.apt else self._fetch_rpms)(fetching, wishes)

        return Download(ROCM, (name,), fetch)

    def _fetch_debs(self, fetching: Fetching, wishes: Sequence[PackageWish]) -> None:
        apt = OtherApt(fetching)
        for repository in self.apt_repositories(fetching.facts).values() if self.add_repository else ():
            apt.add(repository)
        names = list(map(str, wishes))
        if kernel := fetching.facts.given(KERNEL.name):
            headers = (f"linux-headers-{kernel}", f"linux-modules-extra-{kernel}")
            known = Facts(apt.host)[package_offers("amdgpu", "|".join(map(re.escape, headers)))]
            names += sorted({one.name for one in known})
        apt.fetch(names, recommends=False, preferences=_PIN)

    def _fetch_rpms(self, fetching: Fetching, wishes: Sequence[PackageWish]) -> None:
        dnf = OtherDnf(fetching)
        for repository in self.rpm_repositories(fetching.facts).values() if self.add_repository else ():
            dnf.add(repository)
        packages = [(wish.name, wish.version) for wish in wishes]
        if kernel := fetching.facts.given(KERNEL.name):
            packages.append((rpm_headers(str(kernel)), None))
        if self.hold:
            packages.append((VERSION_LOCK, None))
        dnf.fetch(packages, recommends=False)

    def _pin_steps(self, facts: Facts) -> list[Step]:
        """Return the step that makes apt prefer AMD's packages: Ubuntu and Debian also have rocminfo."""
        if not self.apt:
            return []
        folder = facts[SYSTEM_ROOT] / "etc/apt/preferences.d"
        path = folder / "vcagent-amd"
        amd = facts[text_of(folder / "rocm-pin-600")] or ""
        if facts[text_of(path)] == _PIN or re.search(
            rf"^Pin: release o={re.escape(ORIGIN)}", amd, re.MULTILINE
        ):
            return []

        def write(_context: StepContext) -> StepOutcome:
            write_system_file(path, _PIN.encode())
            return StepOutcome(f"{path} written")

        return [
            Step(
                "pin",
                "the distribution has packages of the same names as AMD's",
                write,
                f"write {path}",
                lambda after: after[text_of(path)] == _PIN,
                undo={"file": str(path)},
            )
        ]

    def _clear_steps(self, facts: Facts) -> list[Step]:
        """Return the step that removes a driver whose build failed: later apt calls would repeat it."""
        package = facts[INSTALLED_PACKAGES].get(DRIVER)
        if not self.apt or package is None or not package.broken:
            return []
        command = ["dpkg", "--remove", "--force-remove-reinstreq", DRIVER]

        def run(context: StepContext) -> StepOutcome:
            run_apt(context, command, self.lock_timeout_s)
            return StepOutcome("removed")

        def holds(after: Facts) -> bool:
            now = after[INSTALLED_PACKAGES].get(DRIVER)
            return now is None or not now.broken

        reason = f"{DRIVER} {package.version} was left half installed"
        return [Step("clear", reason, run, shlex.join(command), holds)]
