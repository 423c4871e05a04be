"""Reads the server's /metrics: counters since its start, in Prometheus' text format.

Source: tools/server/README.md ("GET /metrics"), tools/server/server-context.cpp. ``kv_cache_usage_ratio`` and
``kv_cache_tokens`` were removed in 2025.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Relativity
from parsers.prometheus import begins_with, read_samples
from parsers.terminal import whole_lines
from parsers.trees import beginning, files_in, parse_files, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT = "llamacpp_counters"
TOOL = "llama.cpp"
_PREFIX = "llamacpp:"
_HIGHER, _LOWER, _PLAIN = Relativity.HIGHER, Relativity.LOWER, Relativity.UNDEFINED
_KNOWN: Mapping[str, tuple[str, str, Relativity, str, int]] = {
    "prompt_tokens_seconds": (
        "prompt_tokens_per_second", "tokens/s", _HIGHER, "prompts, since it was last asked", 1),
    "predicted_tokens_seconds": (
        "generation_tokens_per_second", "tokens/s", _HIGHER, "replies, since it was last asked", 1),
    "prompt_tokens_total": ("prompt_tokens", "count", _PLAIN, "prompt tokens computed", 2),
    "prompt_tokens_cached_total": ("cached_tokens", "count", _PLAIN, "prompt tokens taken from a cache", 2),
    "prompt_seconds_total": ("prompt_time", "seconds", _LOWER, "spent on prompts", 2),
    "tokens_predicted_total": ("generation_tokens", "count", _PLAIN, "tokens generated", 2),
    "tokens_predicted_seconds_total": ("generation_time", "seconds", _LOWER, "spent on replies", 2),
    "n_decode_total": ("decode_calls", "count", _PLAIN, "calls of llama_decode()", 3),
    "n_busy_slots_per_decode": ("busy_slots_mean", "count", _PLAIN, "slots busy in a call, mean", 2),
    "n_tokens_max": ("sequence_tokens_max", "count", _PLAIN, "longest prompt with its reply", 3),
    "n_past_max": ("sequence_tokens_max", "count", _PLAIN, "longest prompt with its reply", 3),
    "requests_processing": ("requests_processing", "count", _PLAIN, "requests under way", 3),
    "requests_deferred": ("requests_deferred", "count", _LOWER, "requests that wait for a slot", 3),
    "kv_cache_usage_ratio": ("kv_cache_usage", "ratio", _PLAIN, "of the KV cache in use", 3),
    "kv_cache_tokens": ("kv_cache_tokens", "count", _PLAIN, "tokens in the KV cache", 3),
}  # fmt: skip
"""The server's names with our name, base unit, direction, description and verbosity."""

_OF_TOKENS: Mapping[str, str] = {
    "prompt_tokens_per_second": "prompt_tokens",
    "generation_tokens_per_second": "generation_tokens",
}
"""Rates that are left out while there are no tokens: the server then reports 0."""


def recognise(path: Path) -> bool:
    """Return True if a file is such a reply, or a folder contains one."""
    return any(begins_with(beginning(file), _PREFIX) for file in files_in(path))


def read_counters(text: str) -> dict[str, float]:
    """Return the finite samples of a reply, under the server's own names without ``llamacpp:``.

    Raises:
        ParseError: if a sample is not a number, is below 0, or occurs twice.
    """
    found: dict[str, float] = {}
    for sample in read_samples(text, _PREFIX):
        name = sample.name.removeprefix(_PREFIX)
        if name in found:
            raise ParseError(
                f"{sample.name} occurs for several models", remedy="ask each server for its own counters"
            )
        if sample.value is not None:
            if sample.value < 0:
                raise ParseError(f"{sample.name} is {sample.value:g}, which is below 0")
            found[name] = sample.value
    return found


def parse(path: Path) -> list[ParsedOutput]:
    """Read a reply of /metrics, or all such replies in a folder.

    Raises:
        ParseError: if there is none, or the only one has none of the server's counters.
    """
    return parse_files(path, FORMAT, TOOL, recognise, _parse_file)


def _parse_file(path: Path) -> list[ParsedOutput]:
    text, cut = whole_lines(text_of(path))
    try:
        samples = read_counters(text)
    except ParseError as error:
        raise ParseError(error.message, where=str(path), remedy=error.remedy) from error
    found = {entry[0]: (samples[key], entry) for key, entry in _KNOWN.items() if key in samples}
    metrics = tuple(
        Metric(name, value, unit, relativity, text, verbosity)
        for name, (value, (_, unit, relativity, text, verbosity)) in found.items()
        if name not in _OF_TOKENS or found.get(_OF_TOKENS[name], (0.0,))[0] > 0
    )
    if not metrics:
        raise ParseError(
            "it has none of llama.cpp's counters", where=str(path), remedy="start the server with --metrics"
        )
    return [
        ParsedOutput(FORMAT, TOOL, scenario="server", metrics=metrics, complete=not cut, sources=(str(path),))
    ]
