"""The folder of a point: its metrics, and a verdict on whether they are the endpoint's own."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Reason, Relativity, Validity, Verdict
from parsers.endpoint_load.requests import SAMPLES_FILE, TIMES, Limits, Request, read_requests
from parsers.numbers import finite
from parsers.replies import Replies, judge
from parsers.trees import files_in, json_of, parse_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.core.records import MetadataValue

FORMAT = "endpoint_load"
LOAD_FILE = "endpoint_load.json"
RESULT_FILE = "endpoint_load_result.json"
PERCENTILES = (50, 90, 95, 99)
_HEADLINES = (50, 99)
_HIGHER, _LOWER, _PLAIN = Relativity.HIGHER, Relativity.LOWER, Relativity.UNDEFINED
_BUSY_CPU, _WARM_CPU = 0.9, 0.7
"""Shares of one CPU from which the client's single process spoils a point, and from which it is warned of."""
_LATE, _RATHER_LATE = 0.2, 0.1
"""Likewise for the client's delay, as shares of the limit of the first token, or of its median."""
_LEAST_LATE_S = 0.002
"""A client that is less late than that is never blamed."""
_OTHER_LENGTH = 0.05
_KINDS_OF_FAILURE = 3
_TEXTS = {
    "ttft": "time to the first token",
    "tpot": "time per output token behind the first",
    "latency": "end to end",
}


def _folders(tree: Path) -> Iterator[Path]:
    for file in files_in(tree):
        if file.name == LOAD_FILE and (file.parent / SAMPLES_FILE).is_file():
            yield file.parent


def recognise(path: Path) -> bool:
    """Return True if a folder is a point's, or holds one somewhere below."""
    return path.is_dir() and next(_folders(path), None) is not None


def parse(path: Path) -> list[ParsedOutput]:
    """Read a point's folder, or all below a folder.

    Raises:
        ParseError: if the only one cannot be read.
    """
    folders = list(_folders(path)) if path.is_dir() else []
    return parse_folders(path, folders, FORMAT, "vcagent", parse_folder)


@dataclass(frozen=True)
class _Point:
    """What was asked for and what came."""

    about: Mapping[str, Any]
    load: Mapping[str, Any]
    result: Mapping[str, Any]
    requests: Sequence[Request]
    limits: Limits

    @classmethod
    def read(cls, path: Path) -> _Point:
        files = (path / LOAD_FILE, path / RESULT_FILE)
        try:
            asked, result = (json_of(file) for file in files)
            about, load = asked["about"], asked["load"]
            if not all(isinstance(part, dict) for part in (about, load, result, result["client"])):
                raise TypeError("a part of it is not an object")
            limits = Limits.read(about.get("limits") or {})
            return cls(about, load, result, read_requests(path / SAMPLES_FILE), limits)
        except (ValueError, KeyError, TypeError) as error:
            raise ParseError(
                f"{LOAD_FILE} or {RESULT_FILE} makes no sense: {error}", where=str(path)
            ) from error

    @property
    def answered(self) -> list[Request]:
        return [request for request in self.requests if request.completed_s is not None]

    @property
    def window_s(self) -> float:
        """Seconds in which requests were sent: as many as their rate gives, or until the time was over."""
        if self.load.get("arrivals_s"):
            rate = finite(self.about.get("rate"))
            return len(self.requests) / rate if rate else self.requests[-1].due_s
        is_short = (
            self.requests[-1].due_s if len(self.requests) >= int(self.about.get("most_requests", 0)) else 0
        )
        return is_short or float(self.load["duration_s"])


def parse_folder(path: Path) -> ParsedOutput:
    """Read the folder of one point.

    Raises:
        ParseError: if a file cannot be read, or no request was sent.
    """
    point = _Point.read(path)
    answered = point.answered
    judgement = judge(_replies(point.result))
    reasons = (*_client_limits(point), *_cache(point), *judgement.reasons)
    validity = Validity.INVALID if reasons else Validity.VALID
    if not answered:
        validity, reasons = Validity.FAILED, (_no_answer(point),)
    return ParsedOutput(
        format=FORMAT,
        tool_name="vcagent",
        tool_version=str(point.about.get("version", "")),
        scenario=str(point.about.get("scenario", "")),
        metrics=(*_rates(point), *_times(answered), *_counts(point)),
        verdict=Verdict(validity, reasons, (*_warnings(point), *judgement.warnings)),
        details=_details(point),
        sources=tuple(str(path / name) for name in (LOAD_FILE, RESULT_FILE, SAMPLES_FILE)),
    )


def _replies(result: Mapping[str, Any]) -> Replies:
    noted = result.get("replies") or {}
    names = ("counts", "sums", "examples", "recount")
    return Replies(**{name: noted.get(name) or {} for name in names})


