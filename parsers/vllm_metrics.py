"""Reads vLLM's /metrics: counters and histograms since the server's start, in Prometheus' text format.

Source: vllm/v1/metrics/loggers.py, and vllm/engine/metrics.py before 2025; both old and new names are
supported. A histogram is read as its mean: its sum divided by its count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Parser, Relativity
from parsers.prometheus import begins_with, read_samples
from parsers.terminal import whole_lines
from parsers.trees import beginning, files_in, parse_files, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FORMAT = "vllm_metrics"
TOOL = "vLLM"
_PREFIX = "vllm:"
_HEAD = 1 << 20
_HIGHER, _LOWER, _PLAIN = Relativity.HIGHER, Relativity.LOWER, Relativity.UNDEFINED
_VALUES: Mapping[str, tuple[str, str, Relativity, str, int]] = {
    "prompt_tokens_total": ("prompt_tokens", "count", _PLAIN, "prompt tokens, since the start", 1),
    "generation_tokens_total": ("generation_tokens", "count", _PLAIN, "tokens generated, since the start", 1),
    "num_requests_running": ("requests_running", "count", _PLAIN, "requests under way", 2),
    "num_requests_waiting": ("requests_waiting", "count", _LOWER, "requests that wait", 2),
    "num_preemptions_total": ("preemptions", "count", _LOWER, "requests put back, since the start", 2),
    "num_preemptions": ("preemptions", "count", _LOWER, "requests put back, since the start", 2),
    "kv_cache_usage_perc": ("kv_cache_usage", "ratio", _PLAIN, "of the KV cache in use", 2),
    "gpu_cache_usage_perc": ("kv_cache_usage", "ratio", _PLAIN, "of the KV cache in use", 2),
    "prefix_cache_queries_total": ("prefix_cache_queries", "count", _PLAIN, "tokens looked up in it", 2),
    "prefix_cache_hits_total": ("prefix_cache_hits", "count", _PLAIN, "tokens taken from it", 2),
    "gpu_prefix_cache_queries_total": ("prefix_cache_queries", "count", _PLAIN, "tokens looked up in it", 2),
    "gpu_prefix_cache_hits_total": ("prefix_cache_hits", "count", _PLAIN, "tokens taken from it", 2),
    "avg_prompt_throughput_toks_per_s": ("prompt_tokens_per_second", "tokens/s", _HIGHER, "lately", 1),
    "avg_generation_throughput_toks_per_s": (
        "generation_tokens_per_second",
        "tokens/s",
        _HIGHER,
        "lately",
        1,
    ),
}
_MEANS: Mapping[str, tuple[str, str, int]] = {
    "time_to_first_token_seconds": ("ttft_mean", "from the request to its first token", 1),
    "inter_token_latency_seconds": ("inter_token_latency_mean", "from one token to the next", 1),
    "time_per_output_token_seconds": ("inter_token_latency_mean", "from one token to the next", 1),
    "request_time_per_output_token_seconds": ("tpot_mean", "per token after the first", 1),
    "e2e_request_latency_seconds": ("latency_mean", "from the request to the end of its reply", 1),
    "request_queue_time_seconds": ("queue_time_mean", "waited for the engine", 2),
    "request_prefill_time_seconds": ("prefill_time_mean", "spent on the prompt", 2),
    "request_decode_time_seconds": ("decode_time_mean", "spent on the reply", 2),
}


def recognise(path: Path) -> bool:
    """Return True if a file is such an output, or a folder contains one."""
    return any(begins_with(beginning(file, _HEAD), _PREFIX) for file in files_in(path))


def parse(path: Path) -> list[ParsedOutput]:
    """Read an output of /metrics, or all such outputs in a folder.

    Raises:
        ParseError: if there is none, or the only one has none of vLLM's numbers.
    """
    return parse_files(path, FORMAT, TOOL, recognise, lambda file: [_parse_file(file)])


def _parse_file(path: Path) -> ParsedOutput:
    text, cut = whole_lines(text_of(path))
    values: dict[str, dict[str, float]] = {}
    try:
        for sample in read_samples(text, _PREFIX):
            if sample.value is None:
                continue
            if sample.value < 0:
                raise ParseError(f"{sample.name} is {sample.value:g}, which is below 0")
            labels = dict(sample.labels)
            kept = [f"{key}={labels[key]}" for key in ("model_name", "engine") if labels.get(key)]
            # No other metric reports the requests that ended, by the reason of their end.
            if reason := labels.get("finished_reason"):
                kept.append(f"finished_reason={reason}")
            if "le" not in labels:
                values.setdefault("/".join(kept), {})[sample.name.removeprefix(_PREFIX)] = sample.value
    except ParseError as error:
        raise ParseError(error.message, where=str(path), remedy=error.remedy) from error
    several = len(values) > 1
    metrics = tuple(
        metric for case, own in values.items() for metric in _metrics(own, case if several else None)
    )
    if not metrics:
        raise ParseError("it holds none of vLLM's numbers", where=str(path))
    return ParsedOutput(
        FORMAT, TOOL, scenario="server", metrics=metrics, complete=not cut, sources=(str(path),)
    )


def _metrics(own: Mapping[str, float], case: str | None) -> Iterator[Metric]:
    told = set()
    for key, (name, unit, relativity, text, verbosity) in _VALUES.items():
        if key in own and name not in told:
            told.add(name)
            yield Metric(name, own[key], unit, relativity, text, verbosity, scenario=case)
    if "request_success_total" in own:
        text = "requests that ended well, since the start"
        yield Metric(
            "requests_succeeded", own["request_success_total"], "count", _PLAIN, text, 2, scenario=case
        )
    for key, (name, text, verbosity) in _MEANS.items():
        total, count = own.get(f"{key}_sum"), own.get(f"{key}_count")
        if total is not None and count and name not in told:
            told.add(name)
            yield Metric(name, total / count, "seconds", _LOWER, f"{text}, mean", verbosity, scenario=case)


PARSER = Parser(FORMAT, "vLLM's server: the output of /metrics", recognise=recognise, parse=parse)
