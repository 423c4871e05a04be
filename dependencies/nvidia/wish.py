"""Combines a profile and a host into the requested driver: GPUs, switches, Secure Boot, CUDA."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from agent.core.errors import HostError, LiftedBy
from agent.facts.gpu_generations import (
    Generation,
    first_branch,
    generation,
    last_branch,
    needs_imex,
    needs_open_module,
)
from agent.facts.gpus import GPUS, NVSWITCH_COUNT
from agent.facts.kernel_headers import KERNEL_HEADERS
from agent.facts.known_gpus import first_driver, gpu_name_of
from agent.facts.linux import KERNEL
from agent.facts.nvidia_module import NVIDIA_MODULE
from agent.facts.nvswitch import NVSWITCH_BRIDGES
from agent.facts.packages import INSTALLED_PACKAGES, PACKAGE_MANAGER, RPM_MANAGERS
from agent.facts.secure_boot import MODULE_KEY_ENROLLED, SECURE_BOOT
from dependencies.nvidia.cuda_versions import compatible_driver, driver_key, needed_driver
from dependencies.nvidia.driver import DriverWish
from dependencies.nvidia.packages import branch_of
from dependencies.packages.module_change import enrolment

if TYPE_CHECKING:
    from agent.facts import Facts

_DISPLAY = (
    r"xserver-xorg-(?:core|video-nvidia)|xwayland$|xorg-x11-server-Xorg"
    r"|nvidia-driver-\d{3}|nvidia-driver(?:-open)?$"
)
"""Packages of a host with a display."""

OPEN_BY_DEFAULT = 560
"""The branch since which NVIDIA recommends the open kernel module (its guide, "Kernel Modules")."""


class Choice(str, Enum):
    """Yes, no, or automatic: as the host needs it."""

    AUTO = "auto"
    TRUE = "true"
    FALSE = "false"

    def decide(self, needed: bool) -> bool:  # noqa: FBT001 - the meaning of auto
        """Return the decision for a host."""
        return needed if self is Choice.AUTO else self is Choice.TRUE


class KernelModule(str, Enum):
    """The source of the kernel module."""

    AUTO = "auto"
    DKMS = "dkms"
    PREBUILT = "prebuilt"


@dataclass(frozen=True)
class WishParameters:
    """The profile's settings of the driver.

    Args:
        driver: a branch, a full version, or empty.
        cuda: the toolkit that it must support, such as ``12.4`` or ``12.4.1``; empty for none.
        cuda_driver: the driver in the name of the toolkit's runfile, for toolkits newer than the table.
        open_module: whether to use the open kernel module; None for automatic.
        fabric_manager: whether to install it.
        imex: whether to install it.
        kernel_module: the source of the kernel module.
        minor_version_compatibility: whether an older driver of the same major CUDA version is accepted.
        minimum_driver: the oldest driver that runs the host's workload; empty for any.
    """

    driver: str = ""
    cuda: str = ""
    cuda_driver: str = ""
    open_module: bool | None = None
    fabric_manager: Choice = Choice.AUTO
    imex: Choice = Choice.AUTO
    kernel_module: KernelModule = KernelModule.AUTO
    minor_version_compatibility: bool = False
    minimum_driver: str = ""


def wish_of(asked: WishParameters, facts: Facts) -> tuple[DriverWish, str]:
    """Return the requested driver, and the reason why its module must be signed, if it must.

    Raises:
        HostError: if the profile asks for something that cannot work on this host.
    """
    pci_ids = [gpu.pci_id for gpu in facts[GPUS]]
    generations = [found for found in map(generation, pci_ids) if found is not None]
    minimum, minimum_for = _minimum(asked, generations, pci_ids)
    _require_new_enough(asked.driver, minimum, minimum_for)
    maximum = min((last for found in generations if (last := last_branch(found))), default=None)
    bridges = bool(facts[NVSWITCH_BRIDGES])
    fabric_manager = asked.fabric_manager.decide(bool(facts[NVSWITCH_COUNT]) or bridges)
    prebuilt, why = _prebuilt(asked.kernel_module, facts)
    wish = DriverWish(
        version=asked.driver,
        kernel=facts[KERNEL],
        open_module=_open_module(asked, pci_ids, generations),
        prefer_open=not asked.driver or int(branch_of(asked.driver)) >= OPEN_BY_DEFAULT,
        prebuilt=prebuilt,
        fabric_manager=fabric_manager,
        subnet_manager=fabric_manager and bridges,
        imex=asked.imex.decide(any(map(needs_imex, pci_ids))),
        minimum=minimum,
        minimum_for=minimum_for,
        maximum_branch=maximum,
        headers=facts[KERNEL_HEADERS] is not False,
        rpm=facts[PACKAGE_MANAGER] in RPM_MANAGERS,
        display=_has_display(facts),
        loaded=_working_version(facts),
    )
    return wish, why


def wishes_of_unknown_gpus(asked: WishParameters, kernel: str, *, rpm: bool = False) -> list[DriverWish]:
    """Return the drivers that hosts may need whose GPUs are unknown, best first for each kernel module.

    Hosts without NVSwitches can use a driver with the fabric manager, too.

    Args:
        asked: the profile's settings.
        kernel: the kernel of the hosts; empty if it is unknown: then they must have its headers.
        rpm: whether their packages are rpm packages.
    """
    minimum, minimum_for = _minimum(asked, [], [])
    fabric_managers = [True, False] if asked.fabric_manager is Choice.AUTO else [False]
    if asked.fabric_manager is Choice.TRUE:
        fabric_managers = [True]
    return [
        DriverWish(
            version=asked.driver,
            kernel=kernel,
            open_module=is_open,
            prebuilt=asked.kernel_module is KernelModule.PREBUILT,
            fabric_manager=fabric_manager,
            imex=asked.imex is Choice.TRUE,
            minimum=minimum,
            minimum_for=minimum_for,
            headers=not kernel,
            rpm=rpm,
        )
        for is_open in ((True, False) if asked.open_module is None else (asked.open_module,))
        for fabric_manager in fabric_managers
    ]


def _working_version(facts: Facts) -> str:
    """Return the version of a loaded module through which every GPU answers; empty if none."""
    module, gpus = facts[NVIDIA_MODULE], facts[GPUS]
    return module.version if module and gpus and all(gpu.driver for gpu in gpus) else ""


def _has_display(facts: Facts) -> bool:
    """Return True if the host has a display: an X server, or NVIDIA's X driver."""
    return any(
        package.installed and re.match(_DISPLAY, name) for name, package in facts[INSTALLED_PACKAGES].items()
    )


