"""Reads timings of single requests: llama-server's logs, and the line that llama-cli prints since 2025.

A server's log has three lines for each request, in milliseconds. In 2024 each begins with
``print_timings``; in 2025 they follow a line that names slot and task; since 2026 each line names both.
llama-cli prints a line after each reply: ``[ Prompt: 512.3 t/s | Generation: 45.6 t/s ]``.
Sources: tools/server/server-context.cpp, in 2024 examples/server/server.cpp; tools/cli/cli.cpp.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity
from parsers.llamacpp.timings import metrics_of, read_timing
from parsers.numbers import measured

if TYPE_CHECKING:
    from collections.abc import Iterator

_PART = r"(?P<part>prompt eval|generation eval|eval|total) time\s+="
_SLOT = re.compile(r"slot +print_timing: id +(?P<slot>\d{1,9}) \| task (?P<task>-?\d{1,18}) \|(?P<rest>.*)$")
_TIMING = re.compile(rf"\s*{_PART}(?P<rest>.*)$")
_OLD = re.compile(rf'(?<!llama_)print_timings\b.{{0,60}}?\b{_PART}(?P<rest>[^|"]*)(?P<about>.*)$')
_OLD_IDS = re.compile(
    r"(?:id_slot|slot_id)\W+(?P<slot>\d{1,9})\b.*?(?:id_task|task_id)\W+(?P<task>-?\d{1,18})"
)
_DRAFTED = re.compile(r"\s*draft acceptance(?: rate)? = (?P<rate>\S+) \(.*$")
_CHAT = re.compile(
    r"^.*\[ Prompt: (?P<prompt>.*?) \| Generation: (?P<generation>.*?) \][ \t]*$", re.MULTILINE
)
_RATE = re.compile(r"(\S+) t/s")


def has_slots(text: str) -> bool:
    """Return True if a text is a server's log with timings."""
    return next(_lines(text), None) is not None


def has_chat(text: str) -> bool:
    """Return True if a text contains llama-cli's line."""
    return _CHAT.search(text) is not None


def slot_result(text: str) -> tuple[tuple[Metric, ...], bool]:
    """Return the timings of each request in a scenario of its own, and True if all have their last line.

    Raises:
        ParseError: if a line of timings does not have the server's format, or there is no such line.
    """
    metrics: list[Metric] = []
    occurrences = Counter[str]()
    scenarios: dict[str, str] = {}
    open_requests: set[str] = set()
    for name, line in _lines(text):
        timing, drafted = _TIMING.match(line), _DRAFTED.match(line)
        if timing is None and drafted is None:
            continue
        if name not in scenarios or (timing and timing["part"] == "prompt eval"):
            occurrences[name] += 1
            scenarios[name] = name if occurrences[name] == 1 else f"{name}/{occurrences[name]}"
        scenario = scenarios[name]
        if drafted and (accepted := measured(drafted["rate"], "the draft acceptance")) is not None:
            text_of_it = "share of drafted tokens that were accepted"
            metrics.append(
                Metric(
                    "draft_acceptance", accepted, "ratio", Relativity.HIGHER, text_of_it, 2, scenario=scenario
                )
            )
        if timing:
            metrics += metrics_of(read_timing(timing["part"], timing["rest"]), scenario=scenario)
            (open_requests.discard if timing["part"] == "total" else open_requests.add)(scenario)
    if not metrics:
        raise ParseError("the server's log holds no timing of a request")
    return tuple(metrics), not open_requests


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line of timings without its prefix, and the request of that line."""
    name, follows = "", False
    for line in text.splitlines():
        if slot := _SLOT.search(line):
            name, follows = f"slot{slot['slot']}-task{slot['task']}", not slot["rest"].strip()
            if not follows:
                yield name, slot["rest"]
        elif old := _OLD.search(line):
            ids = _OLD_IDS.search(old["about"])
            yield (
                f"slot{ids['slot']}-task{ids['task']}" if ids else "request",
                f"{old['part']} time ={old['rest'].rstrip()}",
            )
        elif follows:
            follows = bool(_TIMING.match(line) or _DRAFTED.match(line))
            if follows:
                yield name, line


def chat_metrics(text: str) -> tuple[Metric, ...]:
    """Return the rates of prompt and generation after each reply.

    Raises:
        ParseError: if a rate is not in tokens per second, or none was measured.
    """
    lines = list(_CHAT.finditer(text))
    metrics = []
    for number, line in enumerate(lines, 1):
        scenario = f"reply-{number}" if len(lines) > 1 else None
        for part, text_of_it in (
            ("prompt", "prompt processing"),
            ("generation", "generation of one sequence"),
        ):
            match = _RATE.fullmatch(line[part])
            if match is None:
                raise ParseError(f"the rate of {part} is {line[part][:60]!r}, which is not in t/s")
            if rate := measured(match[1], f"the rate of {part}"):
                name = f"{part}_tokens_per_second"
                metrics.append(
                    Metric(name, rate, "tokens/s", Relativity.HIGHER, text_of_it, scenario=scenario)
                )
    if not metrics:
        raise ParseError("llama-cli measured no tokens per second")
    return tuple(metrics)
