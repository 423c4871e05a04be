"""lm-eval's command line and environment from a profile's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actions.lm_eval.parameters import LmEvalParameters

SHIPPED_TASKS = Path(__file__).with_name("tasks")
"""Task files that come with the agent, for hosts without a hub."""

WITH_LLAMA_CPP = Path(__file__).with_name("in_environment") / "with_llama_cpp.py"
"""What stands for ``python -m lm_eval`` where llama.cpp's server answers."""


def tasks_folder(asked: LmEvalParameters) -> Path:
    """The folder of further task files, in which lm-eval is run."""
    return (asked.include_path or SHIPPED_TASKS).absolute()


def lm_eval_command(asked: LmEvalParameters, *, url: str, output: Path | str) -> list[str]:
    """The command.

    Args:
        asked: the parameters.
        url: of the server, where there is one.
        output: the folder that gets the results.
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
    """Endpoints cannot be asked how much fits."""
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
    """Return the variables: no hub where that is not wanted, no nvcc, the endpoint's key, and the GPUs.

    Args:
        asked: the parameters.
        key: of the endpoint.
        devices: the GPUs to use; None for all that are visible.
    """
    variables = {
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # FlashInfer's sampler, vLLM's default, is compiled on the host.
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        # As for LoadGen's tests: the same numbers in CUDA_VISIBLE_DEVICES are the same GPUs.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if devices is not None:
        variables["CUDA_VISIBLE_DEVICES"] = devices
    if asked.offline:
        variables |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return {**variables, **({"OPENAI_API_KEY": key} if key else {})}
