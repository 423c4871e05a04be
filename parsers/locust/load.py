"""Reads a load test's folder: throughput with all users active, latencies, and whether the test counts.

Locust's own table is not enough: it rounds times above 100 ms to two digits (locust/stats.py,
StatsEntry._log_response_time), does not count tokens, and may lack the requests of the last second.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Reason, Relativity, Validity, Verdict
from parsers.locust.requests import LoadLog, Request, read_requests, request_files
from parsers.locust.tables import requests_counted
from parsers.numbers import finite
from parsers.replies import (
    ENOUGH_FOR_PACE,
    ENOUGH_TOKENS,
    FIRST_PARTS,
    GATHERED_S_PER_TOKEN,
    GATHERED_SHARE,
    LEAST_S_PER_TOKEN,
    LONG_PAUSE_S,
    MOSTLY,
    SLACK_S,
    SLACK_SHARE,
    Replies,
    judge,
)
from parsers.trees import files_in, json_of, parse_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.core.records import MetadataValue

FORMAT = "locust_load"
LOAD_FILE = "load.json"
PERCENTILES = (50, 90, 95, 99)
BUSY_CLIENT = 0.9
"""The share of one CPU above which a process of users measures its own speed, not the server's."""
_HIGHER, _LOWER, _PLAIN = Relativity.HIGHER, Relativity.LOWER, Relativity.UNDEFINED
_KINDS_OF_FAILURE = 5
_PARTS = 10
"""Parts of the time with all users active, from which the spread of the rate follows."""
_MOST = 10**12
_RATE_TOLERANCE = 0.01


def _folders(tree: Path) -> Iterator[Path]:
    """Yield the folders of load tests in a tree."""
    for file in files_in(tree):
        if file.name == LOAD_FILE and request_files(file.parent):
            yield file.parent


def recognise(path: Path) -> bool:
    """Return True if a folder is from a load test, or contains such a folder at any depth."""
    return path.is_dir() and next(_folders(path), None) is not None


def parse(path: Path) -> list[ParsedOutput]:
    """Read a load test's folder, or all such folders in a folder.

    Raises:
        ParseError: if the only one cannot be read: load.json is not valid, or no request was sent.
    """
    folders = list(_folders(path)) if path.is_dir() else []
    return parse_folders(path, folders, FORMAT, "locust", parse_folder)