def _minimum(
    asked: WishParameters, generations: list[Generation], pci_ids: list[str | None]
) -> tuple[str, str]:
    """Return the oldest driver that is accepted, and the component that needs it."""
    needs: list[tuple[str, str]] = []
    if asked.cuda:
        exact = needed_driver(asked.cuda) or asked.cuda_driver
        compatible = compatible_driver(asked.cuda) if asked.minor_version_compatibility else None
        needs.append((compatible or exact, f"CUDA {asked.cuda}"))
    if asked.minimum_driver:
        needs.append((asked.minimum_driver, "what is to run"))
    first = max(map(first_branch, generations), default=0)
    if first:
        needs.append((str(first), f"a {max(generations).name.title()} GPU"))
    needs += [(first_driver(one, branch_of(asked.driver)), gpu_name_of(one) or "") for one in pci_ids]
    return max((need for need in needs if need[0]), key=lambda need: driver_key(need[0]), default=("", ""))


def _require_new_enough(driver: str, minimum: str, minimum_for: str) -> None:
    """Refuse a full version that is too old; a branch may still have a new enough driver."""
    if not driver or not minimum:
        return
    key, needed = driver_key(driver), driver_key(minimum)
    if key < needed[: len(key)] if len(key) == 1 else key < needed:
        raise HostError(
            f"{minimum_for} needs driver {minimum} or newer, and the profile asks for {driver}",
            remedy=f"ask for LinuxDriverVersion={branch_of(minimum)} or newer, or for an older CUDA",
            lifted_by=LiftedBy.NOTHING,
        )


def _open_module(
    asked: WishParameters, pci_ids: list[str | None], generations: list[Generation]
) -> bool | None:
    required = any(map(needs_open_module, pci_ids))
    unsupported = any(found < Generation.TURING for found in generations)
    if required and (unsupported or asked.open_module is False):
        raise HostError(
            "a GPU here works with the open kernel module alone"
            + (
                ", another one with the closed one alone"
                if unsupported
                else ", and the closed one is asked for"
            ),
            remedy="use hosts with GPUs of one generation"
            if unsupported
            else "OpenSourceDriver=true, or none",
            lifted_by=LiftedBy.NOTHING,
        )
    if unsupported and asked.open_module:
        raise HostError(
            "the open kernel module needs Turing or newer, and a GPU here is older",
            remedy="OpenSourceDriver=false, or none",
            lifted_by=LiftedBy.NOTHING,
        )
    if required or unsupported:
        return required
    return asked.open_module


def _prebuilt(asked: KernelModule, facts: Facts) -> tuple[bool, str]:
    """Return whether only a module that the distribution signed works, and why.

    A module that is loaded under Secure Boot was accepted: it does not have to change.
    """
    guarded = bool(facts[SECURE_BOOT]) and not facts[MODULE_KEY_ENROLLED] and facts[NVIDIA_MODULE] is None
    why = "Secure Boot is on, and no key is enrolled for modules that are built here"
    if guarded and asked is KernelModule.DKMS:
        raise HostError(
            f'{why}: the kernel would answer "Key was rejected by service"',
            remedy=f"enrol one ({enrolment(rpm=facts[PACKAGE_MANAGER] in RPM_MANAGERS)}), "
            "turn Secure Boot off, or take KernelModule=prebuilt",
        )
    return guarded or asked is KernelModule.PREBUILT, why if guarded else ""
