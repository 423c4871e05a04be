"""The requests of a point, from samples.csv, and which of them meet the limits."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.core.errors import ParseError
from parsers.numbers import finite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SAMPLES_FILE = "samples.csv"
_COLUMNS = ("issued_s", "first_token_s", "completed_s", "output_tokens")


class Request(NamedTuple):
    """A request; moments in seconds since the first was due; None where it did not come so far."""

    due_s: float
    first_token_s: float | None
    completed_s: float | None
    tokens: int

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.due_s

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds for each token behind the first; None for an answer of one."""
        if self.first_token_s is None or self.completed_s is None or self.tokens < 2:  # noqa: PLR2004
            return None
        return (self.completed_s - self.first_token_s) / (self.tokens - 1)

    @property
    def latency_s(self) -> float | None:
        """Seconds to the whole answer; None for a request that failed."""
        return None if self.completed_s is None else self.completed_s - self.due_s


TIMES = ("ttft", "tpot", "latency")
"""What may be limited: time to the first token, time per output token, end-to-end latency."""


@dataclass(frozen=True)
class Limits:
    """What an answer may take, in seconds; None for no limit.

    Args:
        ttft_s: time to the first token.
        tpot_s: time per output token behind the first.
        latency_s: end to end.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    latency_s: float | None = None

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Limits:
        """Take the limits of an object; raise ValueError for one that is not a number above 0."""
        found = {field.name: values.get(field.name) for field in fields(cls)}
        for name, value in found.items():
            if value is not None and (finite(value) is None or value <= 0):
                raise ValueError(f"{name} is {value!r}, which is not a limit in seconds")
        return cls(**found)

    def __bool__(self) -> bool:
        """Return True if anything is limited."""
        return any(value is not None for value in vars(self).values())

    def met_by(self, request: Request) -> bool:
        """Return True if a request was answered within every limit; one token has no time per token."""
        if request.completed_s is None:
            return False
        for name in TIMES:
            limit_s, took_s = getattr(self, f"{name}_s"), getattr(request, f"{name}_s")
            if limit_s is not None and took_s is not None and took_s > limit_s:
                return False
        return True


def read_requests(path: Path) -> list[Request]:
    """Read samples.csv.

    Raises:
        ParseError: if it cannot be read, holds no request, or a row that makes no sense.
    """
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if not rows:
        raise ParseError("no request was sent", where=str(path), remedy="see the step's log")
    try:
        return [_request(row) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ParseError(f"a row is cut or makes no sense: {error}", where=str(path)) from error


def _request(row: Mapping[str, str | None]) -> Request:
    due_s, first_s, ended_s, tokens = (_number(row[name]) for name in _COLUMNS)
    times = [moment for moment in (due_s, first_s, ended_s) if moment is not None]
    if due_s is None or times != sorted(times) or (tokens or 0) < 0:
        raise ValueError(f"moments {times}, tokens {tokens}")
    return Request(due_s, first_s, ended_s, int(tokens or 0))


def _number(text: str | None) -> float | None:
    if not text:
        return None
    value = finite(float(text))
    if value is None:
        raise ValueError(f"{text} is not a finite number")
    return value
