"""Steps that make the installed driver work: remove nouveau, load the module, start the services, check."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.errors import ActionFailedError, DependencyFailedError, HostError
from agent.facts.dkms import NVIDIA_MODULE_FILE
from agent.facts.files import text_of
from agent.facts.gpus import GPUS
from agent.facts.kernel_headers import KERNEL_HEADERS
from agent.facts.linux import KERNEL
from agent.facts.nvidia_module import COMPETING_MODULES, LOADED_MODULES, NVIDIA_MODULE
from agent.facts.packages import PACKAGE_MANAGER, RPM_MANAGERS
from agent.facts.services import service
from agent.facts.system_paths import SYSTEM_ROOT
from dependencies.nvidia.failures import driver_remedy, kernel_words
from dependencies.nvidia.packages import branch_of
from dependencies.packages.module_change import build_step
from dependencies.packages.package_folder import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from agent.facts import Facts
    from dependencies.nvidia.driver import DriverWish, InstalledDriver
    from dependencies.nvidia.driver_packages import DriverPackages

FABRIC_MANAGER = "nvidia-fabricmanager"
IMEX = "nvidia-imex"
IMEX_NODES = "etc/nvidia-imex/nodes_config.cfg"
"""The list of hosts in the NVLink domain, written by the domain's operator (NVIDIA's IMEX guide)."""

_BLACKLIST = "# Written by vcagent: these modules take the GPUs from NVIDIA's driver.\n" + "".join(
    f"{line}\n" for line in ("blacklist nouveau", "options nouveau modeset=0", "blacklist nova_core")
)
_UMAD = "# Written by vcagent: the fabric manager talks to NVLink 5 switches through it.\nib_umad\n"


def loading_steps(packages: DriverPackages, facts: Facts, *, installing: bool) -> list[Step]:
    """Return the steps that load the installed module.

    Args:
        packages: the driver's packages.
        facts: the facts about the host.
        installing: whether packages are changed before.
    """
    module = facts[NVIDIA_MODULE]
    competing = facts[COMPETING_MODULES] or ()
    driver = packages.installed(facts)
    chosen = packages.chosen(facts) if installing else None
    version = chosen.version if chosen else driver.version if driver and not installing else None
    is_open = chosen.open_module if chosen else driver.open_module if driver and not installing else None
    if competing:
        return [
            *_blacklist_steps(facts, competing),
            _reboot_step(packages, _holders(competing)),
        ]
    if module is None:
        building = [] if installing or driver is None else _build_steps(driver, packages, facts)
        return [*building, _load_step()]
    if version is None:
        return [
            _reboot_step(packages, f"the module {module.version} is loaded, another one may be installed")
        ]
    if module.version != version:
        return [
            _reboot_step(
                packages,
                f"the kernel module {module.version} is loaded, the packages are {version}: NVML would "
                'answer "Driver/library version mismatch"',
            )
        ]
    if module.open is not None and is_open is not None and module.open != is_open:
        there, wanted = ("open", "closed") if module.open else ("closed", "open")
        return [_reboot_step(packages, f"the {there} kernel module is loaded, the {wanted} one installed")]
    return []


def service_steps(wish: DriverWish, facts: Facts, *, restarting: bool) -> list[Step]:
    """Return the steps that start the driver's services.

    Args:
        wish: the requested driver.
        facts: the facts about the host.
        restarting: whether the module or the packages change before, so that the services must restart.
    """
    steps = []
    if wish.subnet_manager and "ib_umad" not in (facts[LOADED_MODULES] or ()):
        steps.append(
            Step(
                "subnet-manager",
                "NVLink 5 switches are reached through ib_umad, which is not loaded",
                _load_umad,
                f"write {_umad(facts)}; modprobe ib_umad",
                lambda after: "ib_umad" in (after[LOADED_MODULES] or ()),
                undo={"file": str(_umad(facts))},
            )
        )
    if wish.fabric_manager:
        steps += _service_step(
            "fabric-manager", FABRIC_MANAGER, "NVSwitches need it", facts, restarting=restarting
        )
    nodes = facts[text_of(facts[SYSTEM_ROOT] / IMEX_NODES)] if wish.imex else None
    if any(line.strip() and not line.startswith("#") for line in (nodes or "").splitlines()):
        steps += _service_step("imex", IMEX, "the NVLink domain needs it", facts, restarting=restarting)
    return steps


def require_answer(facts: Facts) -> None:
    """Check that every GPU on the bus answers through the driver.

    Raises:
        HostError: if a GPU does not answer.
    """
    gpus = facts[GPUS]
    silent = [gpu.bus_id for gpu in gpus if gpu.driver is None]
    if silent or not gpus:
        which = ", ".join(silent) or "any GPU"
        raise HostError(
            f"the driver is loaded, but nvidia-smi does not answer for {which}",
            remedy="see dmesg for NVRM and Xid messages; a GPU that fell off the bus needs a power cycle",
        )


def _blacklist_steps(facts: Facts, competing: tuple[str, ...]) -> list[Step]:
    path = _blacklist(facts)
    if facts[text_of(path)] == _BLACKLIST:
        return []
    command = ["dracut", "--force"] if facts[PACKAGE_MANAGER] in RPM_MANAGERS else ["update-initramfs", "-u"]

    def run(context: StepContext) -> StepOutcome:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _BLACKLIST)
        context.processes.run(command, log=context.log)
        return StepOutcome("they stay out from the next boot on")

    return [
        Step(
            "blacklist",
            f"{_holders(competing)}, which NVIDIA's driver needs",
            run,
            f"write {path}; {shlex.join(command)}",
            lambda after: after[text_of(path)] == _BLACKLIST,
            undo={"file": str(path), "initramfs": command},
        )
    ]


def _reboot_step(packages: DriverPackages, reason: str) -> Step:
    def run(context: StepContext) -> StepOutcome:
        now = context.facts.fresh()
        module, driver = now[NVIDIA_MODULE], packages.installed(now)
        if module and driver and not now[COMPETING_MODULES]:
            same_flavour = module.open in (None, driver.open_module)
            if module.version == driver.version and same_flavour:
                return StepOutcome("no reboot is needed: the right module is loaded")
        return StepOutcome("a reboot is needed", reboot=reason)

    return Step("reboot", reason, run, "reboot")


def _build_steps(driver: InstalledDriver, packages: DriverPackages, facts: Facts) -> list[Step]:
    """Return the step that builds the module for a newly booted kernel, for which modprobe finds none.

    Raises:
        HostError: if the kernel's headers are not available.
    """
    kernel, there = facts[KERNEL], facts[NVIDIA_MODULE_FILE]
    layout, branch = driver.layout, branch_of(driver.version)
    built_here = any(
        name in driver.packages
        for name in layout.fill(layout.dkms, branch, kernel, is_open=driver.open_module)
    )
    if there is None or there == driver.version or not built_here:
        return []
    told = f"there is {'none' if not there else f'{there}'} for the kernel {kernel}"
    headers = packages.headers_command(facts) if facts[KERNEL_HEADERS] is False else []
    reason = f"the module of driver {driver.version} is missing: {told}"

    def holds(after: Facts) -> bool:
        return after[NVIDIA_MODULE_FILE] == driver.version

    return [build_step(kernel, reason, holds, headers, packages.run_manager)]


def _load_step() -> Step:
    command = ["modprobe", "-a", "nvidia", "nvidia-uvm"]

    def run(context: StepContext) -> StepOutcome:
        try:
            context.processes.run(command, log=context.log)
        except ActionFailedError as error:
            said = kernel_words(context)
            raise DependencyFailedError(
                f"NVIDIA's kernel module cannot be loaded: {error.message}",
                remedy=driver_remedy("\n".join((*error.details, *said)))
                or "see dmesg for NVRM messages, and dkms status for whether the module was built",
                details=(*error.details, *said[-3:]),
            ) from error
        return StepOutcome("loaded")

    return Step(
        "load",
        "NVIDIA's kernel module is not loaded",
        run,
        shlex.join(command),
        lambda after: after[NVIDIA_MODULE] is not None,
    )


def _service_step(name: str, unit: str, reason: str, facts: Facts, *, restarting: bool) -> list[Step]:
    state = facts[service(unit)]
    if state and state.active and state.enabled is not False and not restarting:
        return []
    if state and state.active:
        told = "its driver changes" if restarting else "it does not start with the host"
    else:
        told = "it failed" if state and state.failed else "it does not run"

    def run(context: StepContext) -> StepOutcome:
        try:
            for verb in ("enable", "restart"):
                context.processes.run(["systemctl", verb, f"{unit}.service"], log=context.log)
        except ActionFailedError as error:
            journal = context.processes.run(
                ["journalctl", "--no-pager", "--lines=15", f"--unit={unit}"], log=context.log, check=False
            )
            raise DependencyFailedError(
                f"{unit} does not start: {error.message}",
                remedy=driver_remedy(journal.stdout)
                or f"see journalctl --unit={unit}; its version must be the driver's",
                details=tuple(journal.stdout.splitlines()[-15:]),
            ) from error
        return StepOutcome("it runs, and starts with the host")

    def holds(after: Facts) -> bool:
        now = after[service(unit)]
        return now is not None and now.active and now.enabled is not False

    command = f"systemctl enable {unit}.service; systemctl restart {unit}.service"
    return [Step(name, f"{reason}, and {told}", run, command, None if holds(facts) else holds)]


def _holders(modules: tuple[str, ...]) -> str:
    return f"{' and '.join(modules)} {'holds' if len(modules) == 1 else 'hold'} the GPUs"


def _load_umad(context: StepContext) -> StepOutcome:
    path = _umad(context.facts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, _UMAD)
    context.processes.run(["modprobe", "ib_umad"], log=context.log)
    return StepOutcome("loaded, now and at every boot")


def _blacklist(facts: Facts) -> Path:
    return facts[SYSTEM_ROOT] / "etc/modprobe.d/vcagent-nouveau.conf"


def _umad(facts: Facts) -> Path:
    return facts[SYSTEM_ROOT] / "etc/modules-load.d/vcagent-nvidia.conf"
