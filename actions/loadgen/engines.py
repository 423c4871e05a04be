"""Start what answers a LoadGen test: a running endpoint, a llama.cpp server, or vLLM in the harness."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.llamacpp.server import LlamaCppServer
from actions.loadgen.engine import Engine
from agent.component.environment_script import interpreter
from agent.facts.visible_gpus import chosen_variables, usable_gpus
from gpu_configs.model_identity import model_fingerprint
from gpu_configs.vllm_engine import engine_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from actions.loadgen.parameters import LoadGenParameters
    from agent.component.component import StepContext
    from agent.facts import Facts
    from agent.facts.gpus import Gpu

_GREEDY = {"temperature": 0, "ignore_eos": True, "cache_prompt": False}


def engine_name(asked: LoadGenParameters, facts: Facts) -> str:
    """Return the engine and its settings in words."""
    if asked.server:
        return f"llama.cpp with {asked.server.model}"
    if asked.vllm:
        settings = engine_settings(
            asked.vllm,
            model=asked.model,
            scenario=asked.loadgen_scenario,
            gpus=usable_gpus(facts, asked.vllm.gpus),
        )
        chosen = ", ".join(f"{name} {value}" for name, value in settings.engine.items())
        return f"vLLM with {asked.vllm.model} ({'; '.join(settings.origin)}{': ' if chosen else ''}{chosen})"
    return asked.endpoint


def open_engine(asked: LoadGenParameters, stack: ExitStack, context: StepContext, case_dir: Path) -> Engine:
    """Make the engine ready; everything started for it ends with ``stack``.

    Raises:
        ActionFailedError: if the engine does not start.
    """
    if asked.vllm is not None:
        return _vllm(asked, context)
    if asked.server is None:
        url, values = context.served_at(asked.endpoint)
        model = asked.endpoint_model or str(values.get("model", ""))
        return Engine(
            _openai(asked, url=url, model=model, request=asked.request),
            exact_tokens=asked.request.get("ignore_eos") is True,
            facts={name: value for name, value in values.items() if name not in {"url", "model"}},
        )
    context.progress.update("starting llama.cpp's server")
    server = LlamaCppServer(
        asked.server,
        name=asked.model,
        python=interpreter(asked.environment),
        processes=context.processes,
        log=case_dir / "server.log",
        stop=context.stop,
        contained=asked.container is not None,
    )
    stack.enter_context(server)
    request = {**_GREEDY, **asked.request}
    facts: dict[str, str | int | float] = {
        **server.facts,
        "model_file": str(server.model_path),
        "model_sha256": server.model_sha256(),
        "parallel": server.parameters.parallel,
        "context": server.parameters.context,
    }
    return Engine(
        _openai(asked, url=server.url, model=server.name, request=request),
        exact_tokens=request.get("ignore_eos") is True,
        facts=facts,
        server=server,
    )


def _vllm(asked: LoadGenParameters, context: StepContext) -> Engine:
    assert asked.vllm is not None  # noqa: S101 - checked by the caller
    gpus = usable_gpus(context.facts, asked.vllm.gpus)
    settings = engine_settings(
        asked.vllm, model=asked.model, scenario=asked.loadgen_scenario, gpus=gpus
    )  # fmt: skip
    visible = chosen_variables(context.facts, asked.vllm.gpus)
    facts = {
        "settings": "; ".join(settings.origin),
        "gpus": visible.get("CUDA_VISIBLE_DEVICES") or "",
        "gpu_kinds": _kinds(gpus),
        "model_fingerprint": _fingerprint(asked.vllm.model),
    }
    backend = {
        "type": "vllm",
        "model": asked.vllm.model,
        "engine": dict(settings.engine),
        "sampling": dict(settings.sampling),
        "environment": {**settings.environment, **visible},
        "division": asked.division,
    }
    return Engine(
        backend,
        exact_tokens=settings.sampling.get("ignore_eos") is True,
        facts={name: value for name, value in facts.items() if value},
        start_qps=settings.start_qps,
    )


def _kinds(gpus: tuple[Gpu, ...]) -> str:
    """Return the number of GPUs of each kind, such as ``8x NVIDIA H100 80GB HBM3``."""
    kinds = Counter(gpu.name or "unknown GPU" for gpu in gpus)
    return ", ".join(f"{count}x {name}" for name, count in sorted(kinds.items()))


def _fingerprint(model: str) -> str:
    """Return the model's fingerprint; empty for a model that is not on this host or cannot be read."""
    try:
        return model_fingerprint(Path(model))
    except OSError:
        return ""


def _openai(asked: LoadGenParameters, *, url: str, model: str, request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "openai",
        "url": url,
        "model": model or None,
        "model_like": None if model else asked.model,
        "request": dict(request),
        "api_key_env": asked.api_key_env or None,
        "api_key_file": None if asked.api_key_file is None else str(asked.api_key_file.absolute()),
        "connect_timeout_s": asked.connect_timeout,
        "max_in_flight": asked.max_in_flight,
        "tokenizer": None if asked.tokenizer is None else str(asked.tokenizer.absolute()),
    }
