"""Reads Prometheus' text format, which servers use at /metrics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agent.core.errors import ParseError
from parsers.numbers import number

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][\w:]*)(?P<labels>\{.*\})?[ \t]+(?P<value>\S+)(?:[ \t]+-?\d{1,18})?[ \t]*", re.ASCII
)
_LABEL = re.compile(r'(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One number of a server's output.

    Args:
        name: the metric's name.
        labels: its labels, in their order.
        value: the number; None for NaN and infinity.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float | None


def begins_with(text: str, prefix: str) -> bool:
    """Return True if a text has a sample, or a sample's help or type, whose name begins with a prefix."""
    pattern = rf"^(?:# (?:HELP|TYPE) )?{re.escape(prefix)}\w"
    return re.search(pattern, text, re.MULTILINE) is not None


def read_samples(text: str, prefix: str) -> Iterator[Sample]:
    """Yield the samples whose names begin with a prefix.

    Args:
        text: the server's output, up to its last complete line.
        prefix: a prefix such as ``vllm:``.

    Raises:
        ParseError: if a line is not a sample, its value is not a number, or a sample occurs twice.
    """
    seen = set()
    for line in text.splitlines():
        if not line.startswith(prefix):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            raise ParseError(
                f"a line is not a sample: {line[:80]}", remedy="see whether the file was changed"
            )
        labels = tuple(_LABEL.findall(match["labels"] or ""))
        if (match["name"], labels) in seen:
            raise ParseError(
                f"{match['name']} occurs twice: the text contains several outputs",
                remedy="keep each output in a file of its own",
            )
        seen.add((match["name"], labels))
        # Prometheus writes +Inf and NaN.
        yield Sample(match["name"], labels, number(match["value"], match["name"]))
