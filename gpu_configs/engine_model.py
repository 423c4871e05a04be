"""Derives vLLM settings for an unmeasured GPU: from its memory, bandwidth, arithmetic rate and power.

The constants were fitted to measurements on one H100 SXM and one H200 (benchmarks/results). Settings measured
on a kind of GPU are in its file and take precedence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_GIB = 1 << 30
_PARAMETERS = 8.03e9
_KV_VALUES_PER_TOKEN = 2 * 32 * 8 * 128
"""Size of keys and values: 32 layers, 8 heads of 128 (Llama 3.1 8B)."""
_MEAN_INPUT, _OUTPUT = 870, 128
"""Tokens of one query of llama3.1-8b's data set."""
_ACTIVATIONS_GIB = 6
"""Memory for everything but the cache and the weights at their nominal width.

vLLM gives the cache what its share of the memory leaves beside the weights, the peak of the activations of
one step, and the CUDA graphs (``Worker.determine_available_memory``, vllm/v1/worker/gpu_worker.py). The
caches that it reported on an H100 and an H200 (benchmarks/results) leave for activations and graphs at most
4.5 GiB with steps of 16,384 tokens, 3.1 GiB with 8,192, and 2.2 GiB with 2,048; 4,096 are taken as 2.5 GiB.
Embeddings and output layer stay in 16 bits, which is 1.0 GiB more than fp8. Cards of "24 GB" report down to
22.5 GiB, which makes their share 1.4 GiB less. Of the 6 GiB, 0.5 remain on an H200 and 1.1 on such a card.
Its cache then holds 1.25 times the queries of Offline.
"""
_MOST_SEQUENCES = 1536
"""More gave no improvement on an H200."""
_FEWEST_SERVER_SEQUENCES = 48
_DEFAULT_CAPTURE = 512
"""vLLM captures CUDA graphs for this many sequences by default."""
_SHARE_OF_PEAK = {"fp8": 0.525, "bf16": 0.75, "fp16": 0.75}
_SHARE_OF_BANDWIDTH = 0.85
_JOULES_PER_QUERY = {8: 25.0, 9: 12.5, 10: 8.3}
"""By major compute capability; only 9 is measured."""
_FAST = 1e15
"""Operations/s from which steps of 16,384 tokens are faster."""
_HOPPER = 9
_LEAST_CAPABILITY = 7.5
"""vLLM's first engine ran on Volta (7.0); the present one does not."""
_SMALL_GIB = 24
_SMALL_LENGTH = 4096
"""Tokens of a request on a small GPU, whose cache does not hold the model's 131,072."""
_WEIGHT_ONLY_FP8 = 8.0
"""Compute capability from which vLLM's Marlin kernels read fp8 weights for 16-bit arithmetic.

They run on 7.5 too, but FlashAttention, which such a GPU needs for a 16-bit cache, begins at 8.0.
"""
_FP8_CACHE = 8.9
"""Compute capability from which Triton, and so TRITON_ATTN, can read an fp8 cache."""
_WIDTHS = {"fp8": 1, "bf16": 2, "fp16": 2}
"""Bytes of a value."""


def reads_fp8_cache(compute_capability: str | None) -> bool:
    """Return False if vLLM's attention kernels, other than FlashInfer's, cannot read an fp8 cache.

    FlashAttention reads one only on Hopper, and Triton has no fp8 type before 8.9 ("fp8e4nv data type is not
    supported on CUDA arch < 89").

    Args:
        compute_capability: of an NVIDIA GPU; None for others.
    """
    return compute_capability is None or float(compute_capability) >= _FP8_CACHE


