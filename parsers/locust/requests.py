"""Reads requests-<process>.jsonl: when each user sent each request, and when each part of its reply came."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from parsers.json_text import read_json
from parsers.trees import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_LARGEST = 1e18
"""No time, rate or count is this large."""

_ROUNDED_S = 1e-4
"""Rounding error of times in the log."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of one user; times in seconds of a clock that all of a test's processes share.

    Args:
        user: the user that sent it.
        sent_s: the time of sending.
        latency_s: time from sending to the end of the reply, or to the failure.
        arrivals_s: time from sending to each part of the reply; a part is usually one token.
        input_tokens: tokens of the prompt as counted by the server; None if not reported.
        output_tokens: tokens of the reply as counted by the server; None if not reported.
        cached_tokens: prompt tokens that came from the server's cache; None if not reported.
        timings: the server's own timings, under its own names.
        error: the error; empty for none.
        prompt_crc32: checksum of the prompt; None if not logged.
        text_crc32: checksum of the reply's text; None if not logged.
        text_bytes: length of the reply's text in bytes; None if not logged.
        is_blank: True if the reply is only whitespace.
        blank_parts: number of its parts that are only whitespace; None if not logged.
        begins_crc32: checksums of the text up to each of its first parts; empty if not logged.
        begins_blank: True if its first part is only whitespace.
        oddities: contradictions in the reply, by the names of ``parsers.replies``.
        build: the server's build, or the provider, that the reply names; empty for none.
    """

    user: str
    sent_s: float
    latency_s: float
    arrivals_s: Sequence[float] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    prompt_crc32: int | None = None
    text_crc32: int | None = None
    text_bytes: int | None = None
    is_blank: bool = False
    blank_parts: int | None = None
    begins_crc32: Sequence[int] = ()
    begins_blank: bool = False
    oddities: tuple[str, ...] = ()
    build: str = ""

    @property
    def ended_s(self) -> float:
        """Time at which the request ended."""
        return self.sent_s + self.latency_s

    @property
    def ttft_s(self) -> float:
        """Time from sending to the first part of the reply, in seconds."""
        return self.arrivals_s[0]

    @property
    def tpot_s(self) -> float | None:
        """Seconds for each output token after the first; None if there was only one."""
        tokens = self.output_tokens or 0
        return (self.arrivals_s[-1] - self.arrivals_s[0]) / (tokens - 1) if tokens > 1 else None


@dataclass(frozen=True, slots=True)
class LoadLog:
    """All data that the processes of a test wrote.

    Args:
        requests: in the order in which they were sent.
        processes: number of processes that wrote a log.
        client_cpu: the largest share of one CPU that a process used; None if none ended normally.
        unread: lines that were incomplete or impossible and therefore ignored.
        why: the problem with the first of them.
        sent: how many requests the processes say that they sent; None if any process does not report it.
    """

    requests: tuple[Request, ...]
    processes: int
    client_cpu: float | None
    unread: int
    why: str = ""
    sent: int | None = None


def request_files(folder: Path) -> list[Path]:
    """Return the logs of a test's processes."""
    return sorted(folder.glob("requests-*.jsonl"))


def read_requests(folder: Path) -> LoadLog:
    """Read the logs of all processes of a test.

    Raises:
        ParseError: if there are none.
    """
    files = request_files(folder)
    if not files:
        raise ParseError(
            "no user wrote a line: requests-*.jsonl is missing",
            where=str(folder),
            remedy="see locust's own output for the reason",
        )
    requests: list[Request] = []
    shares: list[float] = []
    sent: list[int] = []
    wrong: list[str] = []
    for path in files:
        for line in text_of(path).splitlines():
            try:
                values = read_json(line)
                if values["event"] == "request":
                    requests.append(_request(values))
                elif values["event"] == "client" and (elapsed_s := _number(values["elapsed_s"])):
                    shares.append(_number(values["cpu_s"]) / elapsed_s)
                    if (count := _count(values.get("sent"))) is not None:
                        sent.append(count)
            except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
                wrong.append(str(error)[:120])
    requests.sort(key=lambda request: request.sent_s)
    all_sent = sum(sent) if len(sent) == len(files) else None
    shares = [share for share in shares if math.isfinite(share)]
    why = wrong[0] if wrong else ""
    return LoadLog(
        tuple(_in_order(requests)), len(files), max(shares, default=None), len(wrong), why, all_sent
    )


def _in_order(requests: Iterable[Request]) -> Iterator[Request]:
    """Yield the requests in order; a request whose times run backwards counts as failed."""
    ended_s: dict[str, float] = {}
    for request in requests:
        times = (0.0, *request.arrivals_s, request.latency_s + _ROUNDED_S)
        error = request.error
        if not error and any(later < earlier for earlier, later in pairwise(times)):
            error = "its times run backwards"
        elif not error and request.sent_s + _ROUNDED_S < ended_s.get(request.user, 0.0):
            error = "it was sent before the same user's last one had ended"
        ended_s[request.user] = request.ended_s
        yield replace(request, error=error) if error != request.error else request


def _request(values: Mapping[str, Any]) -> Request:
    """Return the request of one line; raise KeyError, TypeError or ValueError if it is not valid."""
    request = Request(
        user=str(values["user"]),
        sent_s=_number(values["sent_s"]),
        latency_s=_number(values["latency_s"]),
        arrivals_s=tuple(map(_number, values["arrivals_s"])),
        input_tokens=_count(values["input_tokens"]),
        output_tokens=_count(values["output_tokens"]),
        cached_tokens=_count(values["cached_tokens"]),
        timings={str(name): _number(value) for name, value in dict(values["timings"]).items()},
        error=str(values["error"]),
        prompt_crc32=_count(values.get("prompt_crc32")),
        text_crc32=_count(values.get("text_crc32")),
        text_bytes=_count(values.get("text_bytes")),
        is_blank=values.get("is_blank") is True,
        blank_parts=_count(values.get("blank_parts")),
        begins_crc32=tuple(map(int, values.get("begins_crc32") or ())),
        begins_blank=values.get("begins_blank") is True,
        oddities=tuple(map(str, values.get("oddities") or ())),
        build=str(values.get("build") or ""),
    )
    if not request.error and not (request.arrivals_s and request.output_tokens):
        raise ValueError("a successful request must have a reply")
    return request


def _number(value: Any) -> float:
    """Return a finite number that is not negative; json also reads NaN and Infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{str(value)[:40]!r} is not a number")
    if not 0 <= value < _LARGEST:
        raise ValueError(f"{str(value)[:40]} is not a time, rate or count")
    return float(value)


def _count(value: Any) -> int | None:
    """Return a whole number that is not negative, or None if the server did not report it."""
    if value is None:
        return None
    number = _number(value)
    if not number.is_integer():
        raise ValueError(f"{value!r} is not a count")
    return int(number)
