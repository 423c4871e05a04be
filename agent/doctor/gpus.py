"""Finds problems for runs on NVIDIA GPUs before any change."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from agent.doctor.check import Check, Found, Look, Status, look_at_all
from agent.facts.gpu_health import GPU_HEALTH
from agent.facts.gpu_processes import GPU_PROCESSES
from agent.facts.gpus import GPUS, NVSWITCH_COUNT
from agent.facts.nvidia_module import COMPETING_MODULES, NVIDIA_MODULE
from agent.facts.nvml import NVML
from agent.facts.nvswitch import NVSWITCH_BRIDGES
from agent.facts.packages import INSTALLED_PACKAGES
from agent.facts.secure_boot import MODULE_KEY_ENROLLED, SECURE_BOOT
from agent.facts.services import service

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.facts import Facts
    from agent.facts.gpu_health import GpuHealth

FABRIC_MANAGER = "nvidia-fabricmanager"
_LIBRARIES = re.compile(
    r"libnvidia-compute-\d+(?:-server|-open)?|libnvidia-ml1?|nvidia-driver-cuda-libs|nvidia-compute-utils-\d+.*"
)
"""Packages with libnvidia-ml on Ubuntu, Debian, and in NVIDIA's rpm repositories."""


def check_gpus(facts: Facts) -> list[Check]:
    """Check the GPUs and their driver; a single line on a host without any.

    Args:
        facts: the host.
    """
    if not facts[GPUS]:
        return [Check("GPUs", Status.OK, "there is no NVIDIA GPU on this host")]
    looks: dict[str, Callable[[Facts], Found]] = {
        "GPUs": _gpus,
        "GPU driver": _driver,
        "nouveau": _nouveau,
        "Secure Boot": _secure_boot,
        "fabric manager": _fabric_manager,
        "GPU processes": _processes,
    }
    if facts[GPU_HEALTH]:
        looks |= {
            "MIG": partial(_each, _mig, "no GPU is split"),
            "GPU memory errors": partial(_each, _memory_errors, "none that was not corrected"),
            "GPU clocks": partial(_each, _clocks, "nothing holds them down"),
            "GPU persistence": partial(_each, _persistence, "the driver stays loaded"),
        }
    bound: dict[str, Look] = {name: partial(look, facts) for name, look in looks.items()}
    return look_at_all(bound)


def _gpus(facts: Facts) -> Found:
    gpus = facts[GPUS]
    silent = [gpu.bus_id for gpu in gpus if gpu.driver is None]
    names = ", ".join(dict.fromkeys(gpu.name or gpu.pci_id or "?" for gpu in gpus))
    if not silent:
        return Status.OK, f"{len(gpus)}: {names}", ""
    if len(silent) == len(gpus):
        message = f"{len(gpus)} on the PCI bus, and no driver answers for them"
        return Status.WARNING, message, "NvidiaCudaInstallation installs the driver"
    remedy = "see dmesg for NVRM and Xid; a GPU that fell off the bus comes back with a cold start, or not"
    return Status.PROBLEM, f"no driver answers for {', '.join(silent)}, only for the others", remedy


def _driver(facts: Facts) -> Found:
    module, nvml = facts[NVIDIA_MODULE], facts[NVML]
    if module is None:
        return Status.WARNING, "NVIDIA's kernel module is not loaded", "NvidiaCudaInstallation installs it"
    libraries = {
        match.group()
        for name, package in facts[INSTALLED_PACKAGES].items()
        if package.installed and _LIBRARIES.fullmatch(name.partition(":")[0])
        if (match := re.search(r"\d{3}\.\d+(?:\.\d+)*", package.version))
    }
    reboot = "reboot: the old module is still loaded; installing again does not help"
    if libraries and module.version not in libraries:
        text = f"module {module.version} is loaded, libraries of {', '.join(sorted(libraries))} are installed"
        return Status.PROBLEM, text, reboot
    if nvml and nvml.error:
        remedy = reboot if "mismatch" in nvml.error.lower() else "see nvidia-smi and dmesg"
        return Status.PROBLEM, f"module {module.version}; NVML: {nvml.error}", remedy
    return Status.OK, module.version, ""


def _nouveau(facts: Facts) -> Found:
    modules = facts[COMPETING_MODULES]
    if modules is None:
        return Status.OK, "nobody can tell which modules are loaded", ""
    if modules:
        remedy = "NvidiaCudaInstallation keeps it from loading; that needs a reboot (--yes)"
        return Status.PROBLEM, f"{' and '.join(modules)} holds the GPU", remedy
    return Status.OK, "not loaded", ""


