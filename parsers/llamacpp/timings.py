"""llama.cpp's timings at a tool's end: ``llama_print_timings``, ``llama_perf_…``, ``common_perf_print``.

The first is of 2024, the others came after it; all print one line a part, in milliseconds
(src/llama-context.cpp, common/sampling.cpp). A part that was not run has 0 ms and so ``inf`` or ``nan``
tokens per second: that rate was not measured, and is absent here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.core.records import Metric, Relativity
from parsers.llamacpp.numbers import finite

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["has_timings", "timing_metrics", "timings_complete"]

_PARTS = {"load": "load", "prompt eval": "prompt", "eval": "generation", "total": "total"}
_COUNTS = {"prompt": "prompt_tokens", "generation": "generated_tokens"}
_LINE = re.compile(
    r"(?:llama_print_timings|llama_perf\w*|common_perf_print):\s+(?P<part>load|prompt eval|eval|total) time ="
    r"\s+(?P<ms>\S+) ms(?: /\s+(?P<count>\d+) (?:tokens|runs))?"
    r"(?:\s+\(\s*\S+ ms per token,\s+(?P<rate>\S+) tokens per second\))?[ \t]*$",
    re.MULTILINE,
)


def has_timings(text: str) -> bool:
    """Whether a log has any of these lines, whole."""
    return _LINE.search(text) is not None


def timings_complete(text: str) -> bool:
    """Whether the last of these lines, the total, is there."""
    return any(match["part"] == "total" for match in _LINE.finditer(text))


def timing_metrics(text: str, *, verbosity: int = 1) -> tuple[Metric, ...]:
    """The times in seconds, the tokens, and the tokens/s that were measured; of several blocks the last.

    Args:
        text: a tool's output.
        verbosity: that of the rates; the rest is detail.
    """
    found = {_PARTS[match["part"]]: match for match in _LINE.finditer(text)}
    return tuple(
        metric for part, match in found.items() for metric in _metrics(part, match.groupdict(), verbosity)
    )


def _metrics(part: str, line: dict[str, str | None], verbosity: int) -> Iterator[Metric]:
    rate, milliseconds, count = (finite(line[name]) for name in ("rate", "ms", "count"))
    if rate and milliseconds:
        description = "prompt processing" if part == "prompt" else "generation of one sequence"
        yield Metric(f"{part}_tokens_per_second", rate, "tokens/s", Relativity.HIGHER, description, verbosity)
    if milliseconds:
        yield Metric(
            f"{part}_time",
            milliseconds / 1000,
            "seconds",
            Relativity.LOWER,
            verbosity=max(verbosity, 2),
            metadata={"tool_value": milliseconds, "tool_unit": "ms"},
        )
    if count is not None and part in _COUNTS and milliseconds:
        yield Metric(_COUNTS[part], count, "count", verbosity=3)
