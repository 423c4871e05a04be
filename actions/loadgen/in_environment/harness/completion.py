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
_CACHED_NAMES = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
"""Fields of a usage for prompt tokens from a cache: DeepSeek's, Anthropic's through LiteLLM, Moonshot's."""
_BUILD_NAMES = ("system_fingerprint", "provider")
"""Fields of a reply that name its source: the build of the server, and OpenRouter's provider."""
_FAILURES = ("abort", "error")
"""Values of finish_reason (of vLLM and SGLang) for an incomplete answer."""


class CompletionReader:
    """Collects an answer, and the reply's statements about it.

    Args:
        chat: True if the reply is of the chat API.

    Attributes:
        texts: the parts with text, in order.
        done: True after the stream has signalled its end.
        input_tokens: prompt tokens counted by the engine; None if not reported, or reported as 0.
        cached_tokens: those from a prefix cache; None if not reported.
        finish_reason: reason for the end of the answer; None if not reported. Some proxies give one from the
            first part on; it shows an end only if a part with text before it had none.
        reply_id: the reply's id; None for none.
        model: the model named by the reply, or the first different one named by a part; None for none.
        oddities: signs that no honest reply has, by the names of ``reply_log``.
        build: the server's system_fingerprint, and OpenRouter's provider; None for none.
        date: the header by which the server reports its time; empty for none.
        created_s: the time of creation that the first part names, in seconds since 1970; None for none.
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
        self._builds: dict[str, str] = {}
        self.created_s: float | None = None
        self.date = ""
        self.oddities: set[str] = set()
        self.timings: dict[str, Any] = {}
        self._went_on = False
        """True after a part with text that had no finish_reason."""
        self._ids: set[str] = set()
        self._parts_with_id = 0
        self._created_s = -math.inf
        self._output_tokens: int | None = None
        self._reasoned = False
        self._reasoning_tokens = self._rejected_tokens = 0
        self._logprobs = 0
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
        part = self._said(choice) if self._chat else choice.get("text")
        if logprobs := choice.get("logprobs"):
            self._logprobs += len(logprobs.get("content") or logprobs.get("tokens") or ())
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
        self._source(chunk)
        # Azure's parts about content filters have an empty id and the time 0; TGI gives no id to any part.
        if reply_id := chunk.get("id"):
            self._parts_with_id += 1
            self._ids.add(str(reply_id))
            if self.reply_id is None:
                self.reply_id = str(reply_id)
        created_s = chunk.get("created")
        if created_s and created_s.__class__ in _NUMBERS:
            if self.created_s is None and math.isfinite(created_s):
                self.created_s = float(created_s)
            if created_s < self._created_s:
                self.oddities.add("created_falls")
            self._created_s = created_s

    def _source(self, chunk: dict[str, Any]) -> None:
        """Record the build and the provider."""
        for name in _BUILD_NAMES:
            if build := str(chunk.get(name) or ""):
                if self._builds.get(name, build) != build:
                    self.oddities.add("builds")
                self._builds[name] = build

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
            self.input_tokens = prompt or self.input_tokens  # no prompt has 0 tokens: they were not counted
            if (total := usage.get("total_tokens")) is not None and _count(total) != tokens + prompt:
                self.oddities.add("total_tokens")
        self._details(usage)

    def _details(self, usage: dict[str, Any]) -> None:
        """Record the tokens from a cache, and those that are not shown."""
        details = usage.get("prompt_tokens_details") or {}
        for cached in (details.get("cached_tokens"), *map(usage.get, _CACHED_NAMES)):
            if cached is not None:
                self.cached_tokens = max(_count(cached), self.cached_tokens or 0)
        if of_answer := usage.get("completion_tokens_details"):
            self._reasoning_tokens = _count(of_answer.get("reasoning_tokens") or 0)
            self._rejected_tokens = _count(of_answer.get("rejected_prediction_tokens") or 0)

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
        if self._rejected_tokens or (self._reasoning_tokens and not self._reasoned):
            self.oddities.add("hidden_tokens")
        if self._logprobs and abs(self._logprobs - tokens) > _MOST_WITHOUT_TEXT:
            self.oddities.add("logprobs")
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
        return whole_characters("".join(self.texts))

    @property
    def build(self) -> str | None:
        """Build and provider that the reply names."""
        return " ".join(self._builds.values()) or None

    def _said(self, choice: dict[str, Any]) -> Any:
        """Return the text of a chat's choice, whether reasoning or answer."""
        message = choice.get("delta") or choice.get("message") or {}
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        self._reasoned = self._reasoned or bool(reasoning)
        return message.get("content") or reasoning

    def token_count(self) -> tuple[int, str]:
        """Return the output tokens and the counting method.

        The method is ``usage`` (exact) or ``chunks`` (parts with text).
        """
        if self._output_tokens is not None:
            return self._output_tokens, "usage"
        return len(self.texts), "chunks"


def whole_characters(text: str) -> str:
    """Return a text with its surrogates joined: some servers send the halves of a character in two parts.

    Half a character without the other half becomes U+FFFD.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


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


def _engine_error(text: bytes) -> HarnessError:
    shown = text.strip()[:_SHOWN].decode(errors="replace")
    return HarnessError("engine_error", f"the engine reports an error: {shown}", "see the engine's log")
