"""Installs NVIDIA's driver as one whole, and a CUDA toolkit beside it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step
from agent.component.downloads import Download, not_carried
from agent.core.errors import HostError, LiftedBy, refusals_lifted_by
from agent.facts.bundle import bundle_of
from agent.facts.containers import IN_CONTAINER
from agent.facts.files import exists
from agent.facts.gpu_processes import GPU_PROCESSES
from agent.facts.gpus import GPU_COUNT, GPUS
from agent.facts.known_gpus import gpu_name_of, is_vgpu
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION
from agent.facts.nvidia_module import NVIDIA_MODULE, NvidiaModule
from agent.facts.packages import INSTALLED_PACKAGES, PACKAGE_MANAGER
from agent.facts.services import service
from agent.facts.system_paths import SYSTEM_ROOT
from agent.facts.users import ROOT
from dependencies.nvidia.bundled_driver import driver_download
from dependencies.nvidia.cuda_runfile import (
    ToolkitWish,
    bundled_runfile,
    runfile_download,
    toolkit_path,
    toolkit_steps,
)
from dependencies.nvidia.cuda_versions import driver_key, runfile_versions
from dependencies.nvidia.distributors import by_hand, other_distributor
from dependencies.nvidia.driver_loading import FABRIC_MANAGER, loading_steps, require_answer, service_steps
from dependencies.nvidia.driver_packages import DriverPackages
from dependencies.nvidia.packages import NVIDIA_ORIGINS
from dependencies.nvidia.repository import CUDA_REPOSITORIES, NvidiaRepository, repository_folder
from dependencies.nvidia.rpm_driver import RpmDriverPackages
from dependencies.nvidia.undo import undo_plan
from dependencies.nvidia.wish import Choice, KernelModule, WishParameters, wish_of
from dependencies.packages.module_change import require_no_workload
from dependencies.packages.signing_key import SigningKey
from dependencies.sources.download import Checksum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts import Facts
    from dependencies.nvidia.driver import DriverWish


class Repository(str, Enum):
    """Whose packages may be taken."""

    ANY = "any"
    DISTRIBUTION = "distribution"
    NVIDIA = "nvidia"


_ORIGINS = {
    Repository.ANY: None,
    Repository.DISTRIBUTION: frozenset({"Ubuntu", "Debian", "Debian Backports"}),
    Repository.NVIDIA: NVIDIA_ORIGINS,
}


class NvidiaCudaInstallationParameters(ComponentParameters):
    """VirtualClient's parameters (CudaAndNvidiaGPUDriverInstallation.cs), and those of our own."""

    linux_cuda_version: str = Field("", pattern=r"^(\d+\.\d+)?$", description="The toolkit, such as 12.4.")
    linux_driver_version: str = Field(
        "", pattern=r"^(\d{3,}(\.\d+)*)?$", description="A branch such as 550, or a full version."
    )
    linux_local_run_file: str = Field("", description="The toolkit's runfile: its address, or its path.")
    username: str = Field("", description="VirtualClient's; the toolkit is on the PATH of every user here.")
    minimum_driver: str = Field(
        "",
        pattern=r"^(\d{3,}(\.\d+)*)?$",
        description="The oldest driver to accept, if no toolkit determines it.",
    )
    open_source_driver: bool | None = Field(
        None, description="The open kernel module or the closed one; by default what the GPUs need."
    )
    cuda_required: bool = Field(default=True, description="Whether the toolkit is installed.")
    fabric_manager: Choice = Field(Choice.AUTO, description="auto installs it if the host has an NVSwitch.")
    imex: Choice = Field(Choice.AUTO, description="auto installs it on GB200 and GB300.")
    kernel_module: KernelModule = Field(
        KernelModule.AUTO, description="auto builds it, or takes a signed one if Secure Boot requires that."
    )
    driver_repository: Repository = Field(Repository.ANY, description="Whose packages may be taken.")
    add_repository: bool = Field(
        default=True,
        description="Add NVIDIA's CUDA repository if no other one has all packages of the driver.",
    )
    non_free: bool = Field(
        default=False,
        description="Debian's contrib, non-free and non-free-firmware may be enabled for the driver.",
    )
    repository_uri: str = Field(
        CUDA_REPOSITORIES, min_length=1, description="Where the distributions' CUDA repositories are."
    )
    key_uri: str = Field("", description="Their key; by default NVIDIA's, in the distribution's repository.")
    key_fingerprint: str = Field(
        "", description="Its fingerprint; by default NVIDIA's, if KeyUri is not given."
    )
    minor_version_compatibility: bool = Field(
        default=False, description="Accept a driver older than the toolkit's, of the same major CUDA."
    )
    hold: bool = Field(default=True, description="Whether the driver's packages are held at their version.")
    require_gpu: bool = Field(default=True, description="Whether a host without an NVIDIA GPU is refused.")
    checksum: str = Field("", description="The runfile's, as md5:… or sha256:…; none takes it unchecked.")
    md5sum_uri: str = Field("", description="A list of checksums; by default NVIDIA's, beside the runfile.")
    cuda_path: str = Field("", pattern=r"^(/.*)?$", description="By default /usr/local/cuda-<version>.")
    runfile_options: tuple[str, ...] = Field((), description="Further options of the runfile.")
    keep_runfile: bool = Field(default=False, description="Whether the runfile is kept afterwards.")
    lock_timeout: float = Field(600, ge=0, description="Seconds to wait for another package manager.")

    @field_validator("checksum")
    @classmethod
    def _checksum(cls, value: str) -> str:
        if value and value.lower() != "none":
            Checksum.parse(value)
        return value

    @field_validator("runfile_options", mode="before")
    @classmethod
    def _options(cls, value: object) -> object:
        return tuple(shlex.split(value)) if isinstance(value, str) else value

    @field_validator("fabric_manager", "imex", mode="before")
    @classmethod
    def _choice(cls, value: object) -> object:
        return str(value).lower()


