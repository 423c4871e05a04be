#!/usr/bin/env python3
"""Runs vLLM alone on a sample set's prompts: all at once, 16 at a time, profiled; for llama_on_gpu.py."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from kernel_profile import summary

OUTPUT_TOKENS = 128
CHUNK = 16
PROFILED = 1440
"""Prompts to profile: enough to fill the engine one and a half times."""


def main(request: dict[str, Any]) -> None:
    """Load the engine, and measure."""
    from harness.dataset import read_dataset
    from vllm import LLM, SamplingParams

    prompts = [{"prompt_token_ids": list(sample.tokens)} for sample in read_dataset(Path(request["samples"]))]
    began = time.monotonic()
    engine = dict(request["engine"])
    if request["profile"]:
        engine["profiler_config"] = {
            "profiler": "torch",
            "torch_profiler_dir": request["profile"],
            "torch_profiler_with_stack": False,
        }
    llm = LLM(**engine, disable_log_stats=True)
    load_s = time.monotonic() - began
    sampling = SamplingParams(max_tokens=OUTPUT_TOKENS, ignore_eos=True, temperature=0, detokenize=False)
    generate(llm, prompts[:64], sampling)  # one-time work
    span = {"began_unix_s": time.time()}
    rate = generate(llm, prompts, sampling)
    span["ended_unix_s"] = (
        time.time()
    )  # to find the GPU's state at that time in a separate log of its power and clocks
    found = {"tokens_per_s": rate, "samples": len(prompts), "load_s": round(load_s, 1), **span}
    write(request, "bare", found)
    few = prompts[: request["reference_samples"]]
    if few:
        began = time.monotonic()
        for start in range(0, len(few), CHUNK):
            generate(llm, few[start : start + CHUNK], sampling)
        rate = len(few) * OUTPUT_TOKENS / (time.monotonic() - began)
        write(request, "reference", {"tokens_per_s": round(rate, 1), "samples": len(few), "chunk": CHUNK})
    if request["profile"]:
        llm.start_profile()
        generate(llm, prompts[:PROFILED], sampling)
        llm.stop_profile()
        traces = sorted(Path(request["profile"]).glob("*rank*"), key=lambda path: path.stat().st_size)
        write(request, "profile", {"samples": PROFILED, **summary(traces[-1])})
    llm.llm_engine.engine_core.shutdown()
    sys.stdout.flush()
    os._exit(0)  # vLLM's own threads may not end


def generate(llm: Any, prompts: list[dict[str, list[int]]], sampling: Any) -> float:
    """Return the tokens/s of a call."""
    began = time.monotonic()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    took_s = time.monotonic() - began
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    assert tokens == len(prompts) * OUTPUT_TOKENS
    return round(tokens / took_s, 1)


def write(request: dict[str, Any], name: str, found: dict[str, Any]) -> None:
    """Write a result."""
    (Path(request["output"]) / f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
