"""Pass samples from LoadGen's thread to the event loop, at hundreds of thousands per second."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from .backends.base import Batch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from .backends.base import Backend
    from .sink import LoadGenSink


class Feed:
    """Takes queries in LoadGen's thread and submits them on the event loop.

    LoadGen's call only appends to a queue. The loop is woken once per burst: while awake it checks the queue
    again by itself, because each wake-up from another thread writes to a pipe and passes the interpreter
    lock.

    Args:
        loop: the backend's loop.
        backend: the destination of samples.
        sink: the destination of answers, which also counts issued samples.

    Attributes:
        all_issued: True after LoadGen has issued its last query.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, backend: Backend, sink: LoadGenSink) -> None:
        self._loop = loop
        self._backend = backend
        self._sink = sink
        self._queue: deque[tuple[float, Sequence[int], Sequence[int]]] = deque()
        self._awake = False
        self.all_issued = False

    def flush(self) -> None:
        """Record that LoadGen has issued its last query; called in LoadGen's thread."""
        self.all_issued = True

    def issue(self, ids: Sequence[int], indices: Sequence[int]) -> None:
        """Take the samples of one query; called in LoadGen's thread."""
        self._queue.append((perf_counter(), ids, indices))
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        """Submit all waiting samples as one batch, then check again after the loop's other work."""
        queue = self._queue
        if not queue:
            self._awake = False
            if not queue:  # else a query arrived between the two lines, and found the loop awake
                return
            self._awake = True
        now, ids, indices = queue.popleft()
        self._sink.issue(now, ids, indices)
        if queue:
            ids, indices = list(ids), list(indices)
            for _ in range(len(queue)):
                now, more_ids, more_indices = queue.popleft()
                self._sink.issue(now, more_ids, more_indices)
                ids += more_ids
                indices += more_indices
        self._backend.submit(Batch(ids, indices), self._sink)
        self._loop.call_soon(self._drain)
