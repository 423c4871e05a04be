"""Installs AMD's kernel driver and ROCm of one release."""

from __future__ import annotations

import shlex
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.component.downloads import not_carried
from agent.core.errors import (
    ActionFailedError,
    DependencyFailedError,
    HostError,
    LiftedBy,
    refusals_lifted_by,
)
from agent.facts.amd_driver import AMDGPU_BLACKLISTS, AMDGPU_MODULE, ROCM_VERSION
from agent.facts.amd_gpus import AMD_GPUS
from agent.facts.bundle import bundle_of
from agent.facts.containers import IN_CONTAINER
from agent.facts.dkms import AMDGPU_MODULE_FILE
from agent.facts.files import exists, text_of
from agent.facts.gpu_processes import AMD_GPU_PROCESSES
from agent.facts.known_rocm import misfit
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION, KERNEL
from agent.facts.packages import INSTALLED_PACKAGES, PACKAGE_MANAGER
from agent.facts.secure_boot import MODULE_KEY_ENROLLED, SECURE_BOOT
from agent.facts.users import ROOT, members_of
from dependencies.amd.packages import MONITORING, ROCM, AmdPackages, amd_packages, driver_module
from dependencies.amd.releases import NEWEST, RADEON, RocmRelease, release_in_file, version_key
from dependencies.amd.undo import undo_plan
from dependencies.packages.module_change import (
    build_step,
    enrolment,
    require_built,
    require_no_workload,
)
from dependencies.packages.package_managers import manager_of
from dependencies.packages.signing_key import SigningKey
from dependencies.system.groups import checked_names, group_steps, user_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts
    from dependencies.packages.package_managers import PackageWish

_KFD = Path("/dev/kfd")
_HANDED_OVER = frozenset({"gim", "vfio-pci"})
_WITH_MINORS = ("9",)
"""Releases of RHEL for which bundles are made and whose minor releases have separate folders at AMD."""
_GROUPS = ("render", "video")
"""The groups of /dev/kfd with the render nodes, and of the cards (ROCm, "Configuring permissions")."""


class UserSpace(str, Enum):
    """How much of ROCm is installed beside the driver."""

    ALL = "rocm"
    MONITORING = "monitoring"
    NONE = "none"


_PARTS = {UserSpace.ALL: ("rocm",), UserSpace.MONITORING: MONITORING, UserSpace.NONE: ()}


