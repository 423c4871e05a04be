"""The most that a GPU could do for a decoder-only model: a rate above it is a counting bug or a cache."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gpu_configs.gpu_model import gpu_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts.gpus import Gpu

__all__ = ["Architecture", "limit_of", "most_samples_per_second"]


@dataclass(frozen=True)
class Architecture:
    """A Llama-like model's sizes, by the names of its configuration."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int

    @property
    def layer_parameters(self) -> int:
        """Weights that every token is multiplied with, in all layers."""
        heads = self.head_dim * (2 * self.num_attention_heads + 2 * self.num_key_value_heads)
        return self.num_hidden_layers * self.hidden_size * (heads + 3 * self.intermediate_size)


def most_samples_per_second(
    architecture: Architecture, *, input_tokens: float, output_tokens: float, peak_flops: float
) -> float:
    """Samples/s at the arithmetic limit: two operations a weight and token, and attention over the past.

    The bandwidth is left out: with many answers at once it limits less. So the true limit is below this one.

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
    # Scores and weighted values: four operations a pair of positions, half of them masked.
    attention = 2 * tokens**2 * model.num_attention_heads * model.head_dim * model.num_hidden_layers
    return peak_flops / (linear + head + attention)


def limit_of(result: Mapping[str, Any], gpus: tuple[Gpu, ...]) -> float | None:
    """The limit of a test in samples/s; None where the GPU, the model or the tokens are not known.

    Args:
        result: ``harness_result.json``, with what the engine says of its model and its parallelism.
        gpus: the host's GPUs.
    """
    engine, completed = result.get("engine") or {}, result.get("completed") or 0
    kind = gpu_model(gpus[0].name) if gpus else None
    sizes = {field.name: engine.get(field.name) for field in fields(Architecture)}
    inputs, outputs = result.get("input_tokens"), result.get("output_tokens")
    if kind is None or not completed or not inputs or not outputs or None in sizes.values():
        return None
    used = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        used *= int(engine.get(name, 1))
    is_fp8 = "fp8" in str(engine.get("quantization", ""))
    peak = max(kind.peak_flops.values()) if is_fp8 else kind.peak_flops.get("bf16", 0.0)
    return most_samples_per_second(
        Architecture(**{name: int(size) for name, size in sizes.items() if size is not None}),
        input_tokens=inputs / completed,
        output_tokens=outputs / completed,
        peak_flops=peak * min(used, len(gpus)),
    )
