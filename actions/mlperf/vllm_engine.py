"""vLLM in the harness's process: what a profile may ask of it, and the settings that follow for a host."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from actions.parameter_types import laid_over
from gpu_configs.gpu_model import gpu_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts.gpus import Gpu

__all__ = ["EngineSettings", "VllmParameters", "engine_settings", "smaller"]

_SCHEDULER = "harness.backends.vllm_scheduler.PhasedScheduler"
_PARALLEL = ("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size")
_WEIGHTS_SHARE = 0.6
"""The most of a GPU's memory that weights may take, so that answers have room."""
_BYTES_PER_PARAMETER = {"fp8": 1.0, "fp8_per_tensor": 1.0, "fp8_per_block": 1.0}
_BF16_BYTES = 2.0
_GIB = 1024**3
_SMALLER_SHARE = 0.05
_LEAST_SHARE = 0.5


class VllmParameters(BaseModel):
    """vLLM for the test's duration, in the harness's own process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(description="Folder of the model, or its name on Hugging Face's hub.")
    parameters_billion: float | None = Field(
        None, gt=0, description="Size of the model in 10⁹ parameters; tells how many GPUs it needs."
    )
    llm_config: dict[str, Any] = Field(
        default_factory=dict,
        description="vLLM's engine arguments by their own names, over the defaults; or a list of such, each "
        "over those before it. An empty text leaves the default, null is vLLM's own.",
    )
    sampling: dict[str, Any] = Field(
        default_factory=dict, description="vLLM's SamplingParams by their own names; greedy if absent."
    )
    phases: dict[str, float] | bool | None = Field(
        None,
        description="Settings of steps that hold either prompts or answers, or false for vLLM's own "
        "scheduler; what gpu_configs has for the GPU and scenario if absent.",
    )
    gpus: int | None = Field(None, ge=1, description="GPUs to use; all if absent.")
    environment: dict[str, str] = Field(default_factory=dict, description="Environment variables for vLLM.")

    @field_validator("llm_config", mode="before")
    @classmethod
    def _laid_over(cls, value: Any) -> Any:
        return laid_over(value)


@dataclass(frozen=True)
class EngineSettings:
    """What the harness's vLLM backend is given.

    Args:
        engine: vLLM's engine arguments.
        sampling: vLLM's sampling parameters.
        environment: environment variables.
        start_qps: a load to start from, in queries/s, where one is known.
        origin: where the settings come from, in words.
    """

    engine: Mapping[str, Any]
    sampling: Mapping[str, Any]
    environment: Mapping[str, str]
    start_qps: float | None = None
    origin: tuple[str, ...] = field(default_factory=tuple)


def engine_settings(
    asked: VllmParameters, *, model: str, scenario: str, gpus: tuple[Gpu, ...]
) -> EngineSettings:
    """The settings for a model and scenario on the GPUs of a host: what is known, under what is asked.

    Args:
        asked: what the profile says; it wins.
        model: the model's name in the records, such as ``llama3.1-8b``.
        scenario: one of the harness's scenarios.
        gpus: the host's GPUs; empty for a host without (vLLM for CPU).
    """
    count = asked.gpus or len(gpus)
    kind = gpu_model(gpus[0].name) if gpus else None
    known = kind.vllm.get(model) if kind else None
    own = known.scenarios.get(scenario) if known else None
    engine: dict[str, Any] = {**(known.engine if known else {}), **(own.engine if own else {})}
    origin = [f"gpu_configs has {model} on {kind.name}" if kind and known else "vLLM's own defaults"]
    engine.update(asked.llm_config)
    if count > 1 and not any(name in asked.llm_config for name in _PARALLEL):
        spread = _spread(asked, engine, count, kind.memory_gib if kind else None)
        engine.update(spread)
        origin.append(f"{count} GPUs: " + ", ".join(f"{name} {value}" for name, value in spread.items()))
    phases = (own.phases if own else None) if asked.phases is None else (asked.phases or None)
    if phases and phases is not True and "scheduler_cls" not in engine:
        more = engine.get("additional_config", {})
        engine |= {"scheduler_cls": _SCHEDULER, "additional_config": {**more, "phases": dict(phases)}}
        origin.append("prompts and answers in steps of their own")
    per_gpu = own.queries_per_s_per_gpu if own else None
    engines = int(engine.get("data_parallel_size", 1))
    return EngineSettings(
        engine=engine,
        sampling=asked.sampling,
        environment=asked.environment,
        start_qps=per_gpu * engines if per_gpu else None,
        origin=tuple(origin),
    )


def _spread(
    asked: VllmParameters, engine: Mapping[str, Any], gpus: int, memory_gib: int | None
) -> dict[str, int]:
    """One engine a GPU where the weights fit into one; else the fewest GPUs an engine that hold them.

    Args:
        asked: what the profile says, with the model's size.
        engine: the engine's arguments, with the weights' type.
        gpus: GPUs to use.
        memory_gib: memory of each; None where unknown.
    """
    shards = 1
    if asked.parameters_billion and memory_gib:
        each = _BYTES_PER_PARAMETER.get(str(engine.get("quantization")), _BF16_BYTES)
        needed = asked.parameters_billion * 1e9 * each / (memory_gib * _GIB * _WEIGHTS_SHARE)
        shards = min(2 ** max(0, math.ceil(math.log2(needed))), gpus)
    spread = {"tensor_parallel_size": shards, "data_parallel_size": gpus // shards}
    return {name: value for name, value in spread.items() if value > 1}


def smaller(engine: Mapping[str, Any], *, keep_share: bool = False) -> dict[str, Any]:
    """The engine's arguments with less memory, for the one retry after it ran out.

    Half the answers at once and half the tokens of a step need less for activations, and a smaller share of
    the GPU's memory leaves more to what vLLM does not count.

    Args:
        engine: vLLM's engine arguments.
        keep_share: whether vLLM's share of the memory stays, since the cache had no room in it.
    """
    less = {
        **engine,
        "max_num_seqs": max(1, int(engine.get("max_num_seqs", 256)) // 2),
        "max_num_batched_tokens": max(512, int(engine.get("max_num_batched_tokens", 8192)) // 2),
    }
    if not keep_share:
        share = float(engine.get("gpu_memory_utilization", 0.92))
        less["gpu_memory_utilization"] = round(max(_LEAST_SHARE, share - _SMALLER_SHARE), 2)
    return less
