"""Upper limit of a GPU's rate for a decoder-only model: a higher rate is a counting bug or a cache."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_configs.gpu_model import gpu_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts.gpus import Gpu

_BITS = {"bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4}
_UNKNOWN_BITS = min(_BITS.values())
"""The narrowest operands, for a model with unknown operands, so that a true result is never refused."""


@dataclass(frozen=True)
class Architecture:
    """Sizes of a Llama-like model, under the names of its configuration."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int

    @property
    def layer_parameters(self) -> int:
        """Number of weights that every token is multiplied with, in all layers."""
        heads = self.head_dim * (2 * self.num_attention_heads + 2 * self.num_key_value_heads)
        return self.num_hidden_layers * self.hidden_size * (heads + 3 * self.intermediate_size)


def most_samples_per_second(
    architecture: Architecture, *, input_tokens: float, output_tokens: float, peak_flops: float
) -> float:
    """Return the samples/s at the arithmetic limit: two operations per weight and token, plus attention.

    The bandwidth is ignored, because it limits less with many concurrent answers. The true limit is lower.

    Args:
        architecture: the model.
        input_tokens: mean tokens of a prompt.
        output_tokens: mean tokens of an answer.
        peak_flops: dense operations/s of all GPUs together, for the operands' type.
    """
    model = architecture
    tokens = input_tokens + output_tokens
    linear = 2 * model.layer_parameters * tokens
    head = 2 * model.hidden_size * model.vocab_size * output_tokens
    # Scores and weighted values: four operations for each pair of positions, half of them masked.
    attention = 2 * tokens**2 * model.num_attention_heads * model.head_dim * model.num_hidden_layers
    return peak_flops / (linear + head + attention)


def quantization_config(model: str) -> dict[str, Any]:
    """Return how a model's weights were quantised, from its ``config.json``; empty if it does not say.

    Args:
        model: the model's folder; the result is empty for any other name.
    """
    try:
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    found = config.get("quantization_config") if isinstance(config, dict) else None
    return found if isinstance(found, dict) else {}


def _operand_bits(quantization: str | None, config: Mapping[str, Any]) -> int:
    """Return the number of bits of the widest operand of the model's multiplications.

    Small weights alone are not conclusive: vLLM's kernels may make the activations as small
    (``VLLM_MARLIN_INPUT_DTYPE``).

    Args:
        quantization: vLLM's name for the quantisation; None for a model without one.
        config: ``quantization_config`` of the model: ``config_groups`` of compressed-tensors, ``quant_algo``
            of ModelOpt, ``quant_method``.
    """
    if not quantization:
        return _BITS["bf16"]
    if isinstance(groups := config.get("config_groups"), dict) and groups:
        try:
            return min(
                max(int(group[operand]["num_bits"]) for operand in ("weights", "input_activations"))
                for group in groups.values()
            )
        except (KeyError, TypeError, ValueError):
            return _UNKNOWN_BITS
    words = f"{quantization} {config.get('quant_method')} {config.get('quant_algo')}".lower()
    return _BITS["fp8"] if "fp8" in words and "fp4" not in words else _UNKNOWN_BITS


def gpus_used(engine: Mapping[str, Any]) -> int:
    """Return how many GPUs an engine uses, by what it says of its parallelism."""
    used = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        used *= int(engine.get(name, 1))
    return used


def limit_of(
    result: Mapping[str, Any], gpus: tuple[Gpu, ...], *, quantization: Mapping[str, Any] | None = None
) -> float | None:
    """Return the limit of a test in samples/s, or None if the GPU, the model or the tokens are unknown.

    Args:
        result: ``harness_result.json``, with the engine's model and parallelism.
        gpus: the host's GPUs.
        quantization: the model's own ``quantization_config``, if available.
    """
    engine, completed = result.get("engine") or {}, result.get("completed") or 0
    kind = gpu_model(gpus[0].name) if gpus else None
    sizes = {field.name: engine.get(field.name) for field in fields(Architecture)}
    inputs, outputs = result.get("input_tokens"), result.get("output_tokens")
    if kind is None or not completed or not inputs or not outputs or None in sizes.values():
        return None
    bits = _operand_bits(engine.get("quantization"), quantization or {})
    peak = max(flops for operand, flops in kind.peak_flops.items() if _BITS[operand] >= bits)
    return most_samples_per_second(
        Architecture(**{name: int(size) for name, size in sizes.items() if size is not None}),
        input_tokens=inputs / completed,
        output_tokens=outputs / completed,
        peak_flops=peak * min(gpus_used(engine), len(gpus)),
    )
