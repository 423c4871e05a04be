"""Analyses where a GPU's time went, from a trace of PyTorch's profiler."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["summary"]

KINDS = {
    "key-value cache written": r"reshape_and_cache",
    "elementwise, norms, quantisation": r"triton_|elementwise|rms_norm|silu|quant",
    "attention": r"flash|attention|fmha",
    "matrix products": r"nvjet|gemm|cutlass|cublas|scaled_mm",
    "sampling": r"argmax|reduce_kernel|softmax|topk|sampl",
    "copies": r"memcpy|memset|copy",
}
"""The first expression that matches a kernel's name determines its kind."""
GAP_US = 100
TOP = 12


def summary(trace: Path) -> dict[str, Any]:
    """Return each kind of kernel's share, the longest kernels, and the GPU's idle time between kernels."""
    with gzip.open(trace) if trace.suffix == ".gz" else trace.open("rb") as file:
        events = json.load(file)["traceEvents"]
    kernels = sorted(
        (event["ts"], event["dur"], event["name"])
        for event in events
        if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}
    )
    each: dict[str, list[float]] = defaultdict(list)
    gaps, free_at = [], kernels[0][0]
    for start, took, name in kernels:
        each[name].append(took)
        gaps.append(max(0.0, start - free_at))
        free_at = max(free_at, start + took)
    kinds: dict[str, float] = defaultdict(float)
    for name, times in each.items():
        kinds[kind_of(name)] += sum(times)
    span, busy = free_at - kernels[0][0], sum(kinds.values())
    longest = sorted(each.items(), key=lambda item: -sum(item[1]))[:TOP]
    return {
        "span_s": round(span / 1e6, 3),
        "idle_share": round(sum(gaps) / span, 4),
        "gaps_over_100_us": sum(gap > GAP_US for gap in gaps),
        "share_of_kernel_time": {
            name: round(took / busy, 4) for name, took in sorted(kinds.items(), key=lambda item: -item[1])
        },
        "longest_kernels": [
            {
                "name": name[:110],
                "share": round(sum(times) / busy, 4),
                "calls": len(times),
                "mean_us": round(sum(times) / len(times), 1),
            }
            for name, times in longest
        ],
    }


def kind_of(name: str) -> str:
    """Return the kind of a kernel, by its name."""
    return next((kind for kind, words in KINDS.items() if re.search(words, name, re.IGNORECASE)), "other")
