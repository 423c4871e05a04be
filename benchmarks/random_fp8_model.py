#!/usr/bin/env python3
"""Creates random weights quantised to fp8, like published fp8 models; called by llama_on_gpu.py.

vLLM's ``load_format: dummy`` works for bf16 weights, which are quantised as they load. For fp8 ones it draws
numbers below the smallest that fp8 has: nearly all are 0, and multiplying zeros takes less power, so that a
GPU at its power limit would be measured too fast. Here weights are normal with a standard deviation of 0.02,
which with RMSNorm gives activations of the size that a trained model has, and static scales fit them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DEVIATION = 0.02
FP8_MAX = 448.0
"""Largest value of float8_e4m3fn."""
LARGEST_INPUT = {"qkv": 6.0, "o": 8.0, "gate_up": 6.0, "down": 40.0}
"""Largest input of a layer's products with such weights: more than 6 deviations of a normal number."""


def main(config: dict[str, Any], folder: Path) -> None:
    """Write the model: config.json and one file per layer."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    quantization = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}
    torch.manual_seed(1)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head

    def random(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * DEVIATION

    def linear(name: str, rows: int, columns: int, largest: float) -> dict[str, torch.Tensor]:
        weight = random(rows, columns)
        scale = weight.abs().max().float() / FP8_MAX
        return {
            f"{name}.weight": (weight.float() / scale).to(torch.float8_e4m3fn).cpu(),
            f"{name}.weight_scale": scale.cpu(),
            f"{name}.input_scale": torch.tensor(largest / FP8_MAX),
        }

    files: dict[str, str] = {}

    def save(number: int, tensors: dict[str, torch.Tensor]) -> None:
        name = f"model-{number:05d}.safetensors"
        save_file(tensors, folder / name)
        files.update(dict.fromkeys(tensors, name))

    ones = torch.ones(hidden, dtype=torch.bfloat16)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        tensors = {
            f"{at}.input_layernorm.weight": ones,
            f"{at}.post_attention_layernorm.weight": ones.clone(),
        }
        tensors |= linear(f"{at}.self_attn.q_proj", queries, hidden, LARGEST_INPUT["qkv"])
        tensors |= linear(f"{at}.self_attn.k_proj", keys, hidden, LARGEST_INPUT["qkv"])
        tensors |= linear(f"{at}.self_attn.v_proj", keys, hidden, LARGEST_INPUT["qkv"])
        tensors |= linear(f"{at}.self_attn.o_proj", hidden, queries, LARGEST_INPUT["o"])
        tensors |= linear(f"{at}.mlp.gate_proj", inner, hidden, LARGEST_INPUT["gate_up"])
        tensors |= linear(f"{at}.mlp.up_proj", inner, hidden, LARGEST_INPUT["gate_up"])
        tensors |= linear(f"{at}.mlp.down_proj", hidden, inner, LARGEST_INPUT["down"])
        save(layer, tensors)
    vocabulary = config["vocab_size"]
    save(
        config["num_hidden_layers"],
        {
            "model.embed_tokens.weight": torch.randn(vocabulary, hidden, device="cuda").bfloat16().cpu(),
            "model.norm.weight": ones,
            "lm_head.weight": random(vocabulary, hidden).cpu(),
        },
    )
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    # Last: a folder with it is complete.
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
