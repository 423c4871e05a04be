"""Which components need GPUs, so that a sick GPU is a problem for their profiles."""

from __future__ import annotations

from typing import Any

import pytest

from agent.component.registry import component_class
from agent.facts import Facts
from agent.facts.cuda_toolkits import CudaToolkit

LOADGEN = {"model": "m", "loadgenScenario": "Offline", "environment": "/e"}
LM_EVAL = {"model": "m", "environment": "/e", "modelPath": "/m"}
BENCH = {"model": "m", "variants": "F16"}
IMAGE = {"image": "debian:12"}

USES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "a command": ("ExecuteCommand", {"command": "true"}, False),
    "a command in a container": ("ExecuteCommand", {"command": "true", "container": IMAGE}, False),
    "a command in a container with GPUs": (
        "ExecuteCommand",
        {"command": "true", "container": {**IMAGE, "gpus": "all"}},
        True,
    ),
    "a driver": ("NvidiaCudaInstallation", {}, True),
    "a driver of AMD": ("AmdRocmInstallation", {}, True),
    "GPUs in Docker": ("NvidiaContainerToolkitInstallation", {}, True),
    "Docker": ("DockerInstallation", {}, False),
    "selected GPUs": ("GpuSelection", {"model": "m"}, True),
    "free memory": ("FreeGpuMemory", {}, True),
    "watched GPUs": ("NvidiaSmiMonitor", {}, True),
    "watched GPUs of AMD": ("AmdSmiMonitor", {}, True),
    "a watched host": ("HostMonitor", {}, False),
    "NVIDIA's harness": ("MLPerfExecutor", {"model": "bert"}, True),
    "LoadGen on an endpoint": ("LoadGenExecutor", {**LOADGEN, "endpoint": "http://h:1"}, False),
    "LoadGen on llama.cpp": ("LoadGenExecutor", {**LOADGEN, "server": {"model": "/m.gguf"}}, False),
    "LoadGen on llama.cpp with GPUs": (
        "LoadGenExecutor",
        {**LOADGEN, "server": {"model": "/m.gguf", "binary": "/b", "gpuLayers": 999}},
        True,
    ),
    "LoadGen on vLLM": ("LoadGenExecutor", {**LOADGEN, "vllm": {"model": "/m"}}, True),
    "lm-eval in vLLM": ("LmEvalExecutor", LM_EVAL, True),
    "lm-eval on the CPU": (
        "LmEvalExecutor",
        {**LM_EVAL, "backend": "hf", "modelArgs": {"device": "cpu"}},
        False,
    ),
    "lm-eval on an endpoint": (
        "LmEvalExecutor",
        {**LM_EVAL, "backend": "local-completions", "endpoint": "http://h:1"},
        False,
    ),
    "llama-bench": ("LlamaCppBench", BENCH, False),
    "llama-bench with GPUs": ("LlamaCppBench", {**BENCH, "gpuLayers": 999}, True),
    "a server of llama.cpp": ("LlamaCppServer", {"model": "/m.gguf"}, False),
    "a server of llama.cpp with GPUs": (
        "LlamaCppServer",
        {"model": "/m.gguf", "binary": "/b", "gpuLayers": 999},
        True,
    ),
    "llama.cpp for CUDA": ("LlamaCppInstallation", {"backend": "cuda"}, True),
    "llama.cpp for the CPU": ("LlamaCppInstallation", {"backend": "cpu"}, False),
    "llama.cpp where no GPU answers": ("LlamaCppInstallation", {}, False),
}


def uses_gpus(kind: str, parameters: dict[str, Any], **facts: Any) -> bool:
    found = component_class(kind)
    return found(found.Parameters.model_validate(parameters)).uses_gpus(Facts(None, facts))


@pytest.mark.parametrize("case", USES)
def test_components_that_need_gpus(case: str) -> None:
    kind, parameters, expected = USES[case]
    assert uses_gpus(kind, parameters, compute_capabilities=()) is expected


def test_llamacpp_needs_the_gpus_that_it_is_compiled_for() -> None:
    host = {
        "compute_capabilities": ("9.0",),
        "cuda_toolkits": (CudaToolkit("/usr/local/cuda-12.8", "12.8", complete=True),),
        "driver_version": "570.86.15",
    }
    assert uses_gpus("LlamaCppInstallation", {}, **host)
    assert not uses_gpus("LlamaCppInstallation", {"prebuilt": True, "source": "/opt/llama"}, **host)
