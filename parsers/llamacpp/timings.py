"""Reads the timings at a tool's end: ``llama_print_timings``, ``llama_perf_…``, ``common_perf_print``.

The first is from 2023 and 2024; the others replaced it. All print one line for each part, in milliseconds
(src/llama-context.cpp, common/sampling.cpp). A part that did not run has 0 ms and therefore ``inf`` or
``nan`` tokens per second; its rate was not measured and is absent here. In the spring of 2023 no rate was
printed: it is computed as the tokens divided by their time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity
from parsers.numbers import measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.core.records import MetadataValue

_PARTS = {
    "load": "load",
    "prompt eval": "prompt",
    "eval": "generation",
    "generation eval": "generation",
    "total": "total",
}
_COUNTS = {"prompt": "prompt_tokens", "generation": "generated_tokens"}
_LINE = re.compile(
    r"(?:llama_print_timings|llama_perf\w*|common_perf_print):\s+(?P<part>load|prompt eval|eval|total) time ="
    r"(?P<rest>.*)$",
    re.MULTILINE,
)
_REST = re.compile(
    r"\s+(?P<ms>\S+) ms(?: /\s+(?P<count>\S+) (?:tokens|runs|run|token))?"
    r"(?:\s+\(\s*\S+ ms per (?:token|run)(?:,\s+(?P<rate>\S+) tokens per second)?\))?\s*"
)
_MARCH_2023 = re.compile(r"^main:\s+predict time =.* ms per token", re.MULTILINE)


class Timing(NamedTuple):
    """One line of timings.

    Args:
        part: the timed part, under the name that our metrics use.
        milliseconds: its duration.
        tokens: its number of tokens.
        rate: its tokens per second.
        derived: True if the rate was computed from tokens and time, and not printed by the tool.
    """

    part: str
    milliseconds: float | None
    tokens: float | None
    rate: float | None
    derived: bool


def has_timings(text: str) -> bool:
    """Return True if a log contains any of these lines."""
    return bool(_LINE.search(text) or _MARCH_2023.search(text))


def timings_complete(text: str) -> bool:
    """Return True if the log contains the last of these lines, the total."""
    return any(match["part"] == "total" for match in _LINE.finditer(text))


def read_timing(part: str, rest: str) -> Timing:
    """Read a line of timings.

    Args:
        part: the timed part as named in the line, such as ``prompt eval``.
        rest: the text after the equals sign.

    Raises:
        ParseError: if the line does not have llama.cpp's format, for example if it uses another unit.
    """
    match = _REST.fullmatch(rest)
    if match is None:
        raise ParseError(
            f"the {part} time is {rest.strip()[:80]!r}, which is not a time in milliseconds",
            remedy="see whether the log was changed",
        )
    names = (f"the {part} time", f"the tokens of {part}", f"the tokens per second of {part}")
    milliseconds, tokens, rate = (
        measured(match[name], what) for name, what in zip(("ms", "count", "rate"), names, strict=True)
    )
    name = _PARTS[part]
    derived = bool(match["rate"] is None and tokens and milliseconds and name in _COUNTS)
    if derived and tokens and milliseconds:
        rate = tokens / milliseconds * 1000
    return Timing(name, milliseconds, tokens, rate, derived)


def timing_metrics(text: str, *, verbosity: int = 1) -> tuple[Metric, ...]:
    """Return the times in seconds, the tokens, and the tokens/s. If there are several blocks, use the last.

    Args:
        text: a tool's output.
        verbosity: the verbosity of the rates; the other metrics are details.

    Raises:
        ParseError: if a line of timings does not have llama.cpp's format.
    """
    if _MARCH_2023.search(text):
        raise ParseError(
            "these are timings of March 2023, which do not separate prompt from generation",
            remedy="use a build of llama.cpp of April 2023 or later",
        )
    found = {match["part"]: match["rest"] for match in _LINE.finditer(text)}
    return tuple(
        metric for part, rest in found.items() for metric in metrics_of(read_timing(part, rest), verbosity)
    )


def metrics_of(timing: Timing, verbosity: int = 1, scenario: str | None = None) -> Iterator[Metric]:
    """Yield the metrics of one line of timings.

    Args:
        timing: as returned by `read_timing`.
        verbosity: the verbosity of the rate.
        scenario: the scenario of the metrics, if a log has several.
    """
    part, milliseconds, count, rate, derived = timing
    if not milliseconds:
        return
    own: dict[str, MetadataValue] = {"derived_from": "tokens and milliseconds"} if derived else {}
    if rate:
        text = "prompt processing" if part == "prompt" else "generation of one sequence"
        yield Metric(
            f"{part}_tokens_per_second", rate, "tokens/s", Relativity.HIGHER, text, verbosity,
            metadata=own, scenario=scenario,
        )  # fmt: skip
    yield Metric(
        f"{part}_time",
        milliseconds / 1000,
        "seconds",
        Relativity.LOWER,
        verbosity=max(verbosity, 2),
        metadata={"tool_value": milliseconds, "tool_unit": "ms"},
        scenario=scenario,
    )
    if count is not None and part in _COUNTS:
        yield Metric(_COUNTS[part], count, "count", verbosity=3, scenario=scenario)
