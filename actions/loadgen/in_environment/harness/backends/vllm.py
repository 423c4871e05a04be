"""Run vLLM in the harness's own process: no HTTP, one asynchronous engine for every scenario.

Prompts and answers are token ids: nothing is tokenised or detokenised in the timed part. Prefix caching is
always off. The engine's output goes to ``engine.log`` in the output folder.
"""

# ruff: noqa: TID252  (the harness is its own top-level package where it runs)
from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import os
import sys
from array import array
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..errors import HarnessError
from .base import BackendStats, checked
from .vllm_log import NO_ROOM_FOR_CACHE, OUT_OF_MEMORY, last_news, last_words
from .vllm_own import CLOSED, OPEN, refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ..dataset import Sample
    from .base import BackendContext, Batch, Sink

_DEFAULTS: Mapping[str, Any] = {
    "model": None,
    "engine": {},
    "sampling": {},
    "environment": {},
    "division": CLOSED,
}
_ENVIRONMENT = {
    # A benchmark host sends no usage statistics.
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # nvcc compiles vLLM's default on first use, and a host with only a driver does not have nvcc.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # The driver's order, in which the agent numbers the GPUs; CUDA's own order begins with the fastest.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
_OWN_SAMPLING = ("max_tokens", "output_kind", "detokenize", "n")
_SLICE = 64
"""Number of requests passed on before the loop does its other work: each takes a fraction of a
millisecond."""
_LEN_MULTIPLE = 16
_NEWS_EVERY_S = 1.0


@dataclasses.dataclass(frozen=True)
class LoadedEngine:
    """An engine that one test after another may use.

    Args:
        engine: vLLM's ``AsyncLLM``.
        vllm: vLLM's module.
        values: the arguments that it was loaded with.
        environment: the variables that it was loaded with.
        log: its output.
    """

    engine: Any
    vllm: Any
    values: Mapping[str, Any]
    environment: Mapping[str, str]
    log: Path


class VllmBackend:
    """Answers with vLLM's ``AsyncLLM``.

    Args:
        model: a folder or a name on Hugging Face's hub.
        engine: vLLM's ``AsyncEngineArgs`` by their own names.
        sampling: vLLM's ``SamplingParams`` by their own names; greedy by default.
        environment: environment variables for vLLM.
        division: MLPerf's: closed, or open, where prefix caching may be on.
        context: the run.

    Attributes:
        loaded: the engine; if it is set before ``start``, it is used instead of loading one.
    """

    data_encoding = "int32"

    def __init__(
        self,
        *,
        model: str,
        engine: Mapping[str, Any],
        sampling: Mapping[str, Any],
        environment: Mapping[str, str],
        division: str,
        context: BackendContext,
    ) -> None:
        self._model = model
        self._engine_arguments = engine
        self._sampling = sampling
        self._environment = environment
        self._division = division
        self._context = context
        self._log = context.output_dir / "engine.log"
        self.loaded: LoadedEngine | None = None
        self._engine: Any = None
        self._tokenizer: Any = None
        self._prompts: list[dict[str, list[int]]] = []
        self._params: Any = None
        self._waiting: asyncio.Queue[tuple[int, int, Sink]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams = context.scenario != "Offline"
        self.version = "vllm"
        self.stats = BackendStats()

    async def start(self) -> Mapping[str, Any]:
        """Load the model.

        Raises:
            HarnessError: (``dependency``) if vLLM is not installed; (``config``) if an argument is unknown
                or a prompt does not fit; (``out_of_memory``, ``engine_error``) if the engine does not start.
        """
        self.loaded = await (self._load() if self.loaded is None else self._checked(self.loaded))
        self._engine = self.loaded.engine
        self._log = self.loaded.log
        self.version = f"vllm {self.loaded.vllm.__version__}"
        self._tokenizer = self._engine.renderer.tokenizer
        self._prompts = [{"prompt_token_ids": self._tokens(sample)} for sample in self._context.samples]
        self._check_lengths(self._engine.vllm_config.model_config.max_model_len)
        self._start_task(self._hand_over())
        return {"model": self._model, **_facts(self._engine.vllm_config)}

    async def _load(self) -> LoadedEngine:
        os.environ.update({**_ENVIRONMENT, **self._environment})
        self._context.tell("importing vLLM")
        vllm = _import_vllm(self._log)
        self.version = f"vllm {vllm.__version__}"
        values = self._argument_values(vllm)
        arguments = _arguments(vllm, values)
        self._params = self._sampling_params(vllm)
        loading = asyncio.to_thread(vllm.AsyncLLMEngine.from_engine_args, arguments)
        telling = asyncio.get_running_loop().create_task(self._tell_news())
        try:
            engine = await loading
        except Exception as error:
            raise self._failure("vLLM did not start", error) from error
        finally:
            telling.cancel()
        return LoadedEngine(engine, vllm, values, self._environment, self._log)

    async def _checked(self, loaded: LoadedEngine) -> LoadedEngine:
        """Return an engine that an earlier test loaded, if it is the one that this test wants and works."""
        self._log = loaded.log
        self._params = self._sampling_params(loaded.vllm)
        if (self._argument_values(loaded.vllm), self._environment) != (loaded.values, loaded.environment):
            raise HarnessError(
                "internal", "the engine was loaded with other arguments than this test's", "report it"
            )
        try:
            await loaded.engine.check_health()
            await loaded.engine.reset_prefix_cache()
        except Exception as error:
            raise self._failure("vLLM cannot be used again", error) from error
        return loaded

    async def _tell_news(self) -> None:
        """Report what vLLM does occasionally, since loading may take minutes."""
        while True:
            await asyncio.sleep(_NEWS_EVERY_S)
            if news := last_news(self._log, self._model):
                self._context.tell(news)

    def _argument_values(self, vllm: Any) -> dict[str, Any]:
        """Return the engine's arguments: the user's over those that a benchmark needs."""
        known = [field.name for field in dataclasses.fields(vllm.AsyncEngineArgs) if field.init]
        for name in self._engine_arguments:
            if name not in known:
                raise _unknown("engine argument", name, known)
        if problem := refused(self._engine_arguments, self._division):
            raise HarnessError("config", problem, "remove it")
        return {
            "max_model_len": self._longest_sequence(),
            **self._engine_arguments,
            "model": self._model,
            "enable_prefix_caching": self._division == OPEN
            and bool(self._engine_arguments.get("enable_prefix_caching")),
            "disable_log_stats": True,
            # LoadGen takes an answer's first token and its end: tokens between stay in the engine's process.
            "stream_interval": max(2, self._context.max_output_tokens),
        }

    def _longest_sequence(self) -> int | None:
        """Return the tokens of the longest prompt and its answer; None if prompts are text."""
        lengths = [len(sample.tokens) for sample in self._context.samples]
        if not all(lengths):
            return None
        longest = max(lengths) + self._context.max_output_tokens
        return -(-longest // _LEN_MULTIPLE) * _LEN_MULTIPLE

    def _sampling_params(self, vllm: Any) -> Any:
        from vllm.sampling_params import RequestOutputKind

        for name in _OWN_SAMPLING:
            if name in self._sampling:
                raise HarnessError(
                    "config", f"sampling.{name} is the harness's to set", "max_output_tokens sets the length"
                )
        known = list(vllm.SamplingParams.__struct_fields__)
        for name in self._sampling:
            if name not in known:
                raise _unknown("sampling parameter", name, known)
        kind = RequestOutputKind.DELTA if self._streams else RequestOutputKind.FINAL_ONLY
        own = {"max_tokens": self._context.max_output_tokens, "output_kind": kind, "detokenize": False}
        try:
            return vllm.SamplingParams(**{"temperature": 0.0, **self._sampling, **own})
        except (TypeError, ValueError) as error:
            raise HarnessError("config", f"vLLM refuses the sampling: {_short(error)}") from error

    def _tokens(self, sample: Sample) -> list[int]:
        if sample.tokens:
            return list(sample.tokens)
        if self._tokenizer is None:
            raise HarnessError(
                "config",
                f"sample {sample.id} is text, and the engine has no tokenizer",
                "remove skip_tokenizer_init, or give samples as token_ids",
            )
        return list(self._tokenizer.encode(sample.prompt))

    def _check_lengths(self, most: int) -> None:
        """Refuse a prompt that the engine would cut or refuse during the test."""
        for sample, prompt in zip(self._context.samples, self._prompts, strict=True):
            length = len(prompt["prompt_token_ids"]) + self._context.max_output_tokens
            if length > most:
                raise HarnessError(
                    "config",
                    f"sample {sample.id} with its answer has {length} tokens; max_model_len is {most}",
                    f"raise max_model_len to {length}, or remove it",
                )

    def submit(self, batch: Batch, sink: Sink) -> None:
        """Queue the samples; a separate task passes them to the engine in order."""
        for sample_id, index in zip(batch.ids, batch.indices, strict=True):
            self._waiting.put_nowait((sample_id, index, sink))

    async def _hand_over(self) -> None:
        """Pass requests to the engine as they arrive; pause within large batches for other work."""
        while True:
            sample_id, index, sink = await self._waiting.get()
            for _ in range(_SLICE):
                self._start_task(self._answer(sample_id, index, sink))
                if self._waiting.empty():
                    break
                sample_id, index, sink = self._waiting.get_nowait()
            else:
                self._start_task(self._answer(sample_id, index, sink))
            await asyncio.sleep(0)

    def _start_task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, sample_id: int, index: int, sink: Sink) -> None:
        prompt, tokens, cached = self._prompts[index], array("i"), 0
        try:
            async for output in self._engine.generate(prompt, self._params, str(sample_id)):
                new = output.outputs[0].token_ids
                if self._streams and new and not tokens:
                    sink.first_token(sample_id, array("i", new[:1]).tobytes())
                tokens.extend(new)
                cached = output.num_cached_tokens or 0
        except Exception as error:  # noqa: BLE001  (any exception of the engine ends the run with its own message)
            sink.fail(sample_id, self._failure("vLLM failed", error))
            return
        self.stats.count_input(len(prompt["prompt_token_ids"]), cached)
        sources = self.stats.token_count_sources
        sources["engine"] = sources.get("engine", 0) + 1
        sink.complete(sample_id, tokens.tobytes(), len(tokens))

    def _failure(self, what: str, error: Exception) -> HarnessError:
        """Return an error with the engine's own last message and a remedy."""
        words = last_words(self._log) or _short(error)
        if OUT_OF_MEMORY.search(words) or OUT_OF_MEMORY.search(str(error)):
            remedy = (
                "raise gpu_memory_utilization, or lower max_num_seqs, max_num_batched_tokens or max_model_len"
                if NO_ROOM_FOR_CACHE.search(words)
                else "lower max_num_seqs, max_num_batched_tokens or gpu_memory_utilization; see nvidia-smi "
                "for other processes on the GPU"
            )
            return HarnessError("out_of_memory", f"{what}: {words}", remedy)
        return HarnessError("engine_error", f"{what}: {words}", f"its output is in {self._log}")

    def decode(self, data: bytes) -> str:
        """Return an answer as text, or as its token ids if the engine has no tokenizer."""
        tokens = array("i", data).tolist()
        if self._tokenizer is None:
            return " ".join(map(str, tokens))
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def release(self) -> None:
        """End this backend's own work; the engine goes on."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Stop the engine."""
        self.release()
        if self._engine is not None:
            await asyncio.to_thread(self._engine.shutdown)

    def kill(self) -> None:
        """Kill the engine's processes immediately."""
        for child in multiprocessing.active_children():
            child.kill()


def _arguments(vllm: Any, values: Mapping[str, Any]) -> Any:
    """Return the engine's arguments; None selects vLLM's own value."""
    try:
        return vllm.AsyncEngineArgs(**{name: value for name, value in values.items() if value is not None})
    except (TypeError, ValueError) as error:
        raise HarnessError("config", f"vLLM refuses its arguments: {_short(error)}") from error


def _import_vllm(log: Path) -> Any:
    """Import vLLM with its output, and that of the processes it starts, redirected to a file.

    The harness's own progress is not redirected: its streams use copies of the old descriptors.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    streams = [os.fdopen(os.dup(number), "w", buffering=1, encoding="utf-8") for number in (1, 2)]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    for number in (1, 2):
        os.dup2(file, number)
    os.close(file)
    try:
        import vllm
    except ImportError as error:
        raise HarnessError(
            "dependency",
            f"vLLM cannot be imported: {error}",
            "install it in this environment: python -m pip install vllm",
        ) from error
    finally:
        sys.stdout, sys.stderr = streams
    return vllm


def _facts(config: Any) -> dict[str, str | int | float | bool]:
    """Return the engine's effective settings, under vLLM's own names."""
    model, cache, scheduler, parallel = (
        config.model_config,
        config.cache_config,
        config.scheduler_config,
        config.parallel_config,
    )
    facts = {
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": model.quantization,
        "load_format": config.load_config.load_format,
        "max_model_len": model.max_model_len,
        "kv_cache_dtype": cache.cache_dtype,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "num_gpu_blocks": cache.num_gpu_blocks,
        "block_size": cache.block_size,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "async_scheduling": scheduler.async_scheduling,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "data_parallel_size": parallel.data_parallel_size,
        **_architecture(model.hf_text_config),
    }
    return {
        name: value if isinstance(value, int | float) else str(value)
        for name, value in facts.items()
        if value is not None
    }


def _architecture(config: Any) -> dict[str, int]:
    """Return the model's properties for a roofline."""
    names = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
    )
    return {name: value for name in names if isinstance(value := getattr(config, name, None), int)}


def _unknown(what: str, name: str, known: Iterable[str]) -> HarnessError:
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "see vLLM's documentation of this version"
    return HarnessError("config", f"vLLM has no {what} {name!r}", hint)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def create(settings: Mapping[str, Any], context: BackendContext) -> VllmBackend:
    """Create the backend.

    Raises:
        HarnessError: (``config``) if a setting is unknown or model is missing.
    """
    values = checked(settings, _DEFAULTS, "vllm")
    if not values["model"]:
        raise HarnessError(
            "config", "the vllm backend needs a model", "set it to a folder or a name on the hub"
        )
    return VllmBackend(**values, context=context)
