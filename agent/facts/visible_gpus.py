"""The GPUs that CUDA leaves to a program: CUDA_VISIBLE_DEVICES of the agent, which its children inherit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Facts
from agent.facts.gpu_memory import GPU_MEMORY
from agent.facts.gpus import GPUS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.facts.gpu_memory import GpuMemory
    from agent.facts.gpus import Gpu

__all__ = ["VISIBLE_DEVICES", "visible_gpus", "visible_memory", "visible_places"]

VISIBLE_DEVICES: Fact[str | None] = Fact(
    "visible_devices", "CUDA_VISIBLE_DEVICES", lambda _host: os.environ.get("CUDA_VISIBLE_DEVICES")
)


def visible_places(text: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Which GPUs the variable names, in its order; all where it is not set.

    It has places in the driver's order (CUDA_DEVICE_ORDER=PCI_BUS_ID) or beginnings of UUIDs; the first word
    that is neither ends the list (CUDA C++ Programming Guide, "CUDA Environment Variables").

    Args:
        text: the variable.
        uuids: the GPUs' UUIDs in the driver's order; empty where unknown.
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


def visible_gpus(facts: Facts) -> tuple[Gpu, ...]:
    """The GPUs of a host that may be used; all of them where no driver answers yet."""
    gpus, asked = facts[GPUS], facts[VISIBLE_DEVICES]
    answering = [gpu for gpu in gpus if gpu.name is not None]
    if asked is None or not answering:
        return gpus
    memory = facts[GPU_MEMORY] if "GPU-" in asked else ()
    uuids = {gpu.index: gpu.uuid for gpu in memory}
    places = visible_places(asked, [uuids.get(place, "") for place in range(len(answering))])
    return tuple(answering[place] for place in places)


def visible_memory(facts: Facts) -> tuple[GpuMemory, ...]:
    """The memory of the GPUs that may be used."""
    memory = {gpu.index: gpu for gpu in facts[GPU_MEMORY]}
    uuids = [memory[place].uuid if place in memory else "" for place in range(max(memory, default=-1) + 1)]
    places = visible_places(facts[VISIBLE_DEVICES], uuids)
    return tuple(memory[place] for place in places if place in memory)
