"""Has the GPUs' memory free: ends what an earlier run of ours left on them, and nothing else."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from actions.parameter_types import Share  # noqa: TC001 - pydantic reads it
from agent.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.errors import HostError
from agent.facts.gpu_memory import GPU_MEMORY, GPU_MEMORY_HOLDERS
from agent.facts.gpus import GPUS
from agent.facts.users import USER

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psutil

    from agent.facts import Facts
    from agent.facts.gpu_memory import GpuMemory, MemoryHolder

__all__ = ["FORCE_VARIABLE", "FreeGpuMemory", "FreeGpuMemoryParameters"]

FORCE_VARIABLE = "FORCE_FREE_GPU"
_OFF = frozenset({"", "0", "false", "no", "off"})
_GRACE_S = 10.0
_RELEASE_S = 30.0
"""The driver takes a moment to give back what a killed process had."""
_GIB = 2**30


class FreeGpuMemoryParameters(ComponentParameters):
    """How much must be free, and what may be done for it."""

    memory_share: Share = Field(0.9, description="Share of each GPU's memory that must be free, 0 to 1.")
    force: bool | None = Field(
        None,
        description="Whether to end what an earlier run of vcagent left on the GPUs; the environment "
        f"variable {FORCE_VARIABLE} decides if absent.",
    )

    @field_validator("force", mode="before")
    @classmethod
    def _absent_if_empty(cls, value: Any) -> Any:
        return None if value == "" else value

    @property
    def may_end(self) -> bool:
        """Whether leftovers may be ended."""
        if self.force is not None:
            return self.force
        return os.environ.get(FORCE_VARIABLE, "").strip().lower() not in _OFF


class FreeGpuMemory(Dependency):
    """Has enough free memory on every GPU.

    Only a leftover is ended: a process with the mark of one of vcagent's runs whose agent is gone, of the
    agent's own user. Whatever else holds the memory is named, and the run refused.
    """

    Parameters = FreeGpuMemoryParameters
    parameters: FreeGpuMemoryParameters

    def plan(self, facts: Facts) -> Plan:
        """End what is ours to end, or say why nothing need be.

        Raises:
            HostError: if there is no GPU, or others hold the memory.
        """
        memory = facts[GPU_MEMORY]
        if not memory:
            seen = ", ".join(gpu.bus_id for gpu in facts[GPUS])
            raise HostError(
                f"no driver tells of the GPUs' memory{f' ({seen} on the PCI bus)' if seen else ''}: "
                "nvidia-smi --query-gpu gave none",
                remedy="install the driver (NvidiaCudaInstallation), or see vcagent doctor",
            )
        short = self._short(memory)
        if not short:
            least = min(gpu.free_bytes / gpu.total_bytes for gpu in memory)
            return Plan(nothing_to_do=f"at least {least:.0%} of each of {len(memory)} GPUs' memory is free")
        uuids = {gpu.uuid for gpu in short}
        holders = [holder for holder in facts[GPU_MEMORY_HOLDERS] if uuids.intersection(holder.uuids)]
        own = facts[USER].name
        leftovers = [holder for holder in holders if holder.is_leftover and holder.user == own]
        others = [holder for holder in holders if holder not in leftovers]
        wanted = ", ".join(
            f"GPU {gpu.index} has {gpu.free_bytes / _GIB:.1f} of {gpu.total_bytes / _GIB:.1f} GiB free"
            for gpu in short
        )
        problem = f"{wanted}; {self.parameters.memory_share:.0%} is needed"
        if not leftovers or not self.parameters.may_end or self._too_much(short, others):
            raise self._refusal(problem, leftovers, others)
        step = Step(
            "end-leftovers",
            f"{problem}; an earlier run of vcagent left {'; '.join(map(str, leftovers))}",
            lambda context: self._end(context, leftovers),
            f"kill {' '.join(str(holder.pid) for holder in leftovers)}",
            lambda fresh: not self._short(fresh[GPU_MEMORY]),
        )
        return Plan((step,))

    def _short(self, memory: tuple[GpuMemory, ...]) -> list[GpuMemory]:
        return [gpu for gpu in memory if gpu.free_bytes < self.parameters.memory_share * gpu.total_bytes]

    def _too_much(self, short: Sequence[GpuMemory], others: Sequence[MemoryHolder]) -> bool:
        """Whether others alone hold so much of a GPU that ending leftovers would be for nothing."""
        return any(
            sum(holder.bytes_held or 0 for holder in others if holder.uuids == (gpu.uuid,))
            > (1 - self.parameters.memory_share) * gpu.total_bytes
            for gpu in short
        )

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
        remedies.append("a lower memoryShare (and gpu_memory_utilization) takes what is free")
        return HostError(
            problem,
            remedy="; ".join(remedies),
            details=(
                *(f"left by an earlier run: {holder}" for holder in leftovers),
                *(f"not ours: {holder}" for holder in others),
            ),
        )

    def _end(self, context: StepContext, leftovers: Sequence[MemoryHolder]) -> StepOutcome:
        from agent.processes.tree import RUN_VARIABLE, end_all, processes_carrying

        runs = {holder.run_id for holder in leftovers}
        pids = {holder.pid for holder in leftovers}
        # Read once more: a number may belong to another process by now.
        ours: list[psutil.Process] = [
            process
            for run in runs
            for process in processes_carrying(RUN_VARIABLE, run)
            if process.pid in pids
        ]
        context.progress.update(f"ending {len(ours)} processes")
        end_all(ours, _GRACE_S)
        deadline = time.monotonic() + _RELEASE_S
        while self._short(context.facts.fresh()[GPU_MEMORY]) and time.monotonic() < deadline:
            if context.stop.wait(0.5):
                break
        return StepOutcome(
            f"ended {', '.join(str(process.pid) for process in ours) or 'nothing: it is gone'}"
        )
