"""Finds problems for runs on AMD GPUs before any change."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agent.doctor.check import Check, Found, Look, Status, look_at_all
from agent.facts.amd_driver import AMD_DEVICES, AMDGPU_BLACKLISTS, AMDGPU_MODULE, ROCM_VERSION
from agent.facts.amd_gpus import AMD_GPUS
from agent.facts.known_rocm import misfit

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.facts import Facts

_WHOLE_GPU = "SPX"
_WHOLE_MEMORY = "NPS1"


def check_amd_gpus(facts: Facts) -> list[Check]:
    """Check the AMD GPUs, their driver and ROCm; nothing on a host without any.

    Args:
        facts: the host.
    """
    if not facts[AMD_GPUS]:
        return []
    looks: dict[str, Callable[[Facts], Found]] = {"AMD GPUs": _gpus}
    if not _handed_over(facts):
        looks |= {"amdgpu": _module}
        if facts[AMDGPU_MODULE]:
            looks |= {
                "AMD devices": _devices,
                "ROCm": _rocm,
                "AMD partitions": _partitions,
                "AMD memory errors": _memory_errors,
            }
    bound: dict[str, Look] = {name: partial(look, facts) for name, look in looks.items()}
    return look_at_all(bound)


def _handed_over(facts: Facts) -> bool:
    """Return True if this host hands all its GPUs to virtual machines."""
    return all(gpu.driver in {"gim", "vfio-pci"} for gpu in facts[AMD_GPUS])


def _gpus(facts: Facts) -> Found:
    gpus, module = facts[AMD_GPUS], facts[AMDGPU_MODULE]
    names = ", ".join(dict.fromkeys(gpu.name or gpu.pci_id for gpu in gpus))
    if _handed_over(facts):
        remedy = "run the benchmark in a virtual machine that has the GPU"
        return Status.WARNING, f"{len(gpus)}: {names}; this host hands them to virtual machines", remedy
    idle = [gpu.bus_id for gpu in gpus if gpu.driver is None]
    if idle and module:
        remedy = "see dmesg for amdgpu; a GPU that fails to initialize may need a cold start"
        return Status.PROBLEM, f"amdgpu does not hold {', '.join(idle)}", remedy
    return Status.OK, f"{len(gpus)}: {names}", ""


def _module(facts: Facts) -> Found:
    module = facts[AMDGPU_MODULE]
    if module is not None:
        return Status.OK, module.version or "the kernel's own module", ""
    if files := facts[AMDGPU_BLACKLISTS]:
        remedy = f"remove amdgpu from {', '.join(files)}, or load it late: modprobe amdgpu"
        return Status.PROBLEM, f"amdgpu is not loaded: {', '.join(files)} forbids it", remedy
    remedy = "AmdRocmInstallation installs AMD's module; or load the kernel's own: modprobe amdgpu"
    return Status.PROBLEM, "amdgpu is not loaded", remedy


def _devices(facts: Facts) -> Found:
    devices = facts[AMD_DEVICES]
    paths = [device.path for device in devices]
    missing = [
        what for what in ("/dev/kfd", "/dev/dri/renderD") if not any(p.startswith(what) for p in paths)
    ]
    if missing:
        remedy = "see dmesg for kfd; a container needs --device /dev/kfd --device /dev/dri"
        return Status.PROBLEM, f"there is no {' and no '.join(missing)}", remedy
    needed = [device for device in devices if not device.path.startswith("/dev/dri/card")]
    closed = {device.group: device for device in needed if not device.mine}
    if closed:
        groups = ",".join(sorted(closed))
        first = next(iter(closed.values()))
        remedy = f"usermod --append --groups {groups} USER, then log in again"
        return Status.PROBLEM, f"this user may not open {first.path}: it is not in {groups}", remedy
    return Status.OK, f"/dev/kfd and {len(needed) - 1} render nodes can be opened", ""


def _rocm(facts: Facts) -> Found:
    rocm, module = facts[ROCM_VERSION], facts[AMDGPU_MODULE]
    if rocm is None:
        remedy = "AmdRocmInstallation installs it; a run in containers needs amdgpu only"
        return Status.WARNING, "ROCm is not installed", remedy
    driver = module.version if module else None
    if driver and (text := misfit(driver, rocm)):
        return Status.WARNING, text, "install amdgpu and ROCm of one release (AmdRocmInstallation)"
    return Status.OK, rocm, ""


def _partitions(facts: Facts) -> Found:
    modes = {
        gpu.bus_id: f"{gpu.compute_partition or '?'}/{gpu.memory_partition or '?'}"
        for gpu in facts[AMD_GPUS]
        if gpu.compute_partition or gpu.memory_partition
    }
    if not modes:
        return Status.OK, "these GPUs have none", ""
    split = [
        gpu.bus_id
        for gpu in facts[AMD_GPUS]
        if gpu.compute_partition not in {None, _WHOLE_GPU}
        or gpu.memory_partition not in {None, _WHOLE_MEMORY}
    ]
    if split:
        text = ", ".join(f"{bus_id}: {modes[bus_id]}" for bus_id in split)
        remedy = (
            "amd-smi set --compute-partition SPX and --memory-partition NPS1 make GPUs whole; "
            "the latter needs amdgpu loaded again"
        )
        return Status.WARNING, f"not whole: {text}", remedy
    return Status.OK, ", ".join(sorted(set(modes.values()))), ""


def _memory_errors(facts: Facts) -> Found:
    bad = [f"{gpu.bus_id}: {gpu.uncorrected}" for gpu in facts[AMD_GPUS] if gpu.uncorrected]
    if bad:
        remedy = "see amd-smi bad-pages and amd-smi ras --cper; have the GPU exchanged if errors return"
        return Status.PROBLEM, f"memory errors that were not corrected: {', '.join(bad)}", remedy
    return Status.OK, "none that was not corrected", ""
