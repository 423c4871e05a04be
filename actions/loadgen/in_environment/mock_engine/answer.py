"""Represent an answer of the mock engine before it is sent, with the fields that cheats change."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

_VOCABULARY = [f"{first}{second}{third}" for first in "bdgk" for second in "aeiou" for third in "lmnr"]


@dataclass
class Answer:
    """An answer; honest until a cheat changes it.

    Args:
        prompt: the words of the prompt; each is a token.
        parts: the parts of the stream, one token each.
        usage: the token counts; None for none.
        model: the model that the reply names; empty for none.
        reply_id: the id of the reply.
        number: the number of the request.
        finish: the finish_reason; None for none.
        text_field: the field of a choice that contains the text.
        indices: the index of each choice.
        pauses: seconds to wait before a part, by the part's index.
        together: True if the parts follow each other without a wait.
        usage_of_parts: token counts to send with each part.
        token_ids: ids to send with the first part.
        timings: llama.cpp's timings, to send with the usage.
        headers: further headers of the reply.
        comments: True to send a comment before each part, as servers do to keep a connection alive.
        begin: events before the first part.
        ends: number of times to send the end of the stream.
        late: parts to send after the end of the stream.
        edits: fields to change in the events, by the event's index: the parts, the finish, the usage.
        more: further events to send, by the index of the event before them; those after -1 follow the end of
            the stream.
        body: a complete reply with status 200, in place of an answer.
        instant: True to send everything without waiting.
        chat: the field for text in a choice of the chat API: ``delta`` or ``message``; empty for completions.
    """

    prompt: list[str]
    parts: list[str]
    usage: dict[str, Any] | None
    model: str
    reply_id: str
    number: int
    finish: str | None = "length"
    text_field: str = "text"
    indices: tuple[int, ...] = (0,)
    pauses: dict[int, float] = field(default_factory=dict)
    together: bool = False
    usage_of_parts: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    headers: str = ""
    comments: bool = False
    begin: list[dict[str, Any]] = field(default_factory=list)
    ends: int = 1
    late: list[str] = field(default_factory=list)
    edits: dict[int, dict[str, Any]] = field(default_factory=dict)
    more: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    instant: bool = False
    chat: str = ""

    def claim(self, tokens: float) -> None:
        """Set the reported number of output tokens."""
        if self.usage is not None:
            self.usage["completion_tokens"] = round(tokens)

    def cut(self, share: float) -> None:
        """Keep only this share of the parts."""
        del self.parts[round(len(self.parts) * share) :]

    def event(self, text: str, finish: str | None = None) -> dict[str, Any]:
        """Return one event of the stream, or the whole reply without its usage."""
        choice: dict[str, Any] = {self.text_field: text, "finish_reason": finish}
        if self.chat:
            choice = {self.chat: {"content": text}, "finish_reason": finish}
        if self.text_field == "tool_calls":
            choice[self.text_field] = [{"function": {"name": "say", "arguments": text}}]
        if self.token_ids and text:
            choice["token_ids"], self.token_ids = self.token_ids, []
        kind = {"": "text_completion", "delta": "chat.completion.chunk", "message": "chat.completion"}[
            self.chat
        ]
        choices = [{"index": index, **choice} for index in self.indices]
        event = {"id": self.reply_id, "object": kind, "choices": choices}
        return {**event, "model": self.model} if self.model else event

    def last(self) -> dict[str, Any]:
        """Return the fields that describe the whole answer."""
        return {
            **({"usage": self.usage} if self.usage else {}),
            **({"timings": self.timings} if self.timings else {}),
        }


def words_of(seed: str, tokens: int) -> list[str]:
    """Return the parts of an answer that depends on the prompt without repeating it."""
    chosen = random.Random(seed).choices(_VOCABULARY, k=tokens)  # noqa: S311 - words, no secrets
    return [f" {word}" for word in chosen]