class NvidiaCudaInstallation(Dependency):
    """Driver, kernel module, libraries, tools and fabric manager in one full version; and the toolkit.

    What is there and right is left alone. Nothing is touched while something runs on a GPU.
    """

    is_for_gpus = True
    changes_host = True
    lifts = frozenset({LiftedBy.DRIVER, LiftedBy.PROGRAM})
    Parameters = NvidiaCudaInstallationParameters
    parameters: NvidiaCudaInstallationParameters

    def plan(self, facts: Facts) -> Plan:
        """Packages to one version, held; nouveau out; the toolkit; the module in, by a reboot if need be."""
        with refusals_lifted_by(LiftedBy.SYSTEM):
            return self._plan(facts)

    def _plan(self, facts: Facts) -> Plan:
        if self.parameters.require_gpu and facts[GPU_COUNT] == 0:
            raise HostError(
                "there is no NVIDIA GPU on the PCI bus",
                remedy="see lspci -d 10de:; give RequireGpu=false to prepare a host without one",
                lifted_by=LiftedBy.NOTHING,
            )
        _require_whole_gpus(facts)
        self._require_right_runfile(facts)
        wish, why_prebuilt = wish_of(self._wish_parameters(), facts)
        kind = RpmDriverPackages if wish.rpm else DriverPackages
        # The rpm packages of a bundle are in one repository: their origin was checked when it was made.
        mixed = wish.rpm and bundle_of(facts) is not None
        packages = kind(
            wish,
            None if mixed else _ORIGINS[self.parameters.driver_repository],
            self.parameters.hold,
            self.parameters.lock_timeout,
            why_prebuilt,
            self._repository(),
            self.parameters.non_free,
        )
        driver, standing = self._driver_steps(wish, packages, facts)
        toolkit = self._toolkit_steps(facts)
        # Steps that need a reboot come last, except the services, which start after it.
        early = [step for step in driver if step.name not in _LATE]
        steps = (*early, *toolkit, *(step for step in driver if step.name in _LATE))
        if not steps:
            return Plan(nothing_to_do="; ".join((standing, *self._toolkit_standing(facts))))
        if not facts[ROOT]:
            raise HostError(
                f"root is needed for {', '.join(step.name for step in steps)}",
                remedy="run vcagent as root",
                lifted_by=LiftedBy.NOTHING,
            )
        return Plan(steps)

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the driver's packages, and the toolkit's runfile if it is at an address."""
        manager = facts[PACKAGE_MANAGER]
        if manager not in ("apt", "dnf"):
            raise not_carried(f"packages of {manager}")
        origins = _ORIGINS[self.parameters.driver_repository]
        driver = driver_download(
            self._wish_parameters(), origins, self._repository(), hold=self.parameters.hold
        )
        wish = self._asked_toolkit(facts)
        return (driver, runfile_download(wish)) if wish and wish.is_remote else (driver,)

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Packages, holds, files and toolkit, each where it is still as it was left."""
        return undo_plan(values, facts)

    def _repository(self) -> NvidiaRepository | None:
        parameters = self.parameters
        if not parameters.add_repository or parameters.driver_repository is Repository.DISTRIBUTION:
            return None
        given = parameters.key_uri and SigningKey.of(parameters.key_uri, parameters.key_fingerprint)
        return NvidiaRepository(parameters.repository_uri, given or None)

    def _wish_parameters(self) -> WishParameters:
        parameters = self.parameters
        told = runfile_versions(parameters.linux_local_run_file)
        return WishParameters(
            driver=parameters.linux_driver_version,
            cuda=(told[0] if told else parameters.linux_cuda_version) if parameters.cuda_required else "",
            cuda_driver=(told[1] or "") if told and parameters.cuda_required else "",
            open_module=parameters.open_source_driver,
            fabric_manager=parameters.fabric_manager,
            imex=parameters.imex,
            kernel_module=parameters.kernel_module,
            minor_version_compatibility=parameters.minor_version_compatibility,
            minimum_driver=parameters.minimum_driver,
        )

    def _driver_steps(
        self, wish: DriverWish, packages: DriverPackages, facts: Facts
    ) -> tuple[list[Step], str]:
        """Return the driver's steps; and its state if there are no steps."""
        module = facts[NVIDIA_MODULE]
        foreign = _foreign_owner(packages, module, facts)
        if module and foreign:
            return [], _accept_foreign(wish, module, foreign, facts)
        wrong = packages.faults(facts)
        able = _can_install(facts)
        if wrong and not able:
            raise HostError(
                f"{'; '.join(wrong)}; drivers are installed by apt, and by dnf on RHEL's family, Amazon "
                "Linux 2023 and Fedora 42 to 44; this host is "
                f"{facts[DISTRIBUTION].name or facts[DISTRIBUTION].id} with "
                f"{facts[PACKAGE_MANAGER] or 'no package manager that is known'}",
                remedy=f"{by_hand(facts[DISTRIBUTION].id)}; vcagent will accept it",
            )
        steps = packages.steps(facts) if able else []
        without_gpu = facts[GPU_COUNT] == 0
        loading = [] if without_gpu else loading_steps(packages, facts, installing=bool(wrong))
        if wrong or loading:
            require_no_workload(facts[GPU_PROCESSES])
        services = service_steps(wish, facts, restarting=bool(wrong or loading))
        if not (wrong or loading or without_gpu):
            require_answer(facts)
        driver = packages.installed(facts)
        answers = "there is no GPU yet" if without_gpu else "it is loaded and answers"
        standing = f"driver {driver.version} is whole, {answers}" if driver else ""
        return [*steps, *loading, *services], standing

    def _toolkit_wish(self, facts: Facts) -> ToolkitWish | None:
        wish = self._asked_toolkit(facts)
        return bundled_runfile(wish, facts) if wish else None

    def _asked_toolkit(self, facts: Facts) -> ToolkitWish | None:
        parameters = self.parameters
        told = runfile_versions(parameters.linux_local_run_file)
        version = parameters.linux_cuda_version or (told[0].rpartition(".")[0] if told else "")
        if not parameters.cuda_required or not version:
            return None
        return ToolkitWish(
            version=version,
            path=toolkit_path(facts, version, parameters.cuda_path),
            runfile=parameters.linux_local_run_file,
            checksum=parameters.checksum,
            md5sum_uri=parameters.md5sum_uri,
            options=parameters.runfile_options,
            keep=parameters.keep_runfile,
        )

    def _toolkit_steps(self, facts: Facts) -> list[Step]:
        wish = self._toolkit_wish(facts)
        return toolkit_steps(wish, facts) if wish else []

    def _toolkit_standing(self, facts: Facts) -> tuple[str, ...]:
        wish = self._toolkit_wish(facts)
        return (f"CUDA {wish.version} is in {wish.path}",) if wish else ()

    def _require_right_runfile(self, facts: Facts) -> None:
        told = runfile_versions(self.parameters.linux_local_run_file)
        if not told or not self.parameters.cuda_required:
            return
        version, _, machine = told
        asked = self.parameters.linux_cuda_version
        if asked and not version.startswith(f"{asked}."):
            raise HostError(
                f"the runfile has CUDA {version}, and LinuxCudaVersion asks for {asked}",
                remedy="give the runfile of that version",
                lifted_by=LiftedBy.NOTHING,
            )
        if facts[ARCHITECTURE] != machine:
            raise HostError(
                f"the runfile is for {machine}, and this host is {facts[ARCHITECTURE]}",
                remedy="give the runfile of this architecture: linux_sbsa for Arm servers, linux for x86-64",
                lifted_by=LiftedBy.NOTHING,
            )