def derived_settings(gpu: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a kind of GPU, by model, in the form of a file in ``gpus``.

    The result is empty for a GPU that cannot hold the weights and one full batch, or that vLLM does not
    support.

    Args:
        gpu: fields of a GpuModel.
    """
    rates = gpu["peak_flops"]
    operands = next(kind for kind in ("fp8", "bf16", "fp16") if kind in rates)
    capability = gpu.get("compute_capability")
    major = int(float(capability)) if capability is not None else None
    share = 0.94 if gpu["memory_gib"] >= 64 else 0.92  # noqa: PLR2004
    is_small = gpu["memory_gib"] <= _SMALL_GIB
    weights = "fp8" if is_small and _has_weight_only_fp8(capability) else operands
    if _room(gpu["memory_gib"] * share, weights) <= 0 or (
        capability is not None and float(capability) < _LEAST_CAPABILITY
    ):
        return {}
    offline = _sequences(gpu["memory_gib"] * share, weights, operands)
    server = max(_FEWEST_SERVER_SEQUENCES, _floor(min(768, 0.8 * offline), 64))
    interactive = max(16, _floor(_kv_scale(operands) * 40 * gpu["memory_bandwidth_bytes_per_s"] / 1e12, 16))
    tokens = _step_tokens(rates[operands], gpu["memory_gib"])
    rate = _queries_per_s(gpu, weights, operands, major, offline)
    is_hopper = major == _HOPPER
    engine: dict[str, Any] = {"kv_cache_dtype": "fp8" if operands == "fp8" else "auto"}
    if weights == "fp8":
        engine["quantization"] = "fp8"
    if operands == "fp8" and major is not None and not is_hopper:
        # FlashAttention reads an fp8 cache only on Hopper; FlashInfer, vLLM's next choice, needs nvcc.
        engine["attention_backend"] = "TRITON_ATTN"
    if operands == "fp16":
        engine["dtype"] = "half"
    if is_small:
        engine["max_model_len"] = _SMALL_LENGTH
    engine["gpu_memory_utilization"] = share
    scenarios = {
        "Offline": _scenario(offline, tokens, rate, nvidia=major is not None),
        "Server": _scenario(server, tokens // 2, 0.92 * rate, nvidia=major is not None),
        "Interactive": _scenario(
            interactive, 2048 if rates[operands] >= _FAST else 1024, 0.65 * rate, nvidia=major is not None
        ),
        "SingleStream": {"engine": {"max_num_seqs": 8, "max_num_batched_tokens": 4096}},
    }
    if is_hopper:
        scenarios["Offline"]["phases"] = {"free_share": 0.5}
        scenarios["Server"]["phases"] = {
            "waiting_tokens": 8192, "longest_wait_s": 0.2, "decode_steps": 2, "prefill_steps": 1
        }  # fmt: skip
    settings: dict[str, Any] = {"engine": engine, "scenarios": scenarios}
    if is_hopper and operands == "fp8":
        settings["static_fp8"] = {"linear_backend": "torch"}
    return {"llama3.1-8b": settings}


def merged(derived: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the derived settings, with measured ones in their place, key by key; phases are one setting."""
    found: dict[str, Any] = dict(derived)
    for name, value in measured.items():
        old = found.get(name)
        if isinstance(old, dict) and isinstance(value, dict) and name != "phases":
            found[name] = merged(old, value)
        else:
            found[name] = value
    return found


def _scenario(sequences: int, tokens: int, rate: float, *, nvidia: bool) -> dict[str, Any]:
    engine = {"max_num_seqs": sequences, "max_num_batched_tokens": tokens}
    if nvidia and sequences > _DEFAULT_CAPTURE:
        engine["max_cudagraph_capture_size"] = sequences
    return {"engine": engine, "queries_per_s_per_gpu": float(round(rate))}


def _has_weight_only_fp8(capability: str | None) -> bool:
    return capability is not None and float(capability) >= _WEIGHT_ONLY_FP8


def _sequences(usable_gib: float, weights: str, cache: str) -> int:
    """Return the number of queries of mean length that fit into the cache beside the weights."""
    fit = _room(usable_gib, weights) / (_KV_VALUES_PER_TOKEN * _WIDTHS[cache] * (_MEAN_INPUT + _OUTPUT))
    return max(64, _floor(min(fit, _MOST_SEQUENCES), 64))


def _room(usable_gib: float, weights: str) -> float:
    """Return the bytes that are left for the cache."""
    return (usable_gib - _ACTIVATIONS_GIB) * _GIB - _PARAMETERS * _WIDTHS[weights]


def _step_tokens(rate: float, memory_gib: int) -> int:
    if rate >= _FAST:
        return 16384
    return 8192 if memory_gib >= 48 else 4096  # noqa: PLR2004


def _queries_per_s(
    gpu: Mapping[str, Any], weights: str, operands: str, major: int | None, sequences: int
) -> float:
    """Return Offline's rate: arithmetic time plus memory time, limited by the power."""
    operations = 2 * _PARAMETERS * (_MEAN_INPUT + _OUTPUT)
    cache_bytes = _OUTPUT * (_MEAN_INPUT + _OUTPUT / 2) * _KV_VALUES_PER_TOKEN * _WIDTHS[operands]
    weight_bytes = _OUTPUT * _PARAMETERS * _WIDTHS[weights] / sequences
    seconds = operations / (_SHARE_OF_PEAK[operands] * gpu["peak_flops"][operands])
    seconds += (cache_bytes + weight_bytes) / (_SHARE_OF_BANDWIDTH * gpu["memory_bandwidth_bytes_per_s"])
    joules = _JOULES_PER_QUERY.get(major) if major is not None else None
    return float(min(1 / seconds, gpu["power_w"] / joules) if joules else 1 / seconds)


def _kv_scale(operands: str) -> float:
    return 1.0 if operands == "fp8" else 0.5


def _floor(number: float, multiple: int) -> int:
    return int(number // multiple * multiple)
