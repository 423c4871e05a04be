"""requests-<process>.jsonl: what each user sent when, and when each part of the reply came."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from parsers.trees import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_LARGEST = 1e18
"""No time, rate or count is as large."""

_ROUNDED_S = 1e-4
"""By how much times of the log may be rounded."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of one user; times in seconds of a clock that all of a test's processes share.

    Args:
        user: who sent it.
        sent_s: when.
        latency_s: from there to the end of the reply, or to its failure.
        arrivals_s: from there to each part of the reply; a part is a token, as a rule.
        input_tokens: tokens of the prompt as the server counts them; None where it did not say.
        output_tokens: likewise of the reply.
        cached_tokens: prompt tokens that it took from a cache; None where it did not say.
        timings: the server's own, as it names them.
        error: what went wrong; empty for nothing.
        prompt_crc32: of its prompt; None where the log does not say.
        text_crc32: of the reply's text; likewise.
        text_bytes: the length of that; likewise.
        is_blank: whether the reply is whitespace alone.
        begins_blank: whether its first part is.
        oddities: what no honest reply has, by the names of ``parsers.replies``.
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
    begins_blank: bool = False
    oddities: tuple[str, ...] = ()

    @property
    def ended_s(self) -> float:
        """When it was over."""
        return self.sent_s + self.latency_s

    @property
    def ttft_s(self) -> float:
        """From sending to the first part of the reply, in seconds."""
        return self.arrivals_s[0]

    @property
    def tpot_s(self) -> float | None:
        """Seconds for each output token after the first; None where there was only one."""
        tokens = self.output_tokens or 0
        return (self.arrivals_s[-1] - self.arrivals_s[0]) / (tokens - 1) if tokens > 1 else None


@dataclass(frozen=True, slots=True)
class LoadLog:
    """All that the processes of a test wrote.

    Args:
        requests: in the order in which they were sent.
        processes: how many wrote.
        client_cpu: the largest share of one CPU that a process used; None where none ended in order.
        unread: lines that were cut or cannot be true: they are left out.
        why: what is wrong with the first of them.
        sent: how many requests the processes say that they sent; None where not all of them do.
    """

    requests: tuple[Request, ...]
    processes: int
    client_cpu: float | None
    unread: int
    why: str = ""
    sent: int | None = None


def request_files(folder: Path) -> list[Path]:
    """The logs of a test's processes."""
    return sorted(folder.glob("requests-*.jsonl"))


def read_requests(folder: Path) -> LoadLog:
    """Read the logs of all processes of a test.

    Raises:
        ParseError: if there are none.
    """
    files = request_files(folder)
    if not files:
        raise ParseError(
            "no user wrote a line: there is no requests-*.jsonl",
            where=str(folder),
            remedy="locust's own output says why it has no users",
        )
    requests: list[Request] = []
    shares: list[float] = []
    sent: list[int] = []
    wrong: list[str] = []
    for path in files:
        for line in text_of(path).splitlines():
            try:
                values = json.loads(line)
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
    """The requests; one whose times run backwards has failed."""
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
    """One line; raises KeyError, TypeError or ValueError where it makes no sense."""
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
        begins_blank=values.get("begins_blank") is True,
        oddities=tuple(map(str, values.get("oddities") or ())),
    )
    if not request.error and not (request.arrivals_s and request.output_tokens):
        raise ValueError("a request that succeeded has a reply")
    return request


def _number(value: Any) -> float:
    """A finite number that is not negative; json reads NaN and Infinity as well."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{str(value)[:40]!r} is not a number")
    if not 0 <= value < _LARGEST:
        raise ValueError(f"{str(value)[:40]} is not a time, rate or count")
    return float(value)


def _count(value: Any) -> int | None:
    """A whole number that is not negative; None for what the server did not say."""
    if value is None:
        return None
    number = _number(value)
    if not number.is_integer():
        raise ValueError(f"{value!r} is not a count")
    return int(number)
