"""Read an OpenAI-style completion, streamed or whole: a pure function of its bytes.

Formats: OpenAI's completions and chat API with ``stream_options.include_usage``; llama.cpp's server adds
``timings``, vLLM ends with a chunk that has usage and no choices. Token ids are in ``token_ids`` of a choice
(vLLM, ``return_token_ids``) or in ``__verbose`` (llama.cpp, ``verbose`` and ``return_tokens``). Reasoning is
in ``reasoning_content`` (vLLM's older name, llama.cpp's) or ``reasoning`` (vLLM's newer name).
"""

from __future__ import annotations

import json
import math
from typing import Any

from .errors import HarnessError

_SHOWN = 200
_NUMBERS = (int, float)
_UNSENT = -1
_MOST_UNSENT = 1000
_MOST_WITHOUT_TEXT = 4
"""Maximum number of tokens in a row without text: three within a character, one that ends the answer."""
_FAILURES = ("abort", "error")
"""Values of finish_reason (of vLLM and SGLang) for an incomplete answer."""


class CompletionReader:
    """Collects an answer, and the reply's statements about it.

    Args:
        chat: True if the reply is of the chat API.

    Attributes:
        texts: the parts with text, in order.
        done: True after the stream has signalled its end.
        input_tokens: prompt tokens counted by the engine; None if not reported.
        cached_tokens: those from a prefix cache; None if not reported.
        finish_reason: reason for the end of the answer; None if not reported. Some proxies give one from the
            first part on; it shows an end only if a part with text before it had none.
        reply_id: the reply's id; None for none.
        model: the model named by the reply, or the first different one named by a part; None for none.
        oddities: signs that no honest reply has, by the names of ``reply_log``.
        build: the server's system_fingerprint; None for none.
        timings: llama.cpp's own timings of the request.
        token_ids: the answer's token ids, if they were requested; -1 for a token within a character, whose id
            llama.cpp does not stream.
    """

    def __init__(self, *, chat: bool = False) -> None:
        self._chat = chat
        self.texts: list[str] = []
        self.done = False
        self.input_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.reply_id: str | None = None
        self.model: str | None = None
        self.build: str | None = None
        self.oddities: set[str] = set()
        self.timings: dict[str, Any] = {}
        self._went_on = False
        """True after a part with text that had no finish_reason."""
        self._ids: set[str] = set()
        self._parts_with_id = 0
        self._created_s = -math.inf
        self._output_tokens: int | None = None
        self._texts_counted = 0
        self.token_ids: list[int] = []
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Process bytes of an event stream, cut anywhere.

        Raises:
            HarnessError: (``malformed_reply``) if an event is not a completion; (``engine_error``) if it
                reports an error.
        """
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
            elif line.startswith(b"error:"):  # llama.cpp before it also used data: for errors
                raise _engine_error(line[6:])

    def _event(self, event: bytes) -> None:
        if event == b"[DONE]":
            if self.done:
                self.oddities.add("data_after_end")
            self.done = True
            return
        self._chunk(event)

    def whole(self, body: bytes) -> None:
        """Process the body of a reply that is not streamed."""
        self._chunk(body)
        self.done = True

    def _chunk(self, text: bytes) -> None:
        try:
            chunk = json.loads(text)
            if "error" in chunk or chunk.get("object") == "error":  # vLLM before 0.10 wrote the latter
                raise _engine_error(json.dumps(chunk.get("error", chunk)).encode())
            choices, usage = chunk.get("choices", ()), chunk.get("usage")
            if choices:
                self._choice(choices[0])
                if len(choices) > 1:
                    self.oddities.add("choices")
            self._heading(chunk)
            if usage:
                self._usage(usage)
            if timings := chunk.get("timings"):
                self._timings(timings)
            if verbose := chunk.get("__verbose"):
                self._verbose(verbose)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            shown = text[:_SHOWN].decode(errors="replace")
            raise HarnessError(
                "malformed_reply", f"the engine sent something other than a completion: {shown!r} ({error})"
            ) from error

    def _choice(self, choice: dict[str, Any]) -> None:
        part = _said(choice) if self._chat else choice.get("text")
        finish = choice.get("finish_reason") or None  # in parts before the end: "" from Ollama and SGLang
        if finish == "null":  # KoboldCpp
            finish = None
        if part:
            self._part(_text(part, "text"), has_finish=finish is not None)
        if choice.get("index"):
            self.oddities.add("choices")
        if ids := choice.get("token_ids"):
            self.token_ids += ids
        if finish is not None:
            if finish in _FAILURES:
                raise _engine_error(f"it ended an answer with finish_reason {finish}".encode())
            if self.finish_reason not in {None, finish} and not self._finished_early():
                self.oddities.add("finishes")
            self.finish_reason = _text(finish, "finish_reason")

    def _part(self, text: str, *, has_finish: bool) -> None:
        """Record a part with text."""
        if self.done:
            self.oddities.add("text_after_end")
        elif self.finish_reason and self._went_on:
            self.oddities.add("text_after_finish")
        elif self.finish_reason:
            if self.texts:
                self.oddities.add("early_finish")
            if not has_finish:
                self.finish_reason = None
        self._went_on = self._went_on or not has_finish
        self.texts.append(text)

    def _finished_early(self) -> bool:
        """Return True if the finish_reason so far shows no end: no part with text has gone without one."""
        return not self._went_on and len(self.texts) > 1

    def _heading(self, chunk: dict[str, Any]) -> None:
        """Record the statements that each part of a reply repeats."""
        if (model := chunk.get("model")) and model != self.model:
            if self.model is not None:
                self.oddities.add("models")
            self.model = _text(model, "model")
        if (build := chunk.get("system_fingerprint")) and build != self.build:
            if self.build is not None:
                self.oddities.add("builds")
            self.build = str(build)
        # Azure's parts about content filters have an empty id and the time 0; TGI gives no id to any part.
        if reply_id := chunk.get("id"):
            self._parts_with_id += 1
            self._ids.add(str(reply_id))
            if self.reply_id is None:
                self.reply_id = str(reply_id)
        created_s = chunk.get("created")
        if created_s and created_s.__class__ in _NUMBERS:
            if created_s < self._created_s:
                self.oddities.add("created_falls")
            self._created_s = created_s

    def _usage(self, usage: dict[str, Any]) -> None:
        tokens, told = _count(usage["completion_tokens"]), usage.get("prompt_tokens")
        if self.done:  # too late: the answer has been reported
            self.oddities.add("data_after_end" if tokens == self.token_count()[0] else "usage_after_end")
            return
        if self._output_tokens is not None:
            if tokens < self._output_tokens:
                self.oddities.add("usage_falls")
            elif len(self.texts) == self._texts_counted and tokens - self._output_tokens > _MOST_WITHOUT_TEXT:
                self.oddities.add("usage_differs")
        self._output_tokens, self._texts_counted = tokens, len(self.texts)
        if told is not None:
            prompt = _count(told)
            if self.input_tokens and prompt and prompt != self.input_tokens:
                self.oddities.add("prompt_differs")
            self.input_tokens = prompt
            if (total := usage.get("total_tokens")) is not None and _count(total) != tokens + prompt:
                self.oddities.add("total_tokens")
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if cached is not None:
            self.cached_tokens = max(_count(cached), self.cached_tokens or 0)

    def _timings(self, timings: dict[str, Any]) -> None:
        numbers = {name: value for name, value in timings.items() if value.__class__ in _NUMBERS}
        self.timings = {name: value for name, value in numbers.items() if math.isfinite(value)}
        if (cached := timings.get("cache_n")) is not None:
            self.cached_tokens = max(_count(cached), self.cached_tokens or 0)

    def _verbose(self, told: dict[str, Any]) -> None:
        tokens = told.get("tokens", ())
        unsent = _count(told.get("tokens_predicted", 0)) - len(self.token_ids) - len(tokens)
        if unsent > _MOST_UNSENT:
            raise ValueError(f"{unsent} tokens without an id")
        self.token_ids += [_UNSENT] * unsent
        self.token_ids += tokens

    def check_counts(self) -> None:
        """Record contradictions between the ids and the counts of the whole reply."""
        if len(self._ids) > 1:  # some servers give each part an id of its own; the last may share one
            is_of_each_part = 2 * len(self._ids) > self._parts_with_id
            self.oddities.add("id_of_each_part" if is_of_each_part else "ids")
        tokens = self._output_tokens
        if tokens is None:
            return
        if self.token_ids and len(self.token_ids) != tokens:
            self.oddities.add("token_ids")
        if self.timings.get("predicted_n", tokens) != tokens:
            self.oddities.add("timed_tokens")
        prompt = self.timings.get("prompt_n")
        if prompt is not None and self.input_tokens is not None:
            unseen = self.input_tokens - int(prompt) - (self.cached_tokens or 0)
            if unseen > 0:  # a server that computes less than the prompt already had the rest of it
                self.cached_tokens = (self.cached_tokens or 0) + unseen

    def check_end(self) -> None:
        """Check that the stream was not cut off.

        Raises:
            HarnessError: (``cut_stream``) if it ended without signalling its end.
        """
        if not self.done and (not self.finish_reason or self._finished_early()):
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
        """Return the output tokens and the counting method.

        The method is ``usage`` (exact) or ``chunks`` (parts with text).
        """
        if self._output_tokens is not None:
            return self._output_tokens, "usage"
        return len(self.texts), "chunks"


def is_blank(text: str) -> bool:
    """Return True if nothing of a text is visible: blanks, control and zero-width characters."""
    return not any(char.isprintable() and not char.isspace() for char in text)


def _text(value: Any, name: str) -> str:
    """Return a value that must be a string."""
    if value.__class__ is not str:
        raise TypeError(f"its {name} is not a string")
    return str(value)


def _count(value: Any) -> int:
    """Return a number of tokens."""
    if value.__class__ not in _NUMBERS or value < 0 or value != int(value):
        raise ValueError(f"{value!r} tokens")
    return int(value)


def _said(choice: dict[str, Any]) -> Any:
    """Return the text of a chat's choice, whether reasoning or answer."""
    message = choice.get("delta") or choice.get("message") or {}
    return message.get("content") or message.get("reasoning_content") or message.get("reasoning")


def _engine_error(text: bytes) -> HarnessError:
    shown = text.strip()[:_SHOWN].decode(errors="replace")
    return HarnessError("engine_error", f"the engine reports an error: {shown}", "see the engine's log")