def parse_folder(path: Path) -> ParsedOutput:
    """Read the folder of one load test.

    Raises:
        ParseError: if load.json cannot be read, or no request was sent.
    """
    try:
        load = json_of(path / LOAD_FILE)
        if not isinstance(load, dict):
            raise TypeError("it is not an object")
        asked = _Asked.read(load)
    except (ParseError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ParseError(f"{LOAD_FILE} cannot be read: {str(error)[:200]}", where=str(path)) from error
    log = read_requests(path)
    if not log.requests:
        raise ParseError("no request was sent", where=str(path), remedy="see locust's output")
    window = _window(log.requests, asked.users)
    good = [request for request in log.requests if not request.error]
    counted = [request for request in good if window and window.holds(request)]
    judgement = judge(_replies(good))
    lost = max(_sent(load, path, log) - len(log.requests) - log.unread, 0)
    reasons = (*_reasons(log, asked, counted, good, lost=lost), *judgement.reasons)
    return ParsedOutput(
        format=FORMAT,
        tool_name="locust",
        tool_version=str(load.get("locust_version", "")),
        scenario=asked.scenario,
        metrics=(
            *_throughput(good, counted, asked, window),
            *_latencies(counted),
            *_counts(log, good, asked, lost=lost),
        ),
        verdict=Verdict(
            Validity.FAILED if not good else Validity.INVALID if reasons else Validity.VALID,
            reasons,
            (*_warnings(log, load, asked), *judgement.warnings),
        ),
        complete=not log.unread,
        details=_details(load, log, window),
        sources=(str(path / LOAD_FILE), *map(str, request_files(path))),
    )


@dataclass(frozen=True)
class _Asked:
    scenario: str
    users: int
    input_tokens: int
    output_tokens: int

    @classmethod
    def read(cls, load: Mapping[str, Any]) -> _Asked:
        """Raise KeyError, TypeError, ValueError or OverflowError if the values are not valid."""
        counts = [int(load[name]) for name in ("users", "input_tokens", "output_tokens")]
        if min(counts) < 1 or max(counts) > _MOST:
            raise ValueError("users, input tokens and output tokens must be positive")
        return cls(str(load["scenario"]), *counts)


def _sent(load: Mapping[str, Any], folder: Path, log: LoadLog) -> int:
    """Return the requests sent: the largest count of users' processes, load.json and locust's table."""
    told = max(log.sent or 0, finite(load.get("requests_sent")) or 0)
    for table in sorted(folder.glob("*_stats.csv")):
        with suppress(ParseError):  # an incomplete table does not affect the users' logs
            told = max(told, requests_counted(table))
    return int(min(told, _MOST))


@dataclass(frozen=True)
class _Window:
    """The time during which every user was active, in seconds."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s

    def holds(self, request: Request) -> bool:
        """Return True if at least half of a request lies within the window."""
        inside_s = min(request.ended_s, self.end_s) - max(request.sent_s, self.start_s)
        return inside_s * 2 >= request.latency_s

    def tokens(self, request: Request) -> float:
        """Return the output tokens within the window; each part of a reply has an equal share of them."""
        inside = sum(self.start_s <= request.sent_s + offset <= self.end_s for offset in request.arrivals_s)
        return inside * (request.output_tokens or 0) / len(request.arrivals_s)

    def rate_stderr(self, requests: Sequence[Request]) -> float:
        """Return the standard error of the rate of output tokens, from equal parts of the window.

        Law, Simulation Modeling and Analysis, 9.5.3: batch means.
        """
        length_s = self.length_s / _PARTS
        counts = [0.0] * _PARTS
        for request in requests:
            share = (request.output_tokens or 0) / len(request.arrivals_s)
            for offset in request.arrivals_s:
                arrived_s = request.sent_s + offset
                if self.start_s <= arrived_s <= self.end_s:
                    counts[min(int((arrived_s - self.start_s) / length_s), _PARTS - 1)] += share
        return statistics.stdev(count / length_s for count in counts) / math.sqrt(_PARTS)


def _window(requests: Sequence[Request], users: int) -> _Window | None:
    """Return the time from the last user's first request to the first user's last reply, or None."""
    by_user: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        by_user[request.user].append(request)
    start_s = max(own[0].sent_s for own in by_user.values())
    end_s = min(own[-1].ended_s for own in by_user.values())
    return _Window(start_s, end_s) if len(by_user) == users and end_s > start_s else None


def _replies(requests: Sequence[Request]) -> Replies:
    """Return the contradictions within the replies, as ``parsers.replies`` judges them."""
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    owners: dict[int, int | None] = {}
    begins: Counter[int] = Counter()
    builds = [request.build for request in requests if request.build]
    counts["other_build"] = sum(later != earlier for earlier, later in pairwise(builds))
    for request in requests:
        tokens = request.output_tokens or 0
        sums.update(replies=1, streamed_tokens=tokens, parts=len(request.arrivals_s))
        if request.text_bytes is not None:
            sums.update(tokens=tokens, text_bytes=request.text_bytes)
        if request.blank_parts is not None:
            sums.update(blank_parts=request.blank_parts)
        counts.update(request.oddities)
        counts.update(_contradictions(request, tokens))
        if tokens >= ENOUGH_FOR_PACE and (paused := _paused_at(request)) is not None:
            kind = "paused_blank" if request.begins_blank and not paused else "halted" if paused else "paused"
            counts[kind] += 1
            if kind != "paused_blank" and paused < len(request.begins_crc32):
                begins[request.begins_crc32[paused]] += 1
        if request.text_crc32 is not None and tokens >= ENOUGH_TOKENS and not request.is_blank:
            owner = owners.setdefault(request.text_crc32, request.prompt_crc32)
            counts["shared_text"] += owner != request.prompt_crc32
    if (most := max(begins.values(), default=0)) > 1:
        counts["paused_alike"] = most
    return Replies(counts=counts, sums=sums)


def _paused_at(request: Request) -> int | None:
    """Return the place of the first part before a pause that takes most of the stream; None if none does.

    Only the first quarter of a reply is considered, in which a server can hide its time to the first token.
    """
    arrivals = request.arrivals_s
    if arrivals[-1] - arrivals[0] < (request.output_tokens or 0) * LEAST_S_PER_TOKEN:
        return None  # a burst
    long_s = max(LONG_PAUSE_S, MOSTLY * (arrivals[-1] - arrivals[0]))
    first = max(1, (request.output_tokens or 0) // FIRST_PARTS)
    pauses = (later - earlier > long_s for earlier, later in pairwise(arrivals[: first + 1]))
    return next((place for place, is_long in enumerate(pauses) if is_long), None)


def _contradictions(request: Request, tokens: int) -> Iterator[str]:
    """Yield the contradictions within one reply, by the names of ``parsers.replies``."""
    if request.is_blank:
        yield "blank"
    elif tokens >= ENOUGH_FOR_PACE and (request.text_bytes or tokens) < tokens:
        yield "little_text"
    if len(request.arrivals_s) > tokens:
        yield "more_parts"
    yield from _timed(request, tokens)
    if tokens >= ENOUGH_TOKENS and request.latency_s < tokens * LEAST_S_PER_TOKEN:
        yield "too_fast"
    if tokens >= ENOUGH_FOR_PACE:
        yield from _paced(request, tokens)


def _timed(request: Request, tokens: int) -> Iterator[str]:
    """Yield the contradictions of the server's own timings."""
    timings = request.timings
    if timings.get("predicted_n", tokens) != tokens:
        yield "timed_tokens"
    worked_s = (timings.get("prompt_ms", 0.0) + timings.get("predicted_ms", 0.0)) / 1000
    if worked_s > request.latency_s * SLACK_SHARE + SLACK_S:
        yield "worked_longer"
    rate, predicted_s = timings.get("predicted_per_second"), timings.get("predicted_ms", 0.0) / 1000
    if rate and predicted_s and tokens > 1:
        # Newer servers do not count the first token of an answer, whose time is the prompt's.
        possible = [count / predicted_s for count in (tokens, tokens - 1)]
        if not any(math.isclose(rate, fitting, rel_tol=_RATE_TOLERANCE) for fitting in possible):
            yield "timed_rate"


def _paced(request: Request, tokens: int) -> Iterator[str]:
    """Yield the contradictions of a stream's pace."""
    arrivals = request.arrivals_s
    streamed_s = arrivals[-1] - arrivals[0]
    if streamed_s < tokens * LEAST_S_PER_TOKEN:
        yield "burst"
    elif streamed_s < tokens * GATHERED_S_PER_TOKEN and arrivals[0] > GATHERED_SHARE * request.latency_s:
        yield "gathered"
    predicted_s = request.timings.get("predicted_ms", 0.0) / 1000
    if predicted_s and 2 * predicted_s + SLACK_S < streamed_s:
        yield "worked_shorter"


def _reasons(
    log: LoadLog, asked: _Asked, counted: Sequence[Request], good: Sequence[Request], *, lost: int
) -> Iterator[Reason]:
    if lost:
        yield Reason(
            f"{lost} of {lost + len(log.requests)} requests were sent but have no recorded reply",
            "see locust's output for processes that ended, and whether the disk is full",
            code="requests_lost",
        )
    if failures := len(log.requests) - len(good):
        kinds = Counter(request.error for request in log.requests if request.error)
        told = "; ".join(f"{count} of {error!r}" for error, count in kinds.most_common(_KINDS_OF_FAILURE))
        yield Reason(
            f"{failures} of {len(log.requests)} requests failed: {told}",
            "see the server's log; fewer users, a larger context or a longer request_timeout may help",
            code="request_failures",
        )
    if good and not counted:
        at_work = len({request.user for request in log.requests})
        yield Reason(
            f"the {asked.users} users were never all active during a whole request ({at_work} sent one)",
            "raise duration, or spawn_rate",
            "duration",
            code="users_at_work",
        )
    if cached := sum(map(_cached, log.requests)):
        yield Reason(
            f"the server took {cached} prompt tokens from a cache of earlier prompts",
            "switch prompt caching off in the server",
            "cache_prompt",
            False,
            "prompt_cache",
        )
    if log.client_cpu is not None and log.client_cpu > BUSY_CLIENT:
        yield Reason(
            f"a process of users took {log.client_cpu:.0%} of one CPU: it measured itself",
            "share the users out among more processes",
            "workers",
            log.processes * 2,
            "client_busy",
        )
    if log.unread:
        yield Reason(
            f"{log.unread} lines of the users' logs were incomplete or impossible and ignored: {log.why}",
            "see locust's output, and whether the host's clock was stepped",
            code="cut_log",
        )


def _warnings(log: LoadLog, load: Mapping[str, Any], asked: _Asked) -> Iterator[str]:
    slots = load.get("slots")
    if isinstance(slots, int) and finite(slots) is not None and slots < asked.users:
        yield f"{asked.users} users share {slots} slots of the server: requests wait for a slot"
    if any(not request.error and request.cached_tokens is None for request in log.requests):
        yield "cache use unknown: the server does not report how many prompt tokens came from a cache"
    if log.client_cpu is None:
        yield "the CPU use of the users' processes is unknown: none ended normally"


def _throughput(
    good: Sequence[Request], counted: Sequence[Request], asked: _Asked, window: _Window | None
) -> Iterator[Metric]:
    if window is None or not counted:
        return
    rate = sum(map(window.tokens, good)) / window.length_s
    while_all = "while all users were at work"
    each = rate / asked.users
    yield Metric("output_tokens_per_second", rate, "tokens/s", _HIGHER, f"of all users, {while_all}")
    yield Metric("output_tokens_per_second_per_user", each, "tokens/s", _HIGHER, f"of one user, {while_all}")
    if len(counted) >= _PARTS:
        error = window.rate_stderr(good)
        text = f"standard error, from {_PARTS} parts of that time"
        yield Metric("output_tokens_per_second_stderr", error, "tokens/s", _LOWER, text, 2)
    started = sum(window.start_s <= request.sent_s + request.ttft_s <= window.end_s for request in good)
    if started:
        prompts = started * asked.input_tokens / window.length_s
        yield Metric("input_tokens_per_second", prompts, "tokens/s", _HIGHER, f"prompts, {while_all}", 2)
    ended = sum(window.start_s <= request.ended_s <= window.end_s for request in good)
    if ended:
        yield Metric(
            "requests_per_second", ended / window.length_s, "requests/s", _HIGHER, f"ended, {while_all}", 2
        )


def _latencies(counted: Sequence[Request]) -> Iterator[Metric]:
    gaps = [after - before for request in counted for before, after in pairwise(request.arrivals_s)]
    tpot = [request.tpot_s for request in counted if request.tpot_s is not None]
    kinds: Iterable[tuple[str, list[float], str, int]] = (
        ("ttft", [request.ttft_s for request in counted], "from sending to the first token", 1),
        ("tpot", tpot, "per token after the first", 1),
        ("inter_token_latency", gaps, "from one part of a reply to the next", 2),
        ("latency", [request.latency_s for request in counted], "from sending to the end of the reply", 2),
    )
    for name, values, text, verbosity in kinds:
        if not values:
            continue
        values.sort()
        mean = math.fsum(values) / len(values)
        yield Metric(f"{name}_mean", mean, "seconds", _LOWER, f"{text}, mean", verbosity)
        for percent in PERCENTILES:
            # As in LoadGen (loadgen/results.cc); without a value above it, it is only the maximum.
            place = len(values) * percent // 100
            if place < len(values) - 1:
                told = verbosity if percent in {50, 99} else 3
                yield Metric(f"{name}_p{percent}", values[place], "seconds", _LOWER, text, told)
        yield Metric(f"{name}_max", values[-1], "seconds", _LOWER, f"{text}, largest", 3)


def _cached(request: Request) -> int:
    """Return the prompt tokens that came from a cache, from the server's report or its timings."""
    told, computed = request.cached_tokens or 0, request.timings.get("prompt_n")
    if request.error or computed is None or request.input_tokens is None:
        return told
    return max(told, request.input_tokens - int(computed))


def _counts(log: LoadLog, good: Sequence[Request], asked: _Asked, *, lost: int) -> Iterator[Metric]:
    total = len(log.requests)
    yield Metric("requests_lost", lost, "count", _LOWER, "requests sent without a recorded reply", 2)
    yield Metric("users", asked.users, "count", _PLAIN, "users at once", 2)
    yield Metric("request_count", total, "count", _PLAIN, "requests, failed ones included", 2)
    yield Metric("request_failures", total - len(good), "count", _LOWER, "failed requests", 2)
    yield Metric("request_failure_ratio", (total - len(good)) / total, "ratio", _LOWER, "failed requests", 1)
    if log.client_cpu is not None:
        text = "of one CPU, by the busiest process of users"
        yield Metric("client_cpu", log.client_cpu, "ratio", _LOWER, text, 3)
    for name, key in (("server_prompt", "prompt"), ("server_generation", "predicted")):
        yield from _server_rate(name, key, good)


def _server_rate(name: str, key: str, good: Sequence[Request]) -> Iterator[Metric]:
    """Yield the mean tokens/s of one request by llama.cpp's own timings, over all of its time."""
    rate, milliseconds = f"{key}_per_second", f"{key}_ms"
    told = [
        request.timings for request in good if request.timings.get(milliseconds) and rate in request.timings
    ]
    if told:
        whole = sum(timings[milliseconds] for timings in told)
        mean = sum(timings[rate] * timings[milliseconds] for timings in told) / whole
        text = "of one request, by the server's own timings"
        yield Metric(f"{name}_tokens_per_second", mean, "tokens/s", _HIGHER, text, 3)


def _details(load: Mapping[str, Any], log: LoadLog, window: _Window | None) -> dict[str, MetadataValue]:
    own = {
        name: value
        for name, value in load.items()
        if isinstance(value, str | bool) or finite(value) is not None
    }
    return {**own, "processes": log.processes, **({"window_s": round(window.length_s, 3)} if window else {})}
