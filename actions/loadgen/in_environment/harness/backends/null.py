"""Answer immediately, or after a delay, to measure the harness itself."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any

from .base import BackendStats, Batch, checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .base import Backend, BackendContext, Sink

_DEFAULTS = {"model": "null", "tokens": None, "first_token_delay_s": 0.0, "delay_s": 0.0, "slots": 0}


class NullBackend:
    """Answers every sample of a batch with the same tokens at the same time.

    Args:
        model: the name of the model.
        tokens: output tokens per sample; 0 gives answers without tokens.
        first_token_delay_s: seconds until a batch's first tokens.
        delay_s: seconds until the batch's answers.
        slots: samples answered concurrently, others wait; 0 for no limit.
    """

    data_encoding = "utf-8"
    version = "null"

    def __init__(
        self, *, model: str, tokens: int, first_token_delay_s: float, delay_s: float, slots: int
    ) -> None:
        self._model = model
        self._tokens = tokens
        self._first_token_delay_s = first_token_delay_s
        self._delay_s = delay_s
        self._data = b"null " * tokens
        self._free = slots or math.inf
        self._waiting: deque[tuple[Batch, Sink]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stats = BackendStats()

    async def start(self) -> Mapping[str, Any]:
        """Return the facts; no connection is needed."""
        self._loop = asyncio.get_running_loop()
        return {"model": self._model}

    def submit(self, batch: Batch, sink: Sink) -> None:
        """Answer, immediately or later."""
        if self._free == math.inf:
            self._answer(batch, sink)
            return
        self._waiting.extend((Batch([id_], [index]), sink) for id_, index in zip(*batch, strict=True))
        self._fill_slots()

    def _fill_slots(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._answer(*self._waiting.popleft())

    def _answer(self, batch: Batch, sink: Sink) -> None:
        for delay_s, answer in (
            (self._first_token_delay_s, self._first_tokens),
            (self._delay_s, self._complete),
        ):
            if delay_s > 0:
                assert self._loop is not None, "not started"  # noqa: S101
                self._loop.call_later(delay_s, answer, batch, sink)
            else:
                answer(batch, sink)

    def _first_tokens(self, batch: Batch, sink: Sink) -> None:
        if self._tokens:
            sink.first_token_many(list(zip(batch.ids, repeat(b"null "))))

    def _complete(self, batch: Batch, sink: Sink) -> None:
        sink.complete_many(list(zip(batch.ids, repeat(self._data), repeat(self._tokens))))
        if self._free != math.inf:
            self._free += 1
            self._fill_slots()

    def decode(self, data: bytes) -> str:
        """Return an answer as text."""
        return data.decode()

    async def stop(self) -> None:
        """Do nothing: no resources to release."""

    def kill(self) -> None:
        """Do nothing: this backend has no child processes."""


def create(settings: Mapping[str, Any], context: BackendContext) -> Backend:
    """Create the backend; ``tokens`` defaults to the run's max_output_tokens."""
    values = checked(settings, _DEFAULTS, "null")
    if values["tokens"] is None:
        values["tokens"] = context.max_output_tokens
    return NullBackend(**values)
