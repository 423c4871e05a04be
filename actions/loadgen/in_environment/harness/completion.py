"""Reads an OpenAI-style completion, streamed or whole: a pure function of its bytes.

Shapes: OpenAI's completions API with ``stream_options.include_usage``; llama.cpp's server adds ``timings``,
vLLM ends with a chunk that has usage and no choices.
"""

from __future__ import annotations

import json
from typing import Any

from .errors import HarnessError

__all__ = ["CompletionReader"]

_SHOWN = 200
_FAILURES = ("abort", "error")
"""Reasons to finish (vLLM's, SGLang's) that mean that the answer is not whole."""


class CompletionReader:
    """Collects an answer.

    Attributes:
        texts: the parts that hold text, in order.
        done: whether the stream said that it is over.
        input_tokens: prompt tokens as the engine counted them; None where it does not say.
        cached_tokens: those of them that came from a prefix cache; None where it does not say.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.done = False
        self.input_tokens: int | None = None
        self.cached_tokens: int | None = None
        self._output_tokens: int | None = None
        self._finished = False
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take bytes of an event stream, cut anywhere.

        Raises:
            HarnessError: (``malformed_reply``) if an event is no completion chunk; (``engine_error``) if it
                reports an error.
        """
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
            elif line.startswith(b"error:"):  # llama.cpp before it used data: for errors too
                raise _engine_error(line[6:])

    def _event(self, event: bytes) -> None:
        if event == b"[DONE]":
            self.done = True
            return
        self._chunk(event)

    def whole(self, body: bytes) -> None:
        """Take the body of a reply that is not streamed."""
        self._chunk(body)
        self.done = True

    def _chunk(self, text: bytes) -> None:
        try:
            chunk = json.loads(text)
            if "error" in chunk:
                raise _engine_error(json.dumps(chunk["error"]).encode())
            choices, usage = chunk.get("choices", ()), chunk.get("usage")
            if choices:
                part, finish = choices[0].get("text"), choices[0].get("finish_reason")
                if part:
                    self.texts.append(part)
                if finish in _FAILURES:
                    raise _engine_error(f"it ended an answer with finish_reason {finish}".encode())
                if finish:
                    self._finished = True
            if usage:
                self._usage(usage, chunk.get("timings") or {})
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            shown = text[:_SHOWN].decode(errors="replace")
            raise HarnessError(
                "malformed_reply", f"the engine sent what is no completion: {shown!r} ({error})"
            ) from error

    def _usage(self, usage: dict[str, Any], timings: dict[str, Any]) -> None:
        self._output_tokens = int(usage["completion_tokens"])
        if (told := usage.get("prompt_tokens")) is not None:
            self.input_tokens = int(told)
        details = usage.get("prompt_tokens_details") or {}
        cached = [
            int(told) for told in (details.get("cached_tokens"), timings.get("cache_n")) if told is not None
        ]
        if cached:
            self.cached_tokens = max(cached)

    def check_end(self) -> None:
        """Check that the stream was not cut.

        Raises:
            HarnessError: (``cut_stream``) if it ended without saying so.
        """
        if not self.done and not self._finished:
            raise HarnessError(
                "cut_stream",
                f"the engine ended its stream after {len(self.texts)} parts without finishing the answer",
                "see the engine's log: it may have died or run out of memory",
            )

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(self.texts)

    def token_count(self) -> tuple[int, str]:
        """Output tokens, and how they were counted: ``usage`` (exact) or ``chunks`` (parts with text)."""
        if self._output_tokens is not None:
            return self._output_tokens, "usage"
        return len(self.texts), "chunks"


def _engine_error(text: bytes) -> HarnessError:
    shown = text.strip()[:_SHOWN].decode(errors="replace")
    return HarnessError("engine_error", f"the engine reports an error: {shown}", "see the engine's log")
