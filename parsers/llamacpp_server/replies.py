"""Reads replies of llama.cpp's server, autumn 2023 to 2026: tokens and timings.

Sources: tools/server/README.md ("Result JSON"); before 2025 examples/server/README.md, with three truth
values (``stopped_eos``, ``stopped_limit``, ``stopped_word``) in place of ``stop_type``, and without
``cache_n``. With ``timings_per_token`` every event of a stream has timings, so timings do not mark its end.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Reason, Relativity, Validity, Verdict
from parsers.json_text import DECODER, read_json
from parsers.numbers import finite
from parsers.trees import SIZE_LIMIT, beginning, files_in, parse_files, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.core.records import MetadataValue

FORMAT = "llamacpp_reply"
TOOL = "llama.cpp"
_BEGINNINGS = ("{", "data:", ": ")
_STOPPED = ("eos", "limit", "word")
_DONE = "[DONE]"
_RATE_TOLERANCE = 0.01
_HIGHER, _LOWER, _PLAIN = Relativity.HIGHER, Relativity.LOWER, Relativity.UNDEFINED

Reply = dict[str, Any]


def _recognise_file(path: Path) -> bool:
    if not beginning(path, 1 << 12).lstrip().startswith(_BEGINNINGS):
        return False
    text = beginning(path, SIZE_LIMIT)
    if '"arrivals_s"' in text:  # a load test's log of requests
        return False
    return '"timings"' in text and ('"prompt_n"' in text or '"predicted_n"' in text)


def recognise(path: Path) -> bool:
    """Return True if a file contains such replies, or a folder contains such a file."""
    return any(map(_recognise_file, files_in(path)))


def parse(path: Path) -> list[ParsedOutput]:
    """Return the replies in a file, or in all files of a folder.

    Raises:
        ParseError: if there is none, or the only one is an error, ends before any timings, or has no times.
    """
    return parse_files(path, FORMAT, TOOL, _recognise_file, _parse_file)


def _parse_file(path: Path) -> list[ParsedOutput]:
    found = list(_replies(text_of(path)))
    if not found:
        raise ParseError(
            "the reply has no timings: it was cut, or is an error",
            where=str(path),
            remedy="send the request again; the last event of a stream has the timings",
        )
    outputs = [_output(reply, path, ended=ended) for reply, ended in found]
    if not any(output.metrics for output in outputs):
        raise ParseError("the reply's timings hold no numbers", where=str(path))
    if len(outputs) == 1:
        return outputs
    return [
        replace(output, scenario=f"{output.scenario}/{number}") for number, output in enumerate(outputs, 1)
    ]


def _output(reply: Reply, path: Path, *, ended: bool) -> ParsedOutput:
    reasons = tuple(_contradictions(reply))
    return ParsedOutput(
        format=FORMAT,
        tool_name=TOOL,
        scenario=str(reply.get("model") or "reply"),
        metrics=tuple(_metrics(reply)),
        verdict=Verdict(Validity.INVALID, reasons) if reasons else None,
        complete=ended,
        details=dict(_details(reply)),
        sources=(str(path),),
    )


def _contradictions(reply: Reply) -> Iterator[Reason]:
    """Yield the contradictions between a reply's timings, and with its counts."""
    timings = reply["timings"]
    for name, value in timings.items():
        if (finite(value) or 0) < 0:
            yield Reason(
                f"{name} is {value}, which is below 0: it was left out",
                "the server's clock or counters went backwards: send the request again",
                code="below_0",
            )
    input_tokens, output_tokens = map(_number, _counted(reply))
    computed, predicted = _number(timings.get("prompt_n")), _number(timings.get("predicted_n"))
    for what, timed, counted, fits in (
        ("prompt", computed, input_tokens, (computed or 0) <= (input_tokens or 0)),  # a cache has the rest
        ("answer", predicted, output_tokens, predicted == output_tokens),
    ):
        if timed is not None and counted is not None and not fits:
            yield Reason(
                f"the timings have {timed:g} tokens of the {what}, the reply counts {counted:g}",
                "see whether a proxy changed the reply",
                code="timed_tokens",
            )
    for name in ("prompt", "predicted"):
        tokens, milliseconds, rate = (
            _number(timings.get(f"{name}_{unit}")) for unit in ("n", "ms", "per_second")
        )
        if tokens and milliseconds and rate:
            # Newer servers do not count the first token of an answer, whose time is the prompt's.
            possible = [count / milliseconds * 1e3 for count in (tokens, tokens - 1)]
            if not any(math.isclose(rate, fitting, rel_tol=_RATE_TOLERANCE) for fitting in possible):
                yield Reason(
                    f"{name}_per_second is {rate:g}, but {tokens:g} tokens in {milliseconds:g} ms are "
                    f"{possible[0]:g} a second",
                    "see whether a proxy changed the reply",
                    code="rate",
                )