class AmdRocmInstallationParameters(ComponentParameters):
    """VirtualClient's parameters (AMDGPUDriverInstallation.cs), and those of our own."""

    version: str = Field(
        "",
        pattern=r"^(\d+\.\d+(\.\d+)?)?$",
        description=f"The version of ROCm, such as 7.0.2; by default the installed one, otherwise {NEWEST}.",
    )
    linux_installation_file: str = Field(
        "", description="VirtualClient's: the address of an amdgpu-install package, which names the version."
    )
    driver_release: str = Field(
        "",
        pattern=r"^(\d+\.\d+(\.\d+)?)?$",
        description="The driver's release, such as 30.10.2; by default the one of that ROCm.",
    )
    minimum_driver: str = Field(
        "",
        pattern=r"^(\d+(\.\d+)*)?$",
        description="The oldest amdgpu that will do, such as 6.14; the kernel's own has no version.",
    )
    user_space: UserSpace = Field(
        UserSpace.ALL,
        description="All of ROCm, only what reads GPUs, or nothing: containers bring their own.",
    )
    usernames: tuple[str, ...] = Field((), description="Users for the groups render and video.")
    username: str = Field("", description="One more user for these groups.")
    gpu_model: str = Field("", description="VirtualClient's, for Windows; the driver is the same for all.")
    reboot_required: bool = Field(
        default=True, description="VirtualClient's; a reboot is planned if the module must be loaded again."
    )
    add_repository: bool = Field(default=True, description="Whether AMD's repositories may be added.")
    repository_uri: str = Field(RADEON, min_length=1, description="Where AMD's repositories are.")
    key_uri: str = Field("", description="Their key; by default AMD's, in the repository.")
    key_fingerprint: str = Field("", description="Its fingerprint; by default AMD's, if KeyUri is not given.")
    hold: bool = Field(default=True, description="Whether AMD's packages are held at their version.")
    require_gpu: bool = Field(default=True, description="Whether a host without an AMD GPU is refused.")
    lock_timeout: float = Field(600, ge=0, description="Seconds to wait for another package manager.")

    _names = field_validator("usernames", mode="before")(user_names)
    _are_names = field_validator("usernames", "username")(checked_names)

    @field_validator("linux_installation_file")
    @classmethod
    def _names_a_release(cls, value: str) -> str:
        if value and not release_in_file(value):
            raise ValueError("its name tells no release: amdgpu-install_6.3.60303-1_all.deb does")
        return value

    @field_validator("user_space", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return str(value.value if isinstance(value, Enum) else value).lower()

    @property
    def asked(self) -> str:
        """The requested ROCm; empty for any."""
        return self.version or release_in_file(self.linux_installation_file)

    @property
    def members(self) -> tuple[str, ...]:
        """Everybody who may use the GPUs."""
        return tuple(dict.fromkeys(name for name in (*self.usernames, self.username) if name))


class AmdRocmInstallation(Dependency):
    """amdgpu-dkms and ROCm of one release, held; users in the groups of the GPUs.

    A loaded amdgpu that answers and is new enough is left alone, and so is a ROCm that will do.
    """

    is_for_gpus = True
    changes_host = True
    lifts = frozenset({LiftedBy.DRIVER, LiftedBy.PROGRAM})
    Parameters = AmdRocmInstallationParameters
    parameters: AmdRocmInstallationParameters

    def plan(self, facts: Facts) -> Plan:
        """Plan packages of one release, held; groups; and loading the module, with a reboot if needed."""
        with refusals_lifted_by(LiftedBy.SYSTEM):
            return self._plan(facts)

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Plan to remove packages, holds, repositories and groups that are unchanged since the run."""
        return undo_plan(values, facts)

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the driver's and ROCm's packages of the requested or the newest release.

        Raises:
            HostError: if bundles do not support the package manager, or AMD has nothing for the distribution.
        """
        manager, distribution = facts[PACKAGE_MANAGER], facts[DISTRIBUTION]
        if manager not in ("apt", "dnf"):
            raise not_carried(f"ROCm as packages of {manager}")
        parameters = self.parameters
        release = RocmRelease.of(parameters.asked or NEWEST, parameters.driver_release)
        if distribution.is_like("rhel") and distribution.version in _WITH_MINORS:
            told = f"{distribution.id}-{distribution.version}"
            raise HostError(
                f"AMD has another driver for each minor release of {told}, and the platform names none",
                remedy=f"name the hosts' release (/etc/os-release there): --platform {told}.6-x64",
                lifted_by=LiftedBy.NOTHING,
            )
        packages = self._packages(facts, release)
        if parameters.add_repository:
            _require_folders(facts, release, packages)
        rocm = packages.rocm_wishes(_PARTS[parameters.user_space])
        return (packages.download((*packages.driver_wishes(), *rocm), self._bundled_name(facts, release)),)

    def _bundled_name(self, facts: Facts, release: RocmRelease) -> str:
        """Return the name of a release in a bundle's list of contents."""
        name = f"{release.version} ({self.parameters.user_space.value}), driver {release.driver}"
        distribution = facts[DISTRIBUTION]
        return f"{name}, for {distribution.version}" if distribution.is_like("rhel") else name

    def _plan(self, facts: Facts) -> Plan:
        _require_own_gpus(facts, needed=self.parameters.require_gpu)
        release = RocmRelease.of(self._version(facts), self.parameters.driver_release)
        objection = self._objection(facts)
        # A package that is new enough works once it is loaded.
        driver = driver_module(facts)
        wrong = objection if objection and not self._will_do(driver) else ""
        rocm = self._rocm_names(facts, release)
        steps: list[Step] = []
        if wrong:
            self._require_new_enough(release)
            _require_installable(facts, release, wrong)
        if wrong or rocm or (self.parameters.hold and amd_packages(facts[INSTALLED_PACKAGES])):
            steps += self._package_steps(facts, release, rocm, wrong)
        steps += self._group_steps(facts)
        if objection and facts[AMD_GPUS]:
            steps += self._loading_steps(facts, objection, installing=bool(wrong))
        elif facts[AMD_GPUS]:
            _require_answer(facts)
        if not steps:
            return Plan(nothing_to_do=self._standing(facts))
        if not facts[ROOT]:
            raise HostError(
                f"root is needed for {', '.join(step.name for step in steps)}",
                remedy="run vcagent as root",
                lifted_by=LiftedBy.NOTHING,
            )
        return Plan(tuple(steps))

    def _version(self, facts: Facts) -> str:
        """Return the release to install: the requested, the installed, or the newest one."""
        if self.parameters.asked:
            return self.parameters.asked
        there = facts[ROCM_VERSION]
        try:
            return RocmRelease.of(there).version if there else NEWEST
        except HostError:  # a release of another repository: a driver beside it comes with the newest
            return NEWEST

    def _will_do(self, module: str) -> bool:
        return bool(module) and not self._module_objection(module)

    def _objection(self, facts: Facts) -> str:
        """Return the reason to replace the loaded driver; empty if it is good."""
        module = facts[AMDGPU_MODULE]
        if not facts[AMD_GPUS]:  # nothing is loaded without a GPU: the package is looked at
            driver = driver_module(facts)
            return self._module_objection(driver) if driver else "amdgpu-dkms is not installed"
        if module is None:
            return "amdgpu is not loaded"
        minimum, asked = self.parameters.minimum_driver, self.parameters.asked
        if module.version is None:
            if not (minimum or asked):
                return ""
            need = f"amdgpu {minimum} or newer" if minimum else f"ROCm {asked} with its driver"
            return f"the kernel's own amdgpu is loaded, which has no version, and the profile asks for {need}"
        return self._module_objection(module.version)

    def _module_objection(self, module: str) -> str:
        minimum, asked = self.parameters.minimum_driver, self.parameters.asked
        if minimum and version_key(module) < version_key(minimum):
            return f"amdgpu is {module}, and the profile asks for {minimum} or newer"
        return misfit(module, asked) if asked else ""

    def _rocm_names(self, facts: Facts, release: RocmRelease) -> tuple[str, ...]:
        """Return ROCm's packages to install; empty if an installed ROCm is good."""
        kind = self.parameters.user_space
        if kind is UserSpace.NONE:
            return ()
        names = _PARTS[kind]
        there, asked = facts[ROCM_VERSION], self.parameters.asked
        core = facts[INSTALLED_PACKAGES].get("rocm-core")
        packaged = core is not None and core.installed
        if core is not None and core.broken:
            return names
        if there and (not asked or (not packaged and RocmRelease.of(there).version == release.version)):
            return ()
        return names

    def _require_new_enough(self, release: RocmRelease) -> None:
        minimum = self.parameters.minimum_driver
        if release.module and version_key(release.module) < version_key(minimum):
            raise HostError(
                f"the profile asks for amdgpu {minimum} or newer, and ROCm {release.version} comes with "
                f"{release.module}",
                remedy=f"ask for a newer ROCm (Version; {NEWEST} is the newest here) or an older "
                "MinimumDriver",
                lifted_by=LiftedBy.NOTHING,
            )

    def _packages(self, facts: Facts, release: RocmRelease) -> AmdPackages:
        parameters = self.parameters
        return AmdPackages(
            release,
            manager_of(facts, "amdgpu-dkms rocm"),
            parameters.repository_uri,
            SigningKey.of(parameters.key_uri, parameters.key_fingerprint) if parameters.key_uri else None,
            parameters.add_repository,
            parameters.hold,
            parameters.lock_timeout,
        )

    def _package_steps(
        self, facts: Facts, release: RocmRelease, rocm: tuple[str, ...], wrong: str
    ) -> list[Step]:
        packages = self._packages(facts, release)
        wishes = (*(packages.driver_wishes() if wrong else ()), *packages.rocm_wishes(rocm))
        installed = facts[INSTALLED_PACKAGES]
        missing = [wish for wish in wishes if not wish.fulfilled(installed, packages.manager.name)]
        if not missing:
            return packages.hold_steps(facts, changing=False)
        self._require_bundled(facts, release, missing)
        _require_folders(facts, release, packages)
        steps = packages.steps(facts, missing, driver=bool(wrong))
        if wrong:
            steps = [_with_driver(step, wrong) if step.name == "install" else step for step in steps]
        return [*steps, *packages.hold_steps(facts, changing=True)]

    def _require_bundled(self, facts: Facts, release: RocmRelease, missing: list[PackageWish]) -> None:
        """Refuse to complete an installed ROCm from a bundle with another release, which Version leaves open.

        Raises:
            HostError: if the bundle has another release.
        """
        bundle, there = bundle_of(facts), facts[ROCM_VERSION]
        newest = RocmRelease.of(NEWEST).version
        if bundle is None or self.parameters.asked or release.version == newest:
            return
        if (ROCM, self._bundled_name(facts, release)) in bundle.contents:
            return
        raise HostError(
            f"this host has ROCm {there} and lacks {', '.join(wish.name for wish in missing)} of that "
            f"release; the bundle {bundle.folder} does not have ROCm {there}",
            remedy=f"make the bundle again with Version: {there}; or run with Version: {newest}, as in the "
            "bundle, which replaces the installed ROCm",
            lifted_by=LiftedBy.NOTHING,
        )

    def _group_steps(self, facts: Facts) -> list[Step]:
        return [
            step
            for group in _GROUPS
            for step in group_steps(
                facts,
                self.parameters.members,
                group,
                members_of(group),
                parameter="Usernames",
                prefix=f"group-{group}",
                outcome="{name} may use the GPUs after the next login",
            )
        ]

    def _loading_steps(self, facts: Facts, objection: str, *, installing: bool) -> list[Step]:
        """Return the steps that load the installed module into the kernel."""
        if facts[AMDGPU_MODULE] is not None:
            require_no_workload(facts[AMD_GPU_PROCESSES])
            return [self._reboot_step(objection)]
        _require_loadable(facts)
        steps = [] if installing else self._build_steps(facts)
        return [*steps, _load_step()]

    def _build_steps(self, facts: Facts) -> list[Step]:
        kernel, driver, there = facts[KERNEL], driver_module(facts), facts[AMDGPU_MODULE_FILE]
        if there is None or there == driver:
            return []
        packages = self._packages(facts, RocmRelease.of(self._version(facts), self.parameters.driver_release))
        reason = f"the module of amdgpu {driver} is missing for the kernel {kernel}"
        return [
            build_step(
                kernel,
                reason,
                lambda after: after[AMDGPU_MODULE_FILE] == driver,
                packages.headers_command(facts),
                lambda context, command: packages.manager.run(context, command, packages.lock_timeout_s),
            )
        ]

    def _reboot_step(self, reason: str) -> Step:
        def run(context: StepContext) -> StepOutcome:
            if not self._objection(context.facts.fresh()):
                return StepOutcome("no reboot is needed: the right module is loaded")
            return StepOutcome("a reboot is needed", reboot=reason)

        return Step("reboot", reason, run, "reboot")

    def _standing(self, facts: Facts) -> str:
        module, rocm = facts[AMDGPU_MODULE], facts[ROCM_VERSION]
        if not facts[AMD_GPUS]:
            told = f"amdgpu-dkms {driver_module(facts)} is installed, there is no GPU yet"
        else:
            name = f"amdgpu {module.version}" if module and module.version else "the kernel's own amdgpu"
            told = f"{name} is loaded and answers"
        return f"{told}; ROCm {rocm} is installed" if rocm else told


def _with_driver(step: Step, reason: str) -> Step:
    """Return an installation's step that also checks that the module was built."""

    def run(context: StepContext) -> StepOutcome | None:
        outcome = step.run(context)
        now = context.facts.fresh()
        require_built(now, now[AMDGPU_MODULE_FILE], driver_module(now))
        return outcome

    return replace(step, reason=f"{reason}; {step.reason}", run=run)


def _require_own_gpus(facts: Facts, *, needed: bool) -> None:
    gpus = facts[AMD_GPUS]
    if needed and not gpus:
        raise HostError(
            "there is no AMD GPU on the PCI bus",
            remedy="see lspci -d 1002:; give RequireGpu=false to prepare a host without one",
            lifted_by=LiftedBy.NOTHING,
        )
    handed = [gpu.bus_id for gpu in gpus if gpu.driver in _HANDED_OVER]
    if gpus and len(handed) == len(gpus):
        raise HostError(
            f"this host hands its GPUs to virtual machines ({gpus[0].driver} holds {', '.join(handed)})",
            remedy="run this in a virtual machine that has a GPU, or bind the GPUs to amdgpu",
            lifted_by=LiftedBy.NOTHING,
        )


def _require_installable(facts: Facts, release: RocmRelease, wrong: str) -> None:
    """Refuse what no step of this plan can provide.

    Raises:
        HostError: in a container, for another processor, for a kernel that the module does not build for,
            where Secure Boot would refuse it, and while something runs on the GPUs.
    """
    if facts[IN_CONTAINER]:
        raise HostError(
            f"{wrong}, and this is a container, which uses the driver of its host",
            remedy="install it there, and start the container with --device /dev/kfd --device /dev/dri",
            lifted_by=LiftedBy.NOTHING,
        )
    if facts[ARCHITECTURE] != "x86_64":
        raise HostError(
            f"AMD has amdgpu-dkms for x86_64 only, and this host is {facts[ARCHITECTURE]}",
            remedy="use the kernel's own amdgpu (modprobe amdgpu); vcagent accepts it",
            lifted_by=LiftedBy.NOTHING,
        )
    if problem := release.kernel_problem(facts[KERNEL]):
        raise HostError(
            problem,
            remedy="boot an older kernel, or ask for a newer ROCm (Version); AMD's page of the release lists "
            "the kernels that it supports",
        )
    if facts[SECURE_BOOT] and not facts[MODULE_KEY_ENROLLED] and facts[AMDGPU_MODULE] is None:
        rpm = facts[DISTRIBUTION].id not in ("ubuntu", "debian")
        raise HostError(
            "Secure Boot is on, and no key is enrolled for modules that are built here: the kernel would "
            'answer "Key was rejected by service"',
            remedy=f"enrol one ({enrolment(rpm=rpm)}), or turn Secure Boot off",
        )
    require_no_workload(facts[AMD_GPU_PROCESSES])


def _require_folders(facts: Facts, release: RocmRelease, packages: AmdPackages) -> None:
    distribution = facts[DISTRIBUTION]
    known = packages.manager.name in ("apt", "dnf")
    folders = release.apt_folders if packages.apt else release.rpm_folders
    if known and folders(distribution):
        return
    raise HostError(
        f"AMD has no ROCm {release.version} that vcagent installs for "
        f"{distribution.name or f'{distribution.id} {distribution.version}'}",
        remedy="use Ubuntu 22.04 or 24.04, Debian 12 or 13, or RHEL 8 to 10 and its kin; or install it as "
        "AMD's page says: vcagent accepts a driver that answers",
        lifted_by=LiftedBy.DRIVER,
    )


def _require_answer(facts: Facts) -> None:
    """Check that amdgpu drives every GPU and that the compute device exists."""
    idle = [gpu.bus_id for gpu in facts[AMD_GPUS] if gpu.driver is None]
    if idle:
        raise HostError(
            f"amdgpu is loaded and does not hold {', '.join(idle)}",
            remedy="see dmesg for amdgpu; a GPU that fails to initialize may need a cold start",
        )
    if not facts[exists(_KFD)]:
        remedy = "see dmesg for kfd, and that the kernel has CONFIG_HSA_AMD"
        if facts[IN_CONTAINER]:
            remedy = "start the container with --device /dev/kfd --device /dev/dri"
        raise HostError(f"amdgpu is loaded, and there is no {_KFD}", remedy=remedy)


def _require_loadable(facts: Facts) -> None:
    """Check that modprobe is not configured otherwise; a blacklist alone does not hinder it."""
    for path in facts[AMDGPU_BLACKLISTS]:
        text = facts[text_of(Path(path))] or ""
        if any(line.split()[:2] == ["install", "amdgpu"] for line in text.splitlines()):
            raise HostError(
                f"{path} keeps amdgpu from loading (install amdgpu …)",
                remedy=f"remove that line from {path}, then run again",
            )


def _load_step() -> Step:
    command = ["modprobe", "amdgpu"]

    def run(context: StepContext) -> StepOutcome:
        try:
            context.processes.run(command, log=context.log)
        except ActionFailedError as error:
            said = context.processes.run(["dmesg"], log=context.log, check=False).stdout.splitlines()
            told = [line for line in said if "amdgpu" in line or "PKCS#7" in line][-3:]
            raise DependencyFailedError(
                f"amdgpu cannot be loaded: {error.message}",
                remedy="see dmesg for amdgpu, and dkms status for whether the module was built",
                details=(*error.details, *told),
            ) from error
        return StepOutcome("loaded")

    def holds(after: Facts) -> bool:
        return after[AMDGPU_MODULE] is not None and after[exists(_KFD)]

    return Step("load", "amdgpu is not loaded", run, shlex.join(command), holds)