_LATE = frozenset({"load", "reboot", "subnet-manager", "fabric-manager", "imex"})


def _can_install(facts: Facts) -> bool:
    """Return True for apt, and for dnf where NVIDIA has a repository: others hold packages in other files."""
    if facts[PACKAGE_MANAGER] == "dnf":
        return bool(repository_folder(facts[DISTRIBUTION]))
    return facts[PACKAGE_MANAGER] == "apt"


def _foreign_owner(packages: DriverPackages, module: NvidiaModule | None, facts: Facts) -> str:
    """Return who installed a driver that belongs to no known package; empty for another, or none.

    Raises:
        HostError: if it is there and does not work, and would be in the way.
    """
    if packages.installed(facts) is not None:
        return ""
    if facts[exists(facts[SYSTEM_ROOT] / "usr/bin/nvidia-uninstall")]:
        if module is None:
            raise HostError(
                "a driver of NVIDIA's runfile is installed, which no package owns, and it is not loaded",
                remedy="nvidia-uninstall, then run again",
            )
        return _RUNFILE
    other = other_distributor(facts[INSTALLED_PACKAGES])
    if other and module is None:
        raise HostError(
            f"a driver of {other.name} is installed ({other.package}), and it is not loaded",
            remedy=f"load it (modprobe nvidia), build its module, or remove it ({other.removal}); run again",
        )
    if other:
        return other.name
    if module and facts[IN_CONTAINER]:
        return _CONTAINER
    return _UNKNOWN if module and packages.wish.loaded else ""


