"""The GPUs that CUDA_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES leave to the agent and its children."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent.facts.amd_gpus import AMD_GPUS
from agent.facts.base import Fact, Facts
from agent.facts.gpu_memory import GPU_MEMORY
from agent.facts.gpus import GPUS, Gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.facts.gpu_memory import GpuMemory

_GIB = 2**30
_MIB = 2**20

VISIBLE_DEVICES: Fact[str | None] = Fact(
    "visible_devices", "CUDA_VISIBLE_DEVICES", lambda _host: os.environ.get("CUDA_VISIBLE_DEVICES")
)

HIP_VISIBLE_DEVICES: Fact[str | None] = Fact(
    "hip_visible_devices", "HIP_VISIBLE_DEVICES", lambda _host: os.environ.get("HIP_VISIBLE_DEVICES")
)


def visible_places(text: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Return the GPUs that the variable names, in its order; all if it is not set.

    The variable contains indices in the driver's order (CUDA_DEVICE_ORDER=PCI_BUS_ID) or beginnings of UUIDs;
    the first word that is neither ends the list (CUDA C++ Programming Guide, "CUDA Environment Variables").

    Args:
        text: the variable.
        uuids: the GPUs' UUIDs in the driver's order; empty if unknown.
    """
    if text is None:
        return tuple(range(len(uuids)))
    places = []
    for word in map(str.strip, text.split(",")):
        named = [
            place
            for place, uuid in enumerate(uuids)
            if word == str(place) or (word.startswith("GPU-") and uuid.startswith(word))
        ]
        if len(named) != 1:
            break
        places.append(named[0])
    return tuple(places)


def visible_gpus(facts: Facts, count: int | None = None) -> tuple[Gpu, ...]:
    """Return the GPUs of a host that may be used; all of them if no driver answers yet.

    Args:
        facts: the host.
        count: number of GPUs to use: those with the most free memory; None for all.
    """
    gpus, asked = facts[GPUS], facts[VISIBLE_DEVICES]
    answering = [gpu for gpu in gpus if gpu.name is not None]
    if not answering:
        return gpus[:count]
    memory = facts[GPU_MEMORY] if asked and "GPU-" in asked else ()
    uuids = {gpu.index: gpu.uuid for gpu in memory}
    places = visible_places(asked, [uuids.get(place, "") for place in range(len(answering))])
    found = gpus if asked is None else tuple(answering[place] for place in places)
    if count is None or count >= len(found):
        return found
    chosen = _freest(visible_memory(facts), count)
    by_index = [answering[gpu.index] for gpu in chosen if gpu.index < len(answering)]
    return tuple(by_index) if len(by_index) == count else found[:count]


def usable_gpus(facts: Facts, count: int | None = None) -> tuple[Gpu, ...]:
    """Return the GPUs of a host that an engine may use: NVIDIA's, or AMD's if there are none of NVIDIA.

    Args:
        facts: the host.
        count: number of GPUs to use; None for all.
    """
    return visible_gpus(facts, count) if facts[GPUS] else visible_amd_gpus(facts)[:count]


def visible_amd_gpus(facts: Facts) -> tuple[Gpu, ...]:
    """Return the AMD GPUs that may be used, in the order of the PCI bus; their driver is amdgpu.

    HIP reads HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES (HIP, "Environment variables").
    """
    found = facts[AMD_GPUS]
    return tuple(
        Gpu(
            found[place].bus_id,
            pci_id=found[place].pci_id,
            name=found[place].name,
            memory_mib=memory // _MIB if (memory := found[place].memory_bytes) else None,
            driver=found[place].driver,
        )
        for place in _amd_places(facts)
    )


def _amd_places(facts: Facts) -> tuple[int, ...]:
    if not facts[AMD_GPUS]:
        return ()
    asked = facts[HIP_VISIBLE_DEVICES]
    asked = facts[VISIBLE_DEVICES] if asked is None else asked
    return visible_places(asked, [""] * len(facts[AMD_GPUS]))


def chosen_variables(facts: Facts, count: int | None) -> dict[str, str]:
    """Return the variables for a program that uses ``count`` GPUs; none if it uses all visible ones.

    vLLM refuses two variables that differ on AMD's GPUs (vllm/platforms/rocm.py).
    """
    if facts[GPUS] or not facts[AMD_GPUS]:
        devices = chosen_devices(facts, count)
        return {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    places = _amd_places(facts)
    if count is None or count >= len(places):
        return {}
    devices = ",".join(map(str, places[:count]))
    return {"CUDA_VISIBLE_DEVICES": devices, "HIP_VISIBLE_DEVICES": devices}


def visible_memory(facts: Facts, count: int | None = None) -> tuple[GpuMemory, ...]:
    """Return the memory of the GPUs that may be used; with ``count``, only of those with the most free."""
    memory = {gpu.index: gpu for gpu in facts[GPU_MEMORY]}
    uuids = [memory[place].uuid if place in memory else "" for place in range(max(memory, default=-1) + 1)]
    places = visible_places(facts[VISIBLE_DEVICES], uuids)
    return _freest(tuple(memory[place] for place in places if place in memory), count)


def chosen_devices(facts: Facts, count: int | None) -> str | None:
    """Return the value of CUDA_VISIBLE_DEVICES for a program that uses ``count`` GPUs.

    Indices are in the driver's order (CUDA_DEVICE_ORDER=PCI_BUS_ID). Returns None if all visible GPUs are
    used or if no driver reports their memory.
    """
    if count is None or count >= len(visible_gpus(facts)):
        return None
    chosen = visible_memory(facts, count)
    return ",".join(str(gpu.index) for gpu in chosen) if len(chosen) == count else None


def _freest(memory: tuple[GpuMemory, ...], count: int | None) -> tuple[GpuMemory, ...]:
    """Return the GPUs with the most free memory, in order; a difference below one GiB does not count."""
    if count is None or count >= len(memory):
        return memory
    order = sorted(range(len(memory)), key=lambda place: (-(memory[place].free_bytes // _GIB), place))
    return tuple(memory[place] for place in sorted(order[:count]))
