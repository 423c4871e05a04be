"""A stand-in for vLLM, for tests of the harness's own parts.

It has the names that the harness uses, answers each prompt with the numbers 1, 2, 3 …, prints its arguments,
and behaves as ``STAND_IN`` says: ``no memory`` fails at the start, ``dies`` ends at its third request,
``loses GPU 3`` also ends there and removes that GPU from the stand-in for NVML, ``sick`` fails its health
check, ``slow`` takes time to load.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["AsyncEngineArgs", "AsyncLLMEngine", "SamplingParams"]

__version__ = "0.22.1"
_LAST_REQUEST = 3
_LLAMA_8B = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
}  # fmt: skip


@dataclass
class AsyncEngineArgs:
    """Some of the engine's arguments, with vLLM's default values."""

    model: str = "Qwen/Qwen3-0.6B"
    load_format: str = "dummy"
    quantization: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float = 0.92
    enable_prefix_caching: bool | None = None
    disable_log_stats: bool = False
    stream_interval: int = 1
    skip_tokenizer_init: bool = False
    data_parallel_size: int = 1

    def __post_init__(self) -> None:
        """Reject arguments that vLLM rejects."""
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(f"gpu_memory_utilization: {self.gpu_memory_utilization} is not within 0 to 1")


class SamplingParams:
    """Some of the sampling parameters."""

    __struct_fields__ = (
        "n", "temperature", "top_p", "min_tokens", "ignore_eos", "max_tokens", "detokenize", "output_kind"
    )  # fmt: skip

    def __init__(self, **values: Any) -> None:
        self.max_tokens: int = values["max_tokens"]
        self.output_kind: RequestOutputKind = values["output_kind"]
        if values.get("top_p", 1) > 1:
            raise ValueError(f"top_p must be in (0, 1], got {values['top_p']}.")


class _Tokenizer:
    """Treats each word as a token."""

    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        del skip_special_tokens
        return " ".join(map(str, tokens))


class AsyncLLMEngine:
    """Answers at once, with the first token alone if outputs are deltas."""

    def __init__(self, arguments: AsyncEngineArgs) -> None:
        self.renderer = SimpleNamespace(tokenizer=None if arguments.skip_tokenizer_init else _Tokenizer())
        self.vllm_config = _config(arguments)
        self._requests = 0

    @classmethod
    def from_engine_args(cls, arguments: AsyncEngineArgs) -> AsyncLLMEngine:
        """Start the engine."""
        shown = {name: os.environ.get(name) for name in ("VLLM_USE_FLASHINFER_SAMPLER", "CUDA_DEVICE_ORDER")}
        # Like vLLM's processes, which have the descriptor and not the harness's stream.
        os.write(1, json.dumps({"arguments": asdict(arguments), **shown}).encode() + b"\n")
        if os.environ.get("STAND_IN") == "no memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if os.environ.get("STAND_IN") == "slow":
            os.write(
                1, b"(Worker pid=9) INFO 11-28 14:36:05 [loader.py:397] Loading weights took 0.13 seconds\n"
            )
            time.sleep(1.5)
        return cls(arguments)

    async def generate(
        self, prompt: dict[str, list[int]], params: SamplingParams, request_id: str
    ) -> AsyncIterator[Any]:
        """Answer one prompt."""
        del request_id
        self._requests += 1
        if os.environ.get("STAND_IN") == "dies" and self._requests >= _LAST_REQUEST:
            os.write(1, b"(Worker pid=9) RuntimeError: CUDA error: an illegal memory access\n")
            raise RuntimeError("EngineCore encountered an issue. See stack trace (above).")
        if os.environ.get("STAND_IN") == "loses GPU 3" and self._requests >= _LAST_REQUEST:
            _lose_gpu(3)
            os.write(1, b"(Worker pid=9) RuntimeError: CUDA error: unspecified launch failure\n")
            raise RuntimeError("EngineCore encountered an issue. See stack trace (above).")
        tokens = list(range(1, params.max_tokens + 1))
        parts = [tokens[:1], tokens[1:]] if params.output_kind is RequestOutputKind.DELTA else [tokens]
        for part in parts:
            await asyncio.sleep(0.002)
            yield SimpleNamespace(
                outputs=[SimpleNamespace(token_ids=part)],
                num_cached_tokens=0,
                prompt_token_ids=prompt["prompt_token_ids"],
            )

    async def check_health(self) -> None:
        """Raise an error if the engine is dead."""
        if os.environ.get("STAND_IN") == "sick":
            raise RuntimeError("EngineCore encountered an issue. See stack trace (above).")

    async def reset_prefix_cache(self) -> bool:
        """Forget earlier prompts."""
        os.write(1, b"INFO 11-28 14:36:05 [block_pool.py:397] Successfully reset prefix cache\n")
        return True

    def shutdown(self) -> None:
        """Stop the engine."""


def _lose_gpu(index: int) -> None:
    with Path(os.environ["FAKE_NVML_STATE"]).open("a") as state:
        state.write(f"lost {index}\n")


def _config(arguments: AsyncEngineArgs) -> SimpleNamespace:
    return SimpleNamespace(
        model_config=SimpleNamespace(
            dtype="torch.bfloat16",
            quantization=arguments.quantization,
            max_model_len=arguments.max_model_len or 131072,
            hf_text_config=SimpleNamespace(**_LLAMA_8B),
        ),
        load_config=SimpleNamespace(load_format=arguments.load_format),
        cache_config=SimpleNamespace(
            cache_dtype="auto",
            gpu_memory_utilization=arguments.gpu_memory_utilization,
            num_gpu_blocks=1000,
            block_size=16,
            enable_prefix_caching=arguments.enable_prefix_caching,
        ),
        scheduler_config=SimpleNamespace(
            max_num_seqs=arguments.max_num_seqs or 256, max_num_batched_tokens=8192, async_scheduling=True
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=arguments.data_parallel_size
        ),
    )
