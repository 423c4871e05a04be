"""Compare the settings of two tests of one result: they must be of one engine with one configuration.

A test's settings are in its harness's configuration and in its summary, which has what the engine and
LoadGen used. Of the model its content counts, not its folder; of the GPUs their number and kind, not their
places in the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from actions.loadgen.harness_run import CONFIG_NAME
from actions.submission.tree import read_json
from agent.core.errors import UsageError
from agent.store.documents import SummaryDocument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actions.submission.runs import Case

_BACKENDS = {"vllm_kept": "vllm"}
"""Other names of a backend: vllm_kept is vLLM that outlives a test."""
_NOT_THE_ENGINE = frozenset(
    {"api_key_env", "api_key_file", "connect_timeout_s", "socket", "token_ids", "tokenizer", "type", "url"}
)
"""Fields of a backend that change how a test reaches its engine, but not the answers."""
_OF_ONE_TEST = frozenset({"engine_loaded_for", "engine_num_gpu_blocks", "engine_type", "engine_url"})
"""Details of an engine that differ between two tests with the same settings."""
_ENGINE_DETAILS = ("engine_", "server_")
_SHARED_DETAILS = ("division", "max_output_tokens", "loadgen_version", "backend_version")
_LOADGEN_DETAILS = (
    "loadgen_model", "data_set_sha256", "performance_sample_count", "use_token_latencies", "ttft_latency_s",
    "tpot_latency_s", "target_latency_percentile", "qsl_rng_seed", "sample_index_rng_seed",
    "schedule_rng_seed",
)  # fmt: skip
"""Settings of LoadGen that a compliance test does not override. The load is not among them: it is searched
for in the performance run only."""
_MODEL_PLACES = ("model", "engine_model", "server_model_file")
_INSTEAD = {
    "server_model_fingerprint": _MODEL_PLACES,
    "server_model_sha256": _MODEL_PLACES,
    "server_gpu_kinds": (
        "environment.CUDA_VISIBLE_DEVICES", "environment.HIP_VISIBLE_DEVICES", "server_gpus",
    ),
}  # fmt: skip
"""Settings that are not compared if both tests have this better one: it names the same thing on any host."""
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_HIDDEN = "environment."
_SHOWN = 3


def has_settings(case: Case) -> bool:
    """Return True if the test recorded the configuration of its engine."""
    return isinstance(read_json(case.logs / CONFIG_NAME), dict)


def setting_differences(performance: Case, other: Case) -> list[str]:
    """Return the settings in which a test differs from the performance run, in words.

    Args:
        performance: the performance run.
        other: a compliance run, whose LoadGen settings are compared too, or the accuracy run, which has its
            own.
    """
    has_own = other.mode == "accuracy"
    first, second = (dict(_settings(case, engine_alone=has_own)) for case in (performance, other))
    for better, names in _INSTEAD.items():
        if better in first and better in second:
            for name in names:
                first.pop(name, None)
                second.pop(name, None)
    for settings, others in ((first, second), (second, first)):
        for better in _INSTEAD:
            if better not in others:  # a test of an older vcagent has no record of it
                settings.pop(better, None)
    return [
        _in_words(name, first.get(name), second.get(name))
        for name in dict.fromkeys((*first, *second))
        if first.get(name) != second.get(name)
    ]


def in_one_line(differences: list[str]) -> str:
    """Return the first differences in a line, with the number of further ones."""
    more = len(differences) - _SHOWN
    return "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _in_words(name: str, first: Any, second: Any) -> str:
    if name.startswith(_HIDDEN):
        return f"the variable {name.removeprefix(_HIDDEN)} differs"  # it may be a secret
    return f"{name} is {_shown(second)}, in the performance run {_shown(first)}"


def _shown(value: Any) -> str:
    return "not set" if value is None else f"{value}"


def _settings(case: Case, *, engine_alone: bool) -> Iterator[tuple[str, Any]]:
    config = read_json(case.logs / CONFIG_NAME)
    if isinstance(config, dict):
        if isinstance(backend := config.get("backend"), dict):
            yield from _of_backend(backend)
        yield "max_output_tokens", config.get("max_output_tokens")
    try:
        details = SummaryDocument.read(case.run_dir / str(case.part.case_dir)).details
    except UsageError:
        return
    wanted = _SHARED_DETAILS if engine_alone else _SHARED_DETAILS + _LOADGEN_DETAILS
    for name, value in details.items():
        if name in wanted or (name.startswith(_ENGINE_DETAILS) and name not in _OF_ONE_TEST):
            yield name, value


def _of_backend(backend: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield a backend's settings: groups, such as vLLM's engine arguments, setting by setting."""
    kind = str(backend.get("type"))
    yield "backend", _BACKENDS.get(kind, kind)
    values = backend.get("settings") if kind in _BACKENDS else backend
    for name, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, dict):
            prefix = _HIDDEN if name == "environment" else ""
            yield from ((f"{prefix}{inner}", setting) for inner, setting in value.items())
        elif name not in _NOT_THE_ENGINE:
            yield name, value
    url = backend.get("url")
    if url and urlsplit(str(url)).hostname not in _LOCAL:
        yield "url", url  # a local server has another port in each test
