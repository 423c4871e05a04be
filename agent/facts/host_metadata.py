"""The host as VirtualClient's telemetry describes it: ``metadata_host`` and ``metadata_dependencies``.

The keys are those of VirtualClient (Core/Metadata/MetadataExtensions.cs). It has none for disks, GPUs and the
cloud: these are further parts, of type ``Disk`` and ``GPU``, and keys that begin with ``gpu`` and ``cloud``.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from agent.core.errors import VcagentError
from agent.facts.amd_gpus import AMD_GPUS
from agent.facts.cloud import CLOUD
from agent.facts.container_toolkit import CONTAINER_TOOLKIT_VERSION
from agent.facts.disks import DISKS
from agent.facts.docker import DOCKER_SERVER_VERSION
from agent.facts.gpu_settings import GPU_SETTINGS
from agent.facts.gpus import CUDA_VERSION, DRIVER_VERSION, GPUS
from agent.facts.host_parts import MEMORY_MODULES, NETWORK_CARDS
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION, KERNEL, PLATFORM
from agent.facts.lscpu import CPU_TOPOLOGY, CpuTopology
from agent.facts.memory import MEMORY

if TYPE_CHECKING:
    from agent.facts.amd_gpus import AmdGpu
    from agent.facts.base import Fact, Facts
    from agent.facts.gpus import Gpu

_MIB = 1 << 20
_VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "ARM": "ARM"}


def metadata_host(facts: Facts) -> dict[str, Any]:
    """Return what a record says of its host; what is unknown is left out."""
    distribution, kernel, memory = (_known(facts, fact) for fact in (DISTRIBUTION, KERNEL, MEMORY))
    cloud = _known(facts, CLOUD)
    values: dict[str, Any] = {
        "computerName": socket.gethostname(),
        "osFamily": "Unix",
        "osName": distribution.name if distribution else None,
        "osDescription": f"Unix {kernel}" if kernel else None,
        "osVersion": kernel,
        "osPlatformArchitecture": _known(facts, PLATFORM),
        "cpuArchitecture": _known(facts, ARCHITECTURE),
        **_cpu(_known(facts, CPU_TOPOLOGY) or CpuTopology()),
        "memoryBytes": memory.total_bytes if memory else None,
        **_gpu_keys(facts),
        "cloudProvider": cloud.provider if cloud else None,
        "cloudVmSize": cloud.size if cloud else None,
        "cloudRegion": cloud.region if cloud else None,
        "parts": _parts(facts),
    }
    return _present(values)


def metadata_dependencies(facts: Facts) -> dict[str, Any]:
    """Return the versions of what the host has; VirtualClient names those that were asked for."""
    driver, gpus = _known(facts, DRIVER_VERSION), _known(facts, AMD_GPUS)
    return _present(
        {
            "gpuVendor": "NVIDIA" if driver else "AMD" if gpus else None,
            "gpuDriverVersion_nvidia": driver,
            "cudaVersion": _known(facts, CUDA_VERSION) if driver else None,
            "dockerVersion": _known(facts, DOCKER_SERVER_VERSION),
            "nvidiaContainerToolkitVersion": _known(facts, CONTAINER_TOOLKIT_VERSION),
        }
    )


def gpu_runtime(facts: Facts) -> list[dict[str, Any]]:
    """Return the settings of each NVIDIA GPU that may change from run to run: power, clocks, MIG, fabric."""
    names = {
        "power.limit": "powerLimitWatts", "clocks.sm": "smClockMHz", "clocks.mem": "memoryClockMHz",
        "clocks.max.sm": "maxSmClockMHz", "clocks.max.memory": "maxMemoryClockMHz",
        "mig.mode.current": "mig", "persistence_mode": "persistence", "ecc.mode.current": "ecc",
        "fabric.state": "fabricState", "fabric.status": "fabricStatus",
    }  # fmt: skip
    return [
        {"busId": gpu.bus_id}
        | {name: value for key, name in names.items() if (value := {**gpu.texts, **gpu.numbers}.get(key))}
        for gpu in _known(facts, GPU_SETTINGS) or ()
    ]


def _known(facts: Facts, fact: Fact[Any]) -> Any:
    """Return a fact's value; None if it cannot be read: the record counts all the same."""
    try:
        return facts[fact]
    except (VcagentError, KeyError, OSError, ValueError):
        return None


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", [])}