def _inside(request: Request, window_s: float) -> float:
    """Return the share of a request's time that lies within the window."""
    assert request.completed_s is not None  # noqa: S101 - only answered ones are asked for
    took_s = request.completed_s - request.due_s
    if took_s <= 0:
        return 1.0
    return max(0.0, min(request.completed_s, window_s) - request.due_s) / took_s


def _rates(point: _Point) -> Iterator[Metric]:
    """Rates over the time in which requests were sent: a request that reaches beyond counts in part."""
    window_s = point.window_s
    if window_s <= 0:
        return
    shares = [(request, _inside(request, window_s)) for request in point.answered]
    if point.limits:
        good = [(request, share) for request, share in shares if point.limits.met_by(request)]
        text = "answered within every limit"
        yield Metric(
            "goodput", sum(share for _, share in good) / window_s, "requests/s", _HIGHER, f"requests {text}"
        )
        met = len(good) / len(point.requests)
        yield Metric("slo_attainment", met, "ratio", _HIGHER, f"share of the requests that were {text}")
    tokens = sum(request.tokens * share for request, share in shares) / window_s
    yield Metric("output_tokens_per_second", tokens, "tokens/s", _HIGHER, "output tokens of all requests")
    rate = sum(share for _, share in shares) / window_s
    yield Metric("requests_per_second", rate, "requests/s", _HIGHER, "requests answered")
    if (asked := finite(point.about.get("rate"))) is not None:
        text = "requests that were due, on average"
        yield Metric("offered_rate", asked, "requests/s", _PLAIN, text, 2)
    if (asked := finite(point.about.get("concurrency"))) is not None:
        yield Metric("concurrency", asked, "count", _PLAIN, "requests under way at once", 2)


def _times(answered: Sequence[Request]) -> Iterator[Metric]:
    for name in TIMES:
        found = (getattr(request, f"{name}_s") for request in answered)
        values = sorted(value for value in found if value is not None)
        if not values:
            continue
        text = _TEXTS[name]
        yield Metric(f"{name}_mean", statistics.fmean(values), "seconds", _LOWER, f"{text}, mean", 2)
        for percent in PERCENTILES:
            # As LoadGen takes percentiles (loadgen/results.cc); with no value above it would be the largest.
            place = len(values) * percent // 100
            if place < len(values) - 1:
                told = 1 if percent in _HEADLINES else 2
                yield Metric(f"{name}_p{percent}", values[place], "seconds", _LOWER, text, told)
        yield Metric(f"{name}_max", values[-1], "seconds", _LOWER, f"{text}, largest", 3)


def _counts(point: _Point) -> Iterator[Metric]:
    total, answered = len(point.requests), point.answered
    failed = total - len(answered)
    yield Metric("request_count", total, "count", _PLAIN, "requests, failed ones included", 2)
    yield Metric("request_failures", failed, "count", _LOWER, "requests that failed", 2)
    yield Metric("request_failure_ratio", failed / total, "ratio", _LOWER, "requests that failed", 2)
    if answered:
        mean = statistics.fmean(request.tokens for request in answered)
        yield Metric("output_tokens_mean", mean, "tokens", _PLAIN, "output tokens of an answer", 2)
    told = finite(point.result.get("input_tokens"))
    if told is not None and answered:
        text = "input tokens of a request, as the endpoint counts them"
        yield Metric("input_tokens_mean", told / len(answered), "tokens", _PLAIN, text, 2)
    if (cached := finite(point.result.get("cached_tokens"))) is not None:
        text = "input tokens that the endpoint took from a cache"
        yield Metric("cached_input_token_count", cached, "count", _PLAIN, text, 2)
    client = point.result["client"]
    if (share := _cpu(client)) is not None:
        yield Metric("client_cpu", share, "ratio", _LOWER, "of one CPU, by the client", 3)
    for name in ("lateness_p99", "lateness_max", "loop_lag_p99", "loop_lag_max", "queue_wait_max"):
        if (value := finite(client.get(f"{name}_s"))) is not None:
            yield Metric(f"client_{name}", value, "seconds", _LOWER, "the client's own delay", 3)


def _cpu(client: Mapping[str, Any]) -> float | None:
    used_s, elapsed_s = finite(client.get("cpu_s")), finite(client.get("elapsed_s"))
    return used_s / elapsed_s if used_s is not None and elapsed_s else None


def _delay(point: _Point) -> tuple[float, float, str]:
    """Return the client's own delay in seconds, its share of what is measured, and what that is, in words."""
    client = point.result["client"]
    found = (finite(client.get(name)) for name in ("lateness_p99_s", "loop_lag_p99_s"))
    delay_s = max((value for value in found if value is not None), default=0.0)
    limit_s = point.limits.ttft_s or point.limits.latency_s
    if limit_s is not None:
        return delay_s, delay_s / limit_s, f"the limit of {limit_s:g} s"
    waits = [request.ttft_s for request in point.answered if request.ttft_s is not None]
    median_s = statistics.median(waits) if waits else 0.0
    return (
        delay_s,
        delay_s / median_s if median_s else 0.0,
        f"the median time to first token, {median_s:.3g} s",
    )


