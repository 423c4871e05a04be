"""A reply of llama.cpp's server, autumn 2023 to 2026: what it says of its tokens and their time.

Sources: tools/server/README.md ("Result JSON"); before 2025 examples/server/README.md, where three truth
values (``stopped_eos``, ``stopped_limit``, ``stopped_word``) stood for ``stop_type``, without ``cache_n``.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Relativity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.core.records import MetadataValue

__all__ = ["parse", "recognise"]

_MOST_BYTES = 64 * 2**20
_STOPPED = ("eos", "limit", "word")
_HIGHER, _LOWER, _PLAIN = Relativity.HIGHER, Relativity.LOWER, Relativity.UNDEFINED


def recognise(path: Path) -> bool:
    """Whether a file holds such a reply."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return False
        with path.open(encoding="utf-8") as file:
            if not file.read(1 << 12).lstrip().startswith(("{", "data:", ": ")):
                return False
        return _last(path) is not None
    except (OSError, ValueError):
        return False


def parse(path: Path) -> list[ParsedOutput]:
    """Read a reply.

    Raises:
        ParseError: if it is an error, was cut before its end, or says nothing of its time.
    """
    reply = _last(path)
    if reply is None:
        raise ParseError(
            "the reply has no timings: it was cut, or is an error",
            where=str(path),
            remedy="ask again; the last event of a stream holds them",
        )
    metrics = tuple(_metrics(reply))
    if not metrics:
        raise ParseError("the reply's timings hold no numbers", where=str(path))
    return [
        ParsedOutput(
            format="llamacpp_reply",
            tool_name="llama.cpp",
            scenario=str(reply.get("model") or "reply"),
            metrics=metrics,
            details=dict(_details(reply)),
            sources=(str(path),),
        )
    ]


def _last(path: Path) -> dict[str, Any] | None:
    """The reply itself, or the last event of a stream that carries timings."""
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    found = None
    for piece in [text] if text.startswith("{") else text.splitlines():
        try:
            event = json.loads(piece.removeprefix("data:"))
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("timings"), dict):
            found = event
    return found


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
        # Of that token alone, those of 2024 told 111111 tokens/s: nothing was measured.
        rate = _number(timings.get(f"{key}_per_second"))
        alone = key == "predicted" and tokens == 1 and "cache_n" not in timings
        if tokens and milliseconds and rate and not alone:
            yield Metric(f"{name}_tokens_per_second", rate, "tokens/s", _HIGHER, f"of the {what}")
    cached = _number(timings.get("cache_n"))
    if cached is not None:
        yield Metric("cached_tokens", cached, "count", _PLAIN, "prompt tokens taken from a cache", 2)


def _details(reply: Mapping[str, Any]) -> Iterator[tuple[str, MetadataValue]]:
    usage = reply.get("usage") or {}
    for name, value in (
        ("model", reply.get("model")),
        ("input_tokens", reply.get("tokens_evaluated", usage.get("prompt_tokens"))),
        ("output_tokens", reply.get("tokens_predicted", usage.get("completion_tokens"))),
        ("truncated", reply.get("truncated")),
        ("stopped_by", reply.get("stop_type") or _stopped_by(reply)),
        ("slot", reply.get("id_slot", reply.get("slot_id"))),
    ):
        if isinstance(value, str | int | float):
            yield name, value


def _stopped_by(reply: Mapping[str, Any]) -> str | None:
    return next((kind for kind in _STOPPED if reply.get(f"stopped_{kind}") is True), None)


def _number(value: object) -> float | None:
    """A finite number that is not negative; the server writes null for a rate of nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
