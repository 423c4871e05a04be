"""Build lm-eval's command line and environment from a profile's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpu_configs.vllm_steps import fitting_steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actions.lm_eval.parameters import LmEvalParameters
    from agent.facts.gpus import Gpu

SHIPPED_TASKS = Path(__file__).with_name("tasks")
"""Task files shipped with the agent, for hosts without a hub."""

WITH_LLAMA_CPP = Path(__file__).with_name("in_environment") / "with_llama_cpp.py"
"""Replacement for ``python -m lm_eval`` with llama.cpp's server."""

_SMALL_MIB = 24 * 1024
_SMALL_STEP_TOKENS = 1024
"""Tokens per step on a small GPU.

vLLM computes the logits of all prompt tokens of a step, beside the memory that it has reserved. With 128,256
words in 16 and in 32 bits, 1,024 tokens need 0.8 GB, and a whole prompt of 4,096 tokens 3 GB.
"""


def sized_for(asked: LmEvalParameters, gpus: Iterable[Gpu]) -> LmEvalParameters:
    """Return the parameters of vLLM, with shorter steps if a GPU has at most 24 GiB.

    Args:
        asked: the parameters; the profile's arguments of vLLM stay, and lengthen the steps if they must.
        gpus: the GPUs to use.

    Raises:
        HostError: if the profile's arguments contradict each other.
    """
    arguments = asked.model_args
    is_small = any(gpu.memory_mib is not None and gpu.memory_mib <= _SMALL_MIB for gpu in gpus)
    shorter = {"max_num_batched_tokens": _SMALL_STEP_TOKENS} if is_small else {}
    return asked.model_copy(update={"model_args": fitting_steps({**shorter, **arguments}, arguments)})


def tasks_folder(asked: LmEvalParameters) -> Path:
    """Return the folder of further task files, which is lm-eval's working folder."""
    return (asked.include_path or SHIPPED_TASKS).absolute()


def lm_eval_command(asked: LmEvalParameters, *, url: str, output: Path | str) -> list[str]:
    """Return the command line.

    Args:
        asked: the parameters.
        url: the server's URL, if any.
        output: the folder for the results.
    """
    python = str(asked.environment.absolute() / "bin" / "python")
    program = [str(WITH_LLAMA_CPP)] if asked.backend == "llama-cpp" else ["-m", "lm_eval"]
    arguments = ",".join(f"{name}={value}" for name, value in _model_arguments(asked, url).items())
    command = [
        python, *program, "--model", asked.backend, "--model_args", arguments,
        "--tasks", ",".join(asked.tasks), "--include_path", str(tasks_folder(asked)),
        "--batch_size", _batch_size(asked), "--seed", str(asked.seed), "--output_path", str(output),
    ]  # fmt: skip
    if asked.num_fewshot is not None:
        command += ["--num_fewshot", str(asked.num_fewshot)]
    if asked.limit is not None:
        command += ["--limit", f"{asked.limit:g}"]
    if asked.chat_template:
        command += ["--apply_chat_template"]
    return command


def _batch_size(asked: LmEvalParameters) -> str:
    """Return the batch size; endpoints cannot determine it automatically."""
    is_remote = asked.backend in ("local-completions", "llama-cpp")
    return "1" if is_remote and asked.batch_size.startswith("auto") else asked.batch_size


def _model_arguments(asked: LmEvalParameters, url: str) -> dict[str, str | int | float | bool]:
    given = dict(asked.model_args)
    if asked.backend in ("vllm", "hf"):
        dummy = {"load_format": "dummy"} if asked.load_format == "dummy" else {}
        return {"pretrained": asked.model_path, **dummy, **given}
    base = url.rstrip("/").removesuffix("/v1")
    if asked.backend == "llama-cpp":
        return {"base_url": base, **given}
    own = {"tokenizer": asked.model_path, "tokenizer_backend": "huggingface"} if asked.model_path else {}
    return {
        "base_url": f"{base}/v1/completions", "model": asked.endpoint_model or asked.model, **own, **given
    }  # fmt: skip


def lm_eval_environment(asked: LmEvalParameters, key: str = "", devices: str | None = None) -> dict[str, str]:
    """Return the environment variables: offline mode, no nvcc, the endpoint's key, and the GPUs.

    Args:
        asked: the parameters.
        key: the key of the endpoint.
        devices: the GPUs to use; None for all visible ones.
    """
    variables = {
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # FlashInfer's sampler, vLLM's default, would be compiled on the host.
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        # As in LoadGen's tests: equal numbers in CUDA_VISIBLE_DEVICES mean equal GPUs.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if devices is not None:
        variables["CUDA_VISIBLE_DEVICES"] = devices
    if asked.offline:
        variables |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return {**variables, **({"OPENAI_API_KEY": key} if key else {})}