def _secure_boot(facts: Facts) -> Found:
    on, enrolled = facts[SECURE_BOOT], facts[MODULE_KEY_ENROLLED]
    if not on:
        return Status.OK, "off" if on is False else "nobody can tell", ""
    if enrolled or facts[NVIDIA_MODULE]:
        return Status.OK, "on, and the module is accepted", ""
    remedy = "enroll the key that signs it (mokutil --import, then confirm at the console), or turn it off"
    return Status.PROBLEM, "on: the kernel will reject a module that dkms built", remedy


def _fabric_manager(facts: Facts) -> Found:
    switches = (facts[NVSWITCH_COUNT] or 0) + (facts[NVSWITCH_BRIDGES] or 0)
    if not switches:
        return Status.OK, "not needed: there is no NVSwitch", ""
    state = facts[service(FABRIC_MANAGER)]
    if state is None:
        remedy = "NvidiaCudaInstallation installs the one that fits the driver"
        return Status.PROBLEM, f"{switches} NVSwitches, and no service {FABRIC_MANAGER}", remedy
    if not state.active:
        how = f", it failed: {state.result}" if state.failed else ""
        remedy = f"journalctl -u {FABRIC_MANAGER}: it must have the driver's very version"
        return Status.PROBLEM, f"{FABRIC_MANAGER} does not run{how}; CUDA cannot start without it", remedy
    return Status.OK, "it runs", ""


def _processes(facts: Facts) -> Found:
    working = [str(process) for process in facts[GPU_PROCESSES] if process.is_workload]
    if working:
        remedy = "end them: they change what is measured, and keep the driver from being replaced"
        return Status.WARNING, ", ".join(working), remedy
    return Status.OK, "nobody else uses the GPUs", ""


def _each(look: Callable[[GpuHealth], Found | None], well: str, facts: Facts) -> Found:
    """Return the worst finding of all GPUs; GPUs with the same finding are listed together."""
    found: dict[Found, list[str]] = {}
    for health in facts[GPU_HEALTH]:
        if finding := look(health):
            found.setdefault(finding, []).append(health.bus_id)
    if not found:
        return Status.OK, well, ""
    worst = Status.PROBLEM if any(status is Status.PROBLEM for status, _, _ in found) else Status.WARNING
    message = "; ".join(f"{', '.join(gpus)}: {text}" for (_, text, _), gpus in found.items())
    return worst, message, "; ".join(dict.fromkeys(remedy for _, _, remedy in found))


def _mig(health: GpuHealth) -> Found | None:
    if health.mig_pending is not None and health.mig_pending != health.mig:
        wish = "split" if health.mig_pending else "whole"
        return (
            Status.WARNING,
            f"will be {wish} after a reset",
            "reset the GPU (nvidia-smi --gpu-reset) or reboot",
        )
    if health.mig:
        return Status.WARNING, "is split into instances", "nvidia-smi --multi-instance-gpu=0 makes it whole"
    return None


def _memory_errors(health: GpuHealth) -> Found | None:
    if health.remapping_failed:
        return Status.PROBLEM, "has no spare rows left for bad memory", "have the GPU exchanged"
    if health.uncorrected:
        text = f"{health.uncorrected} memory errors were not corrected"
        return (
            Status.PROBLEM,
            text,
            "reboot, run NVIDIA's diagnosis (dcgmi diag -r 3), exchange it if they return",
        )
    if health.remapping_pending:
        return (
            Status.WARNING,
            "bad memory waits to be replaced",
            "reset the GPU (nvidia-smi --gpu-reset) or reboot",
        )
    return None


def _clocks(health: GpuHealth) -> Found | None:
    if health.throttled:
        text = f"slowed down: {', '.join(health.throttled)}"
        return Status.WARNING, text, "see to cooling and power (nvidia-smi -q -d PERFORMANCE)"
    if health.graphics_clock_cap_mhz is not None:
        text = f"somebody set {health.graphics_clock_cap_mhz} MHz"
        return Status.WARNING, text, "nvidia-smi --reset-applications-clocks"
    return None


def _persistence(health: GpuHealth) -> Found | None:
    if health.persistence is False:
        remedy = "systemctl enable --now nvidia-persistenced: a cold driver takes seconds to answer"
        return Status.WARNING, "the driver is unloaded when nobody uses it", remedy
    return None
