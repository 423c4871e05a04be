"""vLLM in the harness's process: the parameters of a profile, and the settings for a host."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agent.component.parameter_types import laid_over
from agent.core.errors import HostError, LiftedBy
from gpu_configs.engine_model import reads_fp8_cache
from gpu_configs.gpu_model import gpu_model
from gpu_configs.roofline import quantization_config
from gpu_configs.vllm_steps import fitting_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts.gpus import Gpu
    from gpu_configs.gpu_model import GpuModel

SERVER_SCENARIOS = ("Server", "Interactive")
"""Scenarios in which queries arrive at a rate."""

_SCHEDULER = "harness.backends.vllm_scheduler.PhasedScheduler"
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
_ARGUMENTS = Path(__file__).with_name("vllm_arguments.txt")
"""The fields of EngineArgs and AsyncEngineArgs of vLLM 0.22.1 (vllm/engine/arg_utils.py)."""
_ANY_CACHE = "FLASHINFER"
"""The attention backend that reads an fp8 cache on older GPUs too; nvcc compiles it on the host."""
_BACKEND_VARIABLE = "VLLM_ATTENTION_BACKEND"
"""Older versions of vLLM read it; 0.22.1 has the argument ``attention_backend`` in its place."""
_HARNESS_DEFAULT = "max_model_len"
"""An argument for which the harness has a default; leaving it out does not select vLLM's own default."""
_WEIGHTS_SHARE = 0.6
"""The largest share of a GPU's memory for weights, so that answers have room."""
_BYTES_PER_PARAMETER = {"fp8": 1.0, "fp8_per_tensor": 1.0, "fp8_per_block": 1.0}
_BF16_BYTES = 2.0
_QUANTIZED_BYTES = 1.0
"""A parameter of quantised weights is not larger than this."""
_MIB, _GIB = 1024**2, 1024**3
_SMALLER_SHARE = 0.05
_LEAST_SHARE = 0.5


