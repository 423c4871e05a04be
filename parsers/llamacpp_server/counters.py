"""What llama.cpp's server answers at /metrics: counters since its start, in Prometheus' text form.

Source: tools/server/README.md ("GET /metrics"), tools/server/server-context.cpp. ``kv_cache_usage_ratio`` and
``kv_cache_tokens`` are gone since 2025.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Relativity
from parsers.terminal import whole_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["parse", "read_counters", "recognise"]

_PREFIX = "llamacpp:"
_SAMPLE = re.compile(r"llamacpp:(\w+)(?:\{[^}]*\})?\s+(\S+)(?:\s+\d+)?\s*")
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
"""The server's names: ours, base unit, direction, what it is, verbosity."""

_OF_TOKENS: Mapping[str, str] = {
    "prompt_tokens_per_second": "prompt_tokens",
    "generation_tokens_per_second": "generation_tokens",
}
"""A rate is 0 until there are tokens that it could be the rate of: then it is left out."""


def recognise(path: Path) -> bool:
    """Whether a file is such an answer."""
    try:
        with path.open(encoding="utf-8") as file:
            head = file.read(1 << 12)
    except (OSError, UnicodeDecodeError):
        return False
    begins = (_PREFIX, f"# HELP {_PREFIX}", f"# TYPE {_PREFIX}")
    return any(line.startswith(begins) for line in head.splitlines())


def read_counters(text: str) -> dict[str, float]:
    """The finite samples of an answer, by the server's own names without ``llamacpp:``."""
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if match := _SAMPLE.fullmatch(line):
            try:
                value = float(match[2])
            except ValueError:
                continue
            if math.isfinite(value):
                samples[match[1]] = value
    return samples


def parse(path: Path) -> list[ParsedOutput]:
    """Read an answer of /metrics.

    Raises:
        ParseError: if it has none of the server's counters.
    """
    text, cut = whole_lines(path.read_text(encoding="utf-8", errors="replace"))
    samples = read_counters(text)
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
        ParsedOutput(
            "llamacpp_counters",
            "llama.cpp",
            scenario="server",
            metrics=metrics,
            complete=not cut,
            sources=(str(path),),
        )
    ]