def _client_limits(point: _Point) -> Iterator[Reason]:
    """Yield a reason for each way in which the client itself was the limit."""
    client = point.result["client"]
    cpu = _cpu(client)
    if cpu is not None and cpu > _BUSY_CPU:
        yield Reason(
            f"the client took {cpu:.0%} of one CPU: it measured itself",
            "offer less, ask for fewer output tokens, or let the client have faster processors",
            code="client_cpu",
        )
    delay_s, share, of_what = _delay(point)
    if share > _LATE and delay_s > _LEAST_LATE_S:
        yield Reason(
            f"the client was {delay_s:.3g} s late (p99), {share:.0%} of {of_what}",
            "give the client processors of its own, or offer less",
            code="client_late",
        )
    if waited_s := finite(client.get("queue_wait_max_s")):
        yield Reason(
            f"requests waited up to {waited_s:.3g} s in the client for maxInFlight",
            "raise maxInFlight",
            "max_in_flight",
            code="client_queue",
        )


def _cache(point: _Point) -> Iterator[Reason]:
    cached = finite(point.result.get("cached_tokens"))
    if cached and not point.about.get("shared_prefixes"):
        yield Reason(
            f"the endpoint took {cached:.0f} input tokens from a cache, and no two prompts begin alike",
            "switch prefix caching off, and let nobody else ask the endpoint meanwhile",
            code="prefix_cache",
        )


def _no_answer(point: _Point) -> Reason:
    return Reason(
        f"none of {len(point.requests)} requests was answered: {_told_failures(point) or 'nobody knows why'}",
        "see the endpoint's log",
        code="no_answer",
    )


def _told_failures(point: _Point) -> str:
    failures = point.result.get("failures") or []
    told = (
        f"{entry.get('count')} of {str(entry.get('message'))!r}" for entry in failures[:_KINDS_OF_FAILURE]
    )
    return "; ".join(told)


def _warnings(point: _Point) -> Iterator[str]:
    total, answered = len(point.requests), point.answered
    if answered and len(answered) < total:
        yield f"{total - len(answered)} of {total} requests failed: {_told_failures(point)}"
    cpu = _cpu(point.result["client"])
    if cpu is not None and _WARM_CPU < cpu <= _BUSY_CPU:
        yield f"the client took {cpu:.0%} of one CPU; above {_BUSY_CPU:.0%} it would measure itself"
    delay_s, share, of_what = _delay(point)
    if _RATHER_LATE < share <= _LATE and delay_s > _LEAST_LATE_S:
        yield f"the client was {delay_s:.3g} s late (p99), {share:.0%} of {of_what}"
    if answered:
        yield from _lengths(point, answered)
    if count := (point.result.get("token_count_sources") or {}).get("chunks"):
        yield (
            f"the tokens of {count} answers were counted by the parts of the stream, because the endpoint "
            "tells no usage"
        )
    if retries := point.result.get("retries"):
        yield (
            f"the endpoint closed the connection of {retries} requests before any reply; each was sent once "
            "more while its time ran on"
        )


def _lengths(point: _Point, answered: Sequence[Request]) -> Iterator[str]:
    told = finite(point.result.get("input_tokens"))
    found = {
        "input": None if told is None else told / len(answered),
        "output": statistics.fmean(request.tokens for request in answered),
    }
    remedies = {
        "input": "prompts are texts: give prompts: tokens, or other inputTokens",
        "output": "let the endpoint honour ignore_eos (request)",
    }
    for name, mean in found.items():
        wanted = finite(point.about.get(f"{name}_tokens_mean"))
        if mean is not None and wanted and abs(mean / wanted - 1) > _OTHER_LENGTH:
            yield f"{name}s have {mean:.4g} tokens on average, {wanted:.4g} were asked for; {remedies[name]}"


def _details(point: _Point) -> dict[str, MetadataValue]:
    own = {
        name: value
        for name, value in point.about.items()
        if name != "limits" and (isinstance(value, str | bool) or finite(value) is not None)
    }
    engine = point.result.get("engine") or {}
    told = {name: engine[key] for name, key in _OF_ENGINE.items() if isinstance(engine.get(key), str)}
    limits = {f"{name}_limit_s": value for name in TIMES if (value := getattr(point.limits, f"{name}_s"))}
    return {**own, **limits, **told, "window_s": round(point.window_s, 3)}


_OF_ENGINE = {"url": "url", "api": "api", "served_model": "model", "server": "server", "owned_by": "owned_by"}
