"""Names of settings in other guides and scripts, with their equivalents in vcagent."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from agent.core.names import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GUIDE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        # Guides to MLPerf's Llama 3.1 on vLLM.
        "SMOKE": "Form=smoke",
        "SMOKE_TEST": "Form=smoke",
        "SMOKE_SAMPLES": "Samples",
        "FULL_RUN": "Form=full",
        "NUM_SAMPLES": "Samples",
        "TOTAL_SAMPLE_COUNT": "Samples",
        "RUN_PERF_SERVER": "ServerPerformance",
        "RUN_SERVER_PERF": "ServerPerformance",
        "RUN_PERF_OFFLINE": "OfflinePerformance",
        "RUN_OFFLINE_PERF": "OfflinePerformance",
        "RUN_PERF_INTERACTIVE": "InteractivePerformance",
        "RUN_ACC_SERVER": "ServerAccuracy",
        "RUN_ACC_OFFLINE": "OfflineAccuracy",
        "RUN_ACC_INTERACTIVE": "InteractiveAccuracy",
        "RUN_ACCURACY_SERVER": "ServerAccuracy",
        "RUN_ACCURACY_OFFLINE": "OfflineAccuracy",
        "RUN_MMLU": "Mmlu",
        "MMLU_LIMIT": "MmluLimit",
        "MMLU_TASKS": "MmluTasks",
        "MMLU_FEWSHOT": "MmluFewShot",
        "NUM_FEWSHOT": "MmluFewShot",
        "MODEL_ID": "Repository",
        "MODEL_NAME": "Repository",
        "HF_MODEL": "Repository",
        "LAB_MODEL": "Repository, or ModelPath for a folder",
        "MODEL_DIR": "ModelPath",
        "CHECKPOINT_PATH": "ModelPath",
        "MODEL_REVISION": "Revision",
        "DATASET_PATH": "DataSource",
        "KV_CACHE_DTYPE": "LlmConfig={kv_cache_dtype: fp8}",
        "MAX_LEN_USER": "MaxModelLength",
        "MAX_LEN": "MaxModelLength",
        "MAX_MODEL_LEN": "MaxModelLength",
        "MAX_NUM_SEQS": "MaxSequences",
        "MAX_NUM_BATCHED_TOKENS": "LlmConfig={max_num_batched_tokens: 8192}",
        "GPU_MEMORY_UTILIZATION": "MemoryShare",
        "GPU_MEM_UTIL": "MemoryShare",
        "TENSOR_PARALLEL_SIZE": "LlmConfig={tensor_parallel_size: 2}",
        "DTYPE": "LlmConfig={dtype: bfloat16}",
        "QUANTIZATION": "LlmConfig={quantization: fp8}",
        "ENFORCE_EAGER": "LlmConfig={enforce_eager: true}",
        "TP_SIZE": "LlmConfig={tensor_parallel_size: 2}",
        "TARGET_QPS": "ServerLoad, OfflineLoad or InteractiveLoad",
        "SERVER_TARGET_QPS": "ServerLoad",
        "OFFLINE_TARGET_QPS": "OfflineLoad",
        "SERVER_QPS": "ServerLoad",
        "USER_CONF": "UserConf",
        "MIN_DURATION_MS": "MinDuration, with its unit: 600s",
        "MAX_NEW_TOKENS": "MaxOutputTokens",
        "OUTPUT_DIR": "the option --results-dir",
        "RESULTS_DIR": "the option --results-dir",
        "RUN_ID": "the option --run-id",
        "HF_TOKEN": "the variable HF_TOKEN of the environment, or a line of .env",
        "HUGGINGFACE_TOKEN": "the variable HUGGINGFACE_TOKEN of the environment, or a line of .env",
        # Scripts around llama.cpp.
        "LLAMA_CPP_DIR": "LlamaCppSource",
        "QUANTS": "Variants",
        "QUANT_TYPES": "Variants",
        "N_GPU_LAYERS": "GpuLayers",
        "NGL": "GpuLayers",
        "CTX_SIZE": "Context",
        "N_CTX": "Context",
        "N_THREADS": "Threads",
        "N_PARALLEL": "Slots",
        "N_PROMPT": "InputTokens",
        "N_PREDICT": "OutputTokens",
        "SPAWN_RATE": "SpawnRate",
        "RUN_TIME": "LoadDuration",
        # Walkthroughs of NVIDIA's harness.
        "BENCHMARKS": "the option --scenarios inferencemodels-bert",
        "SCENARIOS": "LoadgenScenarios",
        "SYSTEM_NAME": "System",
        "SUBMITTER": "Submitter",
    }
)
"""The guides' names with their equivalent: a profile parameter, an option, or a variable."""

_BY_NAME = {canonical(name): (name, here) for name, here in GUIDE_NAMES.items()}


def guide_name(name: str, declared: Iterable[str]) -> str | None:
    """Return the equivalent of a guide's name, or None if there is none or the profile lacks it."""
    found = _BY_NAME.get(canonical(name))
    if found is None:
        return None
    here = found[1]
    first = here.partition("=")[0].partition(",")[0]
    is_parameter = not here.startswith("the ")
    return (
        f"in vcagent: {here}"
        if not is_parameter or canonical(first) in set(map(canonical, declared))
        else None
    )
