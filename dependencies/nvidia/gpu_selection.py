"""Selects GPUs that a benchmark supports, and reports their settings in ``gpu_configs``."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan
from agent.component.parameter_types import laid_over
from agent.core.counts import count_of
from agent.core.errors import HostError, LiftedBy
from agent.facts.amd_gpus import AMD_GPUS
from agent.facts.gpus import GPUS
from agent.facts.known_gpus import gpu_name_of
from agent.facts.visible_gpus import (
    HIP_VISIBLE_DEVICES,
    VISIBLE_DEVICES,
    visible_amd_gpus,
    visible_gpus,
)
from dependencies.nvidia.cuda_versions import driver_key
from gpu_configs.gpu_model import GpuModel, gpu_model, gpu_models
from gpu_configs.vllm_engine import SERVER_SCENARIOS, VllmParameters, engine_settings

if TYPE_CHECKING:
    from agent.component.downloads import Download
    from agent.facts import Facts
    from agent.facts.gpus import Gpu


_SHOWN_KINDS = 6
"""Names of GPUs that a refusal lists."""


class GpuSelectionParameters(ComponentParameters):
    """The intended use of the GPUs."""

    vendor: Literal["nvidia", "amd"] = Field("nvidia", description="Whose GPUs are used.")
    model: str = Field(description="The model to run, such as llama3.1-8b.")
    parameters_billion: float | None = Field(
        None, gt=0, description="Its size in 10⁹ parameters; determines how many GPUs an engine needs."
    )
    scenarios: tuple[Literal["Offline", "Server", "Interactive", "SingleStream"], ...] = Field(
        ("Offline", "Server"), description="The scenarios whose settings are shown."
    )
    llm_config: dict[str, Any] = Field(
        default_factory=dict, description="vLLM engine arguments that override the defaults."
    )
    phases: dict[str, float] | bool | None = Field(
        None,
        description="As in the test: separate steps for prompts and answers; those of gpu_configs if absent.",
    )
    gpus: int | None = Field(None, ge=1, description="Number of GPUs to use, from the first; by default all.")
    minimum_driver: str = Field(
        "",
        pattern=r"^(\d+(\.\d+)*)?$",
        description="The oldest driver that runs the engine's build; if empty, any or none.",
    )
    allow_unknown: bool = Field(
        default=False,
        description="Whether to accept unknown GPUs, with vLLM's own defaults.",
    )

    @field_validator("llm_config", mode="before")
    @classmethod
    def _laid_over(cls, value: Any) -> Any:
        return laid_over(value)


class GpuSelection(Dependency):
    """Changes nothing: refuses a host without known GPUs, otherwise reports their settings."""

    is_for_gpus = True
    lifts = frozenset()
    Parameters = GpuSelectionParameters
    parameters: GpuSelectionParameters

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Return nothing: it works with what the host has."""
        return ()

    def plan(self, facts: Facts) -> Plan:
        """Return a plan without steps, which reports the selection.

        Raises:
            HostError: if no GPU is found, or none that ``gpu_configs`` has for the model; the message names
                the supported ones.
        """
        asked = self.parameters
        kinds = [kind for kind in gpu_models() if kind.settings_for(asked.model)]
        wanted = _wanted(asked.model, kinds)
        gpus = _amd_gpus(facts, wanted) if asked.vendor == "amd" else _nvidia_gpus(facts, wanted)
        if asked.gpus and asked.gpus > len(gpus):
            raise HostError(
                f"{asked.gpus} GPUs are asked for, and there are {len(gpus)}",
                remedy="lower gpus; CUDA_VISIBLE_DEVICES, or HIP_VISIBLE_DEVICES, may leave some out",
                lifted_by=LiftedBy.NOTHING,
            )
        if asked.vendor == "amd":
            gpus = gpus[: asked.gpus]
        else:
            gpus = visible_gpus(facts, asked.gpus)
            self._require_driver(gpus)
        # Without a driver, the PCI bus identifies the common models.
        gpus = tuple(replace(gpu, name=gpu.name or gpu_name_of(gpu.pci_id)) for gpu in gpus)
        unnamed = [gpu.bus_id for gpu in gpus if gpu.name is None]
        if unnamed:
            return Plan(
                nothing_to_do=f"{len(gpus)} GPUs on the PCI bus; which they are the driver will tell "
                f"({', '.join(unnamed)} have none yet)"
            )
        count = Counter(gpu.name for gpu in gpus)
        if len(count) > 1:
            found = ", ".join(f"{number} x {name}" for name, number in count.items())
            raise HostError(
                f"the GPUs are of several kinds: {found}; an engine's settings are for one",
                remedy="choose those of one kind: the variable CUDA_VISIBLE_DEVICES, or the parameter gpus",
                lifted_by=LiftedBy.NOTHING,
            )
        if any(gpu.mig for gpu in gpus):
            raise HostError(
                f"{', '.join(gpu.bus_id for gpu in gpus if gpu.mig)} has MIG on: an instance has a part of "
                "the memory and processors that settings are for",
                remedy="switch it off (nvidia-smi -mig 0), or leave that GPU out by CUDA_VISIBLE_DEVICES",
                lifted_by=LiftedBy.SYSTEM,
            )
        kind = gpu_model(gpus[0].name)
        if (kind is None or not kind.settings_for(asked.model)) and not asked.allow_unknown:
            raise HostError(
                f"gpu_configs has nothing for {asked.model} on {gpus[0].name}; {wanted}",
                remedy="add a file to gpu_configs/gpus (docs/extending.md), or take vLLM's own defaults with "
                "allowUnknown",
                lifted_by=LiftedBy.NOTHING,
            )
        return Plan(nothing_to_do=self._picked(gpus))

    def _require_driver(self, gpus: tuple[Gpu, ...]) -> None:
        """Refuse, before anything is fetched, a driver that the engine's build does not run with."""
        minimum = self.parameters.minimum_driver
        if not minimum:
            return
        for gpu in gpus:
            if gpu.driver is None or driver_key(gpu.driver) < driver_key(minimum):
                raise HostError(
                    f"the engine needs NVIDIA's driver {minimum} or newer, and {gpu.bus_id} "
                    + (f"has {gpu.driver}" if gpu.driver else "has none that answers"),
                    remedy="install one: --profile SETUP-GPU-NVIDIA; for an engine built for an older CUDA "
                    "give its environment and minimumDriver",
                    lifted_by=LiftedBy.DRIVER,
                )

    def _picked(self, gpus: tuple[Gpu, ...]) -> str:
        asked = self.parameters
        lines = []
        for scenario in asked.scenarios:
            settings = engine_settings(
                VllmParameters(
                    model=asked.model,
                    parameters_billion=asked.parameters_billion,
                    llm_config=asked.llm_config,
                    phases=asked.phases,
                ),
                model=asked.model,
                scenario=scenario,
                gpus=gpus,
            )
            shown = ", ".join(
                f"{name} {value}" for name, value in settings.engine.items() if not isinstance(value, dict)
            )
            expected = f"; about {settings.start_qps:g} queries/s expected" if settings.start_qps else ""
            if expected and scenario in SERVER_SCENARIOS:
                expected += ", where target_qps auto begins"
            lines.append(f"{scenario}: {'; '.join(settings.origin)}: {shown}{expected}")
        return f"{len(gpus)} x {gpus[0].name}. " + ". ".join(lines)