def _counted(reply: Reply) -> tuple[Any, Any]:
    """Return the tokens of prompt and answer as the reply counts them; None if it does not."""
    usage = reply.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return (
        reply.get("tokens_evaluated", usage.get("prompt_tokens")),
        reply.get("tokens_predicted", usage.get("completion_tokens")),
    )


def _replies(text: str) -> Iterator[tuple[Reply, bool]]:
    """Yield each reply that has timings (of a stream, its last event), and True if the reply has ended."""
    text = text.lstrip()
    last: Reply | None = None
    for event in _events(text) if not text.startswith("{") else _documents(text):
        if event == _DONE:
            if last is not None:
                yield last, True
            last = None
        elif isinstance(event, dict) and isinstance(event.get("timings"), dict):
            if last is not None and not _goes_on(last, event):
                yield last, _has_ended(last)
            last = event
    if last is not None:
        yield last, _has_ended(last)


def _goes_on(last: Reply, event: Reply) -> bool:
    """Return True if an event belongs to the same reply as the one before it."""
    return not _has_ended(last) and last.get("id") == event.get("id")


def _events(text: str) -> Iterator[object]:
    """Yield the events of streams; ignore text that is not JSON, such as an incomplete event."""
    for line in text.splitlines():
        piece = line.removeprefix("data:").strip()
        if piece == _DONE:
            yield _DONE
            continue
        try:
            yield read_json(piece)
        except (ValueError, RecursionError):
            continue


def _documents(text: str) -> Iterator[object]:
    """Yield consecutive JSON documents up to the first incomplete one."""
    place = 0
    while place < len(text):
        try:
            document, place = DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        yield document
        while place < len(text) and text[place].isspace():
            place += 1


def _has_ended(reply: Reply) -> bool:
    """Return True if a reply gives the reason for its end."""
    if isinstance(reply.get("stop"), bool):
        return bool(reply["stop"])
    choices = reply.get("choices")
    if not isinstance(choices, list):
        return True
    return not choices or any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _metrics(reply: Mapping[str, Any]) -> Iterator[Metric]:
    timings = reply["timings"]
    for name, key, what in (("prompt", "prompt", "prompt"), ("generation", "predicted", "reply")):
        tokens, milliseconds = _number(timings.get(f"{key}_n")), _number(timings.get(f"{key}_ms"))
        if tokens is not None:
            yield Metric(f"{name}_tokens", tokens, "count", _PLAIN, f"tokens of the {what}, computed", 2)
        if milliseconds is not None:
            own: dict[str, MetadataValue] = {"llamacpp_value": milliseconds, "llamacpp_unit": "ms"}
            yield Metric(
                f"{name}_time", milliseconds / 1e3, "seconds", _LOWER, f"for the {what}", 2, metadata=own
            )
        # Newer servers do not count the first token, which came with the prompt: their own rate is right.
        # For that token alone, the servers of 2024 report 111111 tokens/s, which is not a measurement.
        # Of that token alone, those of 2024 told 111111 tokens/s: nothing was measured.
        rate = _number(timings.get(f"{key}_per_second"))
        alone = key == "predicted" and tokens == 1 and "cache_n" not in timings
        if tokens and milliseconds and rate and not alone:
            yield Metric(f"{name}_tokens_per_second", rate, "tokens/s", _HIGHER, f"of the {what}")
    cached = _number(timings.get("cache_n"))
    if cached is not None:
        yield Metric("cached_tokens", cached, "count", _PLAIN, "prompt tokens taken from a cache", 2)


def _details(reply: Reply) -> Iterator[tuple[str, MetadataValue]]:
    input_tokens, output_tokens = _counted(reply)
    for name, value in (
        ("model", reply.get("model")),
        ("input_tokens", input_tokens),
        ("output_tokens", output_tokens),
        ("truncated", reply.get("truncated")),
        ("stopped_by", reply.get("stop_type") or _stopped_by(reply)),
        ("slot", reply.get("id_slot", reply.get("slot_id"))),
    ):
        if isinstance(value, str | int | float) and (
            isinstance(value, str | bool) or finite(value) is not None
        ):
            yield name, value


def _stopped_by(reply: Mapping[str, Any]) -> str | None:
    return next((kind for kind in _STOPPED if reply.get(f"stopped_{kind}") is True), None)


def _number(value: object) -> float | None:
    """Return a finite number that is not negative; the server writes null if it has no rate."""
    number = finite(value) if not isinstance(value, str) else None
    return number if number is not None and number >= 0 else None