def _cpu(cpu: CpuTopology) -> dict[str, Any]:
    physical = cpu.sockets * cpu.cores_per_socket if cpu.sockets and cpu.cores_per_socket else None
    caches = dict(cpu.cache_bytes)
    if "L1d" in caches and "L1i" in caches:
        caches["L1"] = caches["L1d"] + caches["L1i"]
    return {
        "cpuSockets": cpu.sockets,
        "cpuPhysicalCores": physical,
        "cpuPhysicalCoresPerSocket": cpu.cores_per_socket,
        "cpuLogicalProcessors": cpu.logical,
        "cpuLogicalProcessorsPerCore": cpu.logical // physical if cpu.logical and physical else None,
        "numaNodes": cpu.numa_nodes,
        **{f"cpuCacheBytes_{name}": caches[name] for name in sorted(caches)},
        "cpuLastCacheBytes": caches[max(caches)] if caches else None,
    }


def _gpu_keys(facts: Facts) -> dict[str, Any]:
    """Return what a flat reader such as ``metrics.csv`` sees of the GPUs."""
    nvidia: tuple[Gpu, ...] = _known(facts, GPUS) or ()
    amd: tuple[AmdGpu, ...] = _known(facts, AMD_GPUS) or ()
    memories = [gpu.memory_mib and gpu.memory_mib * _MIB for gpu in nvidia]
    memories += [gpu.memory_bytes for gpu in amd]
    names = [gpu.name for gpu in nvidia] + [gpu.name for gpu in amd]
    if not memories:
        return {}
    return {
        "gpuCount": len(memories),
        "gpuName": names[0],
        "gpuMemoryBytes": memories[0],
        "gpuDriverVersion": _known(facts, DRIVER_VERSION) if nvidia else None,
        "gpuCudaVersion": _known(facts, CUDA_VERSION) if nvidia else None,
    }


def _parts(facts: Facts) -> list[dict[str, Any]]:
    cpu = _known(facts, CPU_TOPOLOGY)
    parts: list[dict[str, Any]] = []
    if cpu:
        parts.append(
            {
                "type": "CPU",
                "vendor": _VENDORS.get(cpu.vendor_id or ""),
                "description": cpu.model_name,
                "family": cpu.family,
                "stepping": cpu.stepping,
                "model": cpu.model,
            }
        )
    parts += [
        {
            "type": "Memory",
            "vendor": module.vendor,
            "description": module.kind,
            "bytes": module.size_bytes,
            "speed": module.speed_mt_s,
            "partNumber": module.part_number,
        }
        for module in _known(facts, MEMORY_MODULES) or ()
    ]
    parts += [
        {"type": "Network", "vendor": name.split()[0], "description": name}
        for name in _known(facts, NETWORK_CARDS) or ()
    ]
    parts += [
        {"type": "Disk", "description": disk.path, "bytes": disk.size_bytes}
        for disk in _known(facts, DISKS) or ()
        if disk.is_disk
    ]
    return [_present(part) for part in (*parts, *_gpu_parts(facts))]


def _gpu_parts(facts: Facts) -> list[dict[str, Any]]:
    settings = {gpu.bus_id: gpu for gpu in _known(facts, GPU_SETTINGS) or ()}
    parts: list[dict[str, Any]] = []
    for gpu in _known(facts, GPUS) or ():
        texts = settings[gpu.bus_id].texts if gpu.bus_id in settings else {}
        parts.append(
            {
                "type": "GPU",
                "vendor": "NVIDIA",
                "description": gpu.name,
                "busId": gpu.bus_id,
                "uuid": texts.get("uuid"),
                "bytes": gpu.memory_mib and gpu.memory_mib * _MIB,
                "driverVersion": gpu.driver,
                "vbiosVersion": texts.get("vbios_version"),
            }
        )
    parts += [
        {
            "type": "GPU",
            "vendor": "AMD",
            "description": gpu.name,
            "busId": gpu.bus_id,
            "bytes": gpu.memory_bytes,
            "computePartition": gpu.compute_partition,
            "memoryPartition": gpu.memory_partition,
        }
        for gpu in _known(facts, AMD_GPUS) or ()
    ]
    return parts