_RUNFILE = "NVIDIA's runfile"
_CONTAINER = "the host of this container"
_UNKNOWN = "somebody else"


def _accept_foreign(wish: DriverWish, module: NvidiaModule, owner: str, facts: Facts) -> str:
    """Check that a driver that packages cannot repair is good as it is; a newer one than requested is.

    Raises:
        HostError: if it is not.
    """
    objection = wish.objection(module.version)
    told = ""
    if (
        objection
        and not replace(wish, version="").objection(module.version)
        and (driver_key(module.version) > driver_key(wish.version))
    ):
        objection, told = (
            "",
            f"; the profile asks for {wish.version}, and this one is newer: it is left alone",
        )
    if wish.open_module is not None and module.open not in (None, wish.open_module):
        told += f"; its kernel module is not the {'open' if wish.open_module else 'closed'} one"
    if not objection and wish.fabric_manager and owner != _CONTAINER:
        state = facts[service(FABRIC_MANAGER)]
        objection = "" if state and state.active else "the fabric manager does not run"
    if objection:
        remedies = {_RUNFILE: "nvidia-uninstall, then run again", _CONTAINER: "change it on that host"}
        raise HostError(
            f"driver {module.version} was installed by {owner}, no package known here owns it, "
            f"and {objection}",
            remedy=remedies.get(owner, "change it as it was installed, or remove it and run again"),
        )
    require_answer(facts)
    return f"driver {module.version}, installed by {owner}, is loaded and answers; nothing is held{told}"


def _require_whole_gpus(facts: Facts) -> None:
    """Refuse parts of a GPU that no driver answers for: NVIDIA's repositories have none that would.

    Raises:
        HostError: if there is one.
    """
    parts = [gpu for gpu in facts[GPUS] if gpu.driver is None and is_vgpu(gpu.pci_id, gpu.subsystem)]
    if parts:
        name = gpu_name_of(parts[0].pci_id) or "GPU"
        raise HostError(
            f"{parts[0].bus_id} is a part of an {name} (vGPU), which the ordinary driver does not start",
            remedy="install the cloud's GRID driver (Azure: NVIDIA-Linux-x86_64-*-grid-azure.run; AWS: "
            "*-grid-aws.run); or take a size with whole GPUs. vcagent accepts a driver that answers",
            lifted_by=LiftedBy.DRIVER,
        )
