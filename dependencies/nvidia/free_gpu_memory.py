"""Frees the GPUs' memory: ends leftovers of vcagent's earlier runs, and no other process."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.component.parameter_types import Share, laid_over
from agent.core.counts import count_of
from agent.core.errors import HostError, LiftedBy
from agent.facts.gpu_memory import GPU_MEMORY_HOLDERS
from agent.facts.gpus import GPUS
from agent.facts.users import USER
from agent.facts.visible_gpus import VISIBLE_DEVICES, visible_gpus, visible_memory
from gpu_configs.gpu_model import gpu_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psutil

    from agent.component.downloads import Download
    from agent.facts import Facts
    from agent.facts.gpu_memory import GpuMemory, MemoryHolder
    from agent.facts.gpus import Gpu

FORCE_VARIABLE = "FORCE_FREE_GPU"
_OFF = frozenset({"", "0", "false", "no", "off"})
_GRACE_S = 10.0
_RELEASE_S = 30.0
"""Seconds that the driver may take to release the memory of a killed process."""
_GIB = 2**30
_VLLM_SHARE = 0.92
"""vLLM's default for gpu_memory_utilization (0.22, ``config/cache.py``)."""


class EngineMemory(BaseModel):
    """The engine arguments that concern memory; others are ignored."""

    model_config = ConfigDict(frozen=True)

    gpu_memory_utilization: Share | None = None


class FreeGpuMemoryParameters(ComponentParameters):
    """How much memory must be free, and which processes may be ended for it."""

    memory_share: Share | None = Field(
        None,
        description="Share of each GPU's memory that must be free, 0 to 1; by default vLLM's share.",
    )
    model: str = Field("", description="The model whose gpu_configs settings determine vLLM's share.")
    llm_config: EngineMemory = Field(
        EngineMemory(),
        description="vLLM's engine arguments: gpu_memory_utilization there overrides both.",
    )
    gpus: int | None = Field(None, ge=1, description="GPUs to check, from the first; by default all.")
    force: bool | None = Field(
        None,
        description="Whether to end leftovers of earlier runs of vcagent on the GPUs; the environment "
        f"variable {FORCE_VARIABLE} decides by default.",
    )

    @field_validator("force", "memory_share", mode="before")
    @classmethod
    def _absent_if_empty(cls, value: Any) -> Any:
        return None if value == "" else value

    @field_validator("llm_config", mode="before")
    @classmethod
    def _laid_over(cls, value: Any) -> Any:
        return laid_over(value)

    @property
    def may_end(self) -> bool:
        """True if leftover processes may be ended."""
        if self.force is not None:
            return self.force
        return os.environ.get(FORCE_VARIABLE, "").strip().lower() not in _OFF