def _nvidia_gpus(facts: Facts, wanted: str) -> tuple[Gpu, ...]:
    """Return the NVIDIA GPUs that may be used.

    Raises:
        HostError: if there are none.
    """
    gpus = visible_gpus(facts)
    if not gpus and facts[GPUS]:
        raise HostError(
            f"CUDA_VISIBLE_DEVICES={facts[VISIBLE_DEVICES]} leaves none of "
            f"{count_of(len(facts[GPUS]), 'GPU')}",
            remedy="name them by their places (0,1) or UUIDs as nvidia-smi -L has them; instances (MIG) "
            "cannot be used",
            lifted_by=LiftedBy.DRIVER,
        )
    if not gpus:
        raise HostError(
            "this host has no GPU: neither an NVIDIA display controller on the PCI bus (vendor 0x10de in "
            f"/sys/bus/pci/devices) nor one that nvidia-smi lists; {wanted}",
            remedy="run it on a GPU host; on a CPU: --profile PERF-CPU-MLPERF, or Form=tiny of "
            "PERF-GPU-MLPERF-LLAMA3",
            lifted_by=LiftedBy.NOTHING,
        )
    return gpus


def _amd_gpus(facts: Facts, wanted: str) -> tuple[Gpu, ...]:
    """Return the AMD GPUs that may be used.

    Raises:
        HostError: if there are none, another driver has them, or they are divided into partitions.
    """
    gpus, on_bus = visible_amd_gpus(facts), facts[AMD_GPUS]
    if not on_bus:
        also = "; it has NVIDIA's: choose the vendor nvidia" if facts[GPUS] else ""
        raise HostError(
            "this host has no AMD GPU: no display controller or accelerator on the PCI bus (vendor 0x1002 "
            f"in /sys/bus/pci/devices); {wanted}",
            remedy=f"run it on a host with AMD Instinct GPUs{also}",
            lifted_by=LiftedBy.NOTHING,
        )
    if not gpus:
        named = facts[HIP_VISIBLE_DEVICES]
        variable = "CUDA_VISIBLE_DEVICES" if named is None else "HIP_VISIBLE_DEVICES"
        named = facts[VISIBLE_DEVICES] if named is None else named
        raise HostError(
            f"{variable}={named} leaves none of {count_of(len(on_bus), 'GPU')}",
            remedy="name them by their places, such as 0,1",
            lifted_by=LiftedBy.NOTHING,
        )
    used = {gpu.bus_id for gpu in gpus}
    for gpu in on_bus:
        if gpu.bus_id in used and gpu.driver not in (None, "amdgpu"):
            raise HostError(
                f"{gpu.bus_id} is held by {gpu.driver}, which passes it to virtual machines; an engine needs "
                "amdgpu",
                remedy="run it in the virtual machine that has the GPU, or give the GPU back to amdgpu",
                lifted_by=LiftedBy.NOTHING,
            )
        if gpu.bus_id in used and (gpu.partitions or 1) > 1:
            raise HostError(
                f"{gpu.bus_id} is divided into {gpu.partitions} partitions "
                f"({gpu.compute_partition or 'of an unknown kind'}): one has a part of the memory that "
                "settings are for",
                remedy="make it one again: amd-smi set --gpu all --compute-partition SPX",
                lifted_by=LiftedBy.SYSTEM,
            )
    return gpus


def _wanted(model: str, kinds: list[GpuModel]) -> str:
    names = [kind.name for kind in kinds]
    more = f" or {len(names) - _SHOWN_KINDS} others" if len(names) > _SHOWN_KINDS else ""
    shown = ", ".join(names[:_SHOWN_KINDS])
    return f"looked for one of {shown}{more}, for which gpu_configs/gpus has settings of {model}"