class VllmParameters(BaseModel):
    """vLLM for the test's duration, in the harness's own process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(description="Folder of the model, or its name on Hugging Face's hub.")
    parameters_billion: float | None = Field(
        None, gt=0, description="Size of the model in 10⁹ parameters; determines how many GPUs it needs."
    )
    llm_config: dict[str, Any] = Field(
        default_factory=dict,
        description="vLLM's engine arguments by their own names, over the defaults; or a list of them, each "
        "overriding those before it. An empty text keeps the default, null selects vLLM's own.",
    )
    sampling: dict[str, Any] = Field(
        default_factory=dict, description="vLLM's SamplingParams by their own names; greedy if absent."
    )
    phases: dict[str, float] | bool | None = Field(
        None,
        description="Settings of separate steps for prompts and answers, or false for vLLM's own "
        "scheduler. If absent, the settings of gpu_configs for the GPU and scenario.",
    )
    gpus: int | None = Field(None, ge=1, description="GPUs to use; all if absent.")
    environment: dict[str, str] = Field(default_factory=dict, description="Environment variables for vLLM.")

    @field_validator("llm_config", mode="before")
    @classmethod
    def _laid_over(cls, value: Any) -> Any:
        return laid_over(value)

    @field_validator("environment")
    @classmethod
    def _gpus_are_chosen_for_all(cls, value: dict[str, str]) -> dict[str, str]:
        for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
            if name in value:
                raise ValueError(
                    f"{name} chooses GPUs for the whole run: set it in the environment of vcagent"
                )
        return value


@dataclass(frozen=True)
class EngineSettings:
    """Settings for the harness's vLLM backend.

    Args:
        engine: vLLM's engine arguments.
        sampling: vLLM's sampling parameters.
        environment: environment variables.
        start_qps: an initial load in queries/s, if known.
        origin: a readable source of the settings.
    """

    engine: Mapping[str, Any]
    sampling: Mapping[str, Any]
    environment: Mapping[str, str]
    start_qps: float | None = None
    origin: tuple[str, ...] = field(default_factory=tuple)


def engine_settings(
    asked: VllmParameters, *, model: str, scenario: str, gpus: tuple[Gpu, ...]
) -> EngineSettings:
    """Return the settings for a model and scenario on a host's GPUs; the profile's settings take precedence.

    Args:
        asked: the profile's settings, which take precedence.
        model: the model's name in the records, such as ``llama3.1-8b``.
        scenario: one of the harness's scenarios.
        gpus: the host's GPUs; empty for a host without GPUs (vLLM for CPU).

    Raises:
        HostError: if the GPU cannot read the cache that the profile asks for, or if the profile's step
            is too short for its other arguments.
    """
    count = asked.gpus or len(gpus)
    kind = gpu_model(gpus[0].name) if gpus else None
    known = kind.settings_for(model) if kind else None
    own = known.scenarios.get(scenario) if known else None
    engine: dict[str, Any] = {**(known.engine if known else {}), **(own.engine if own else {})}
    origin = [f"gpu_configs has {model} on {kind.name}" if kind and known else "vLLM's own defaults"]
    quantized = quantization_config(asked.model)
    if known and quantized:
        # vLLM refuses a method that differs from that of the weights.
        engine.pop("quantization", None)
        engine |= known.static_fp8 if _is_static_fp8(quantized) else {}
        origin.append(
            f"the weights are quantised already ({quantized.get('quant_method', 'by an unknown method')})"
        )
    engine.update(asked.llm_config)
    origin += _choose_attention(engine, asked)
    engine = fitting_steps(engine, asked.llm_config)
    _require_readable_cache(engine, kind)
    origin += _strangers(asked.llm_config)
    if count > 1:
        weights = _bytes_of_weights(asked, engine, comes_quantized=bool(quantized))
        spread = _spread(engine, count, weights, _memory_bytes(gpus, kind))
        engine.update({name: value for name, value in spread.items() if value > 1})
        origin.append(_spread_in_words(spread, count))
    engine = {name: value for name, value in engine.items() if value is not None or name == _HARNESS_DEFAULT}
    if extension := engine.get("worker_extension_cls"):
        # vLLM finds its compiled graphs by its arguments, but its key lacks this argument.
        more = engine.get("additional_config") or {}
        engine["additional_config"] = {**more, "worker_extension_cls": extension}
    phases = (own.phases if own else None) if asked.phases is None else (asked.phases or None)
    if phases and phases is not True and "scheduler_cls" not in engine:
        more = engine.get("additional_config") or {}
        engine |= {"scheduler_cls": _SCHEDULER, "additional_config": {**more, "phases": dict(phases)}}
        origin.append("separate steps for prompts and answers")
    variables = known.environment if known else {}
    origin += [f"{name}={value}" for name, value in variables.items() if name not in asked.environment]
    per_gpu = own.queries_per_s_per_gpu if own else None
    engines = int(engine.get("data_parallel_size", 1))
    return EngineSettings(
        engine=engine,
        sampling=asked.sampling,
        environment={**variables, **asked.environment},
        start_qps=per_gpu * engines if per_gpu else None,
        origin=tuple(origin),
    )


def _require_readable_cache(engine: Mapping[str, Any], kind: GpuModel | None) -> None:
    cache = str(engine.get("kv_cache_dtype"))
    if (
        kind is None
        or not cache.startswith("fp8")
        or reads_fp8_cache(kind.compute_capability)
        or _attention_backend(engine) == _ANY_CACHE
    ):
        return
    raise HostError(
        f"kv_cache_dtype {cache} needs a GPU of compute capability 8.9 or newer, and {kind.name} has "
        f"{kind.compute_capability}",
        remedy="leave kv_cache_dtype out (the cache is then in 16 bits, and quantization: fp8 makes room for "
        "it), or, where nvcc is installed, add attention_backend: FLASHINFER",
        lifted_by=LiftedBy.NOTHING,
    )


def _choose_attention(engine: dict[str, Any], asked: VllmParameters) -> list[str]:
    """Let the profile's attention backend replace a derived one, whichever way the profile names it.

    vLLM refuses the argument ``attention_backend`` beside ``attention_config`` with a backend.
    """
    if "attention_backend" in asked.llm_config:
        return []
    if (asked.llm_config.get("attention_config") or {}).get("backend"):
        engine.pop("attention_backend", None)
    elif backend := asked.environment.get(_BACKEND_VARIABLE):
        engine["attention_backend"] = backend
        return [f"attention_backend {backend}: vLLM 0.22.1 does not read {_BACKEND_VARIABLE}"]
    return []


def _attention_backend(engine: Mapping[str, Any]) -> str:
    """Return the name of the attention backend in capitals; empty if vLLM chooses.

    vLLM takes it from either of two arguments, in any case (vllm/config/attention.py).
    """
    named = engine.get("attention_backend") or (engine.get("attention_config") or {}).get("backend")
    return str(named or "").upper()


def _is_static_fp8(config: Mapping[str, Any]) -> bool:
    """Return True if weights and activations are fp8, with one scale per tensor that is known beforehand.

    Args:
        config: ``quantization_config`` of vLLM's fp8, of ModelOpt, or of compressed-tensors.
    """
    if groups := config.get("config_groups"):
        try:
            operands = [group[name] for group in groups.values() for name in ("weights", "input_activations")]
            kinds = {
                (one["type"], one["num_bits"], one["strategy"], bool(one["dynamic"])) for one in operands
            }
        except (AttributeError, KeyError, TypeError):
            return False
        return kinds == {("float", 8, "tensor", False)}
    if config.get("quant_method") == "modelopt":
        return config.get("quant_algo") == "FP8"
    is_static = config.get("activation_scheme") == "static" and not config.get("weight_block_size")
    return is_static and config.get("quant_method") == "fp8"


def _bytes_of_weights(asked: VllmParameters, engine: Mapping[str, Any], *, comes_quantized: bool) -> float:
    """Return the size of the whole model in bytes; 0 if unknown."""
    each = (
        _QUANTIZED_BYTES
        if comes_quantized
        else _BYTES_PER_PARAMETER.get(str(engine.get("quantization")), _BF16_BYTES)
    )
    return (asked.parameters_billion or 0) * 1e9 * each


def _memory_bytes(gpus: tuple[Gpu, ...], kind: GpuModel | None) -> float:
    """Return the memory of each GPU in bytes, from the driver or else ``gpu_configs``; 0 if unknown."""
    told = gpus[0].memory_mib if gpus else None
    return told * _MIB if told else kind.memory_gib * _GIB if kind else 0


def _spread(engine: Mapping[str, Any], count: int, weights: float, memory: float) -> dict[str, int]:
    """Return the fewest GPUs per engine that hold the weights, and engines for the rest; given values stay.

    The number of GPUs per engine is a power of two, which divides the number of attention heads of a model.

    Args:
        engine: the engine's arguments so far; given values are kept, and None is vLLM's own default: 1.
        count: GPUs to use.
        weights: bytes of the model's weights; 0 where unknown.
        memory: bytes of a GPU's memory; 0 where unknown.
    """
    given = {name: int(engine[name] or 1) for name in _PARALLEL if name in engine}
    stages = given.get("pipeline_parallel_size", 1)
    shards = given.get("tensor_parallel_size")
    if shards is None:
        needed = weights / (memory * _WEIGHTS_SHARE * stages) if memory else 1.0
        most = count // (stages * given.get("data_parallel_size", 1))
        shards = min(1 << math.ceil(_log2(needed)), 1 << math.floor(_log2(most)))
    engines = given.get("data_parallel_size", max(1, count // (shards * stages)))
    return {
        "tensor_parallel_size": shards, "pipeline_parallel_size": stages, "data_parallel_size": engines
    }  # fmt: skip


def _log2(number: float) -> float:
    return math.log2(max(1.0, number))


def _spread_in_words(spread: Mapping[str, int], count: int) -> str:
    used = math.prod(spread.values())
    chosen = ", ".join(f"{name} {value}" for name, value in spread.items() if value > 1) or "one is used"
    idle = f"; {count - used} of them left idle" if used < count else ""
    return f"{count} GPUs: {chosen}{idle}"


@cache
def _known_arguments() -> tuple[str, ...]:
    return tuple(_ARGUMENTS.read_text(encoding="utf-8").split())


def _strangers(asked: Mapping[str, Any]) -> list[str]:
    """Return a note on names that the pinned vLLM does not have; another version may, so vLLM decides."""
    words = []
    for name in asked:
        if name not in _known_arguments():
            near = get_close_matches(name, _known_arguments(), n=1)
            words.append(f"vLLM 0.22.1 has no {name}" + (f": did you mean {near[0]}?" if near else ""))
    return words


def smaller(engine: Mapping[str, Any], *, keep_share: bool = False) -> dict[str, Any]:
    """Return the engine's arguments with less memory, for the one retry after memory ran out.

    Half the concurrent answers and half the tokens of a step need less memory for activations. A smaller
    share of the GPU's memory leaves more for allocations that vLLM does not count.

    Args:
        engine: vLLM's engine arguments.
        keep_share: True to keep vLLM's share of the memory, because the cache had no room in it.
    """
    less = {
        **engine,
        "max_num_seqs": max(1, int(engine.get("max_num_seqs", 256)) // 2),
        "max_num_batched_tokens": max(512, int(engine.get("max_num_batched_tokens", 8192)) // 2),
    }
    if not keep_share:
        share = float(engine.get("gpu_memory_utilization", 0.92))
        less["gpu_memory_utilization"] = round(max(_LEAST_SHARE, share - _SMALLER_SHARE), 2)
    return fitting_steps(less, {})