class FreeGpuMemory(Dependency):
    """Ensures enough free memory on every GPU.

    Only a leftover is ended: a process of the agent's own user with the mark of a vcagent run whose agent is
    gone. If any other process holds the memory, it is named and the run is refused.
    """

    is_for_gpus = True
    lifts = frozenset({LiftedBy.SYSTEM})
    Parameters = FreeGpuMemoryParameters
    parameters: FreeGpuMemoryParameters

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Return nothing: it works with what the host has."""
        return ()

    def plan(self, facts: Facts) -> Plan:
        """End leftover processes, or say why that is not necessary.

        Raises:
            HostError: if there is no GPU, or other processes hold the memory.
        """
        memory = self._memory(facts)
        if not memory:
            seen = ", ".join(gpu.bus_id for gpu in facts[GPUS])
            raise HostError(
                f"no driver reports the GPUs' memory{f' ({seen} on the PCI bus)' if seen else ''}: "
                f"nvidia-smi --query-gpu gave none{_left_out(facts)}",
                remedy="install the driver (vcagent --profile SETUP-GPU-NVIDIA); "
                "if it is installed, see what nvidia-smi says",
                lifted_by=LiftedBy.DRIVER if facts[GPUS] else LiftedBy.NOTHING,
            )
        share = self.share(visible_gpus(facts))
        short = _short(memory, share)
        if not short:
            least = min(gpu.free_bytes / gpu.total_bytes for gpu in memory)
            return Plan(
                nothing_to_do=f"at least {least:.0%} of the memory of {count_of(len(memory), 'GPU')} is free"
            )
        uuids = {gpu.uuid for gpu in short}
        holders = [holder for holder in facts[GPU_MEMORY_HOLDERS] if uuids.intersection(holder.uuids)]
        own = facts[USER].name
        leftovers = [holder for holder in holders if holder.is_leftover and holder.user == own]
        others = [holder for holder in holders if holder not in leftovers]
        wanted = ", ".join(
            f"GPU {gpu.index} has {gpu.free_bytes / _GIB:.1f} of {gpu.total_bytes / _GIB:.1f} GiB free"
            for gpu in short
        )
        problem = f"{wanted}; {share:.0%} is needed"
        if not leftovers or not self.parameters.may_end or _too_much(short, others, share):
            raise self._refusal(problem, leftovers, others)
        step = Step(
            "end-leftovers",
            f"{problem}; an earlier run of vcagent left {'; '.join(map(str, leftovers))}",
            lambda context: self._end(context, leftovers, share),
            f"kill {' '.join(str(holder.pid) for holder in leftovers)}",
            lambda fresh: not _short(self._memory(fresh), share),
        )
        return Plan((step,))

    def _memory(self, facts: Facts) -> tuple[GpuMemory, ...]:
        """Return the memory of the GPUs that will be used."""
        return visible_memory(facts, self.parameters.gpus)

    def share(self, gpus: tuple[Gpu, ...]) -> float:
        """Return the share of each GPU's memory that vLLM will use: the last setting, or its default."""
        asked = self.parameters
        kind = gpu_model(gpus[0].name) if gpus else None
        known = kind.vllm.get(asked.model) if kind else None
        shares = (
            asked.llm_config.gpu_memory_utilization,
            asked.memory_share,
            known.engine.get("gpu_memory_utilization") if known else None,
        )
        return float(next((share for share in shares if share), _VLLM_SHARE))

    def _refusal(
        self, problem: str, leftovers: Sequence[MemoryHolder], others: Sequence[MemoryHolder]
    ) -> HostError:
        remedies = []
        if leftovers and not self.parameters.may_end:
            remedies.append(f"{FORCE_VARIABLE}=1 ends what earlier runs of vcagent left")
        if others:
            remedies.append("end the others' processes, or wait for them: vcagent never does")
        if not (leftovers or others):
            remedies.append(
                "no process is seen that holds it: look in other containers and for nvidia-smi's own word; a "
                "GPU that stays full with nothing on it needs a reset"
            )
        remedies.append("a lower memoryShare, or gpu_memory_utilization in llmConfig, takes what is free")
        return HostError(
            problem,
            remedy="; ".join(remedies),
            details=(
                *(f"left by an earlier run: {holder}" for holder in leftovers),
                *(f"not ours: {holder}" for holder in others),
            ),
        )

    def _end(self, context: StepContext, leftovers: Sequence[MemoryHolder], share: float) -> StepOutcome:
        from agent.host.processes.tree import RUN_VARIABLE, end_all, processes_carrying

        runs = {holder.run_id for holder in leftovers}
        pids = {holder.pid for holder in leftovers}
        # Read the list again: a process id may belong to another process now.
        ours: list[psutil.Process] = [
            process
            for run in runs
            for process in processes_carrying(RUN_VARIABLE, run)
            if process.pid in pids
        ]
        context.progress.update(f"ending {len(ours)} process{'es' if len(ours) > 1 else ''}")
        end_all(ours, _GRACE_S)
        deadline = time.monotonic() + _RELEASE_S
        while _short(self._memory(context.facts.fresh()), share) and time.monotonic() < deadline:
            if context.stop.wait(0.5):
                break
        return StepOutcome(
            f"ended {', '.join(str(process.pid) for process in ours) or 'nothing: it is gone'}"
        )


def _short(memory: tuple[GpuMemory, ...], share: float) -> list[GpuMemory]:
    return [gpu for gpu in memory if gpu.free_bytes < share * gpu.total_bytes]


def _too_much(short: Sequence[GpuMemory], others: Sequence[MemoryHolder], share: float) -> bool:
    """Return True if other processes hold so much of a GPU that ending leftovers would not help."""
    return any(
        sum(holder.bytes_held or 0 for holder in others if holder.uuids == (gpu.uuid,))
        > (1 - share) * gpu.total_bytes
        for gpu in short
    )


def _left_out(facts: Facts) -> str:
    asked = facts[VISIBLE_DEVICES]
    return "" if asked is None else f" of CUDA_VISIBLE_DEVICES={asked}"
