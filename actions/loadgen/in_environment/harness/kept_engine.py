"""Keep vLLM loaded for one test after another: ``python -m harness.kept_engine SOCKET``.

The first test that connects loads the engine; each later one must ask for an equal engine. A test has a
process and a connection of its own. The engine's prefix cache is off; it is reset between tests all the same.
After a test that left samples unanswered the engine is not used again. The process ends when the process that
started it ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .backends import vllm
from .backends.base import BackendContext, BackendStats, Batch
from .engine_link import (
    SAMPLES,
    Answer,
    answered,
    first_token,
    frames,
    message,
    read_issued,
    unpacked,
)
from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .backends.base import Completion, FirstToken
    from .backends.vllm import VllmBackend

_EXIT_USAGE = 2
_LOOK_S = 1.0


class KeptEngine:
    """Answers one test after another with one engine.

    Attributes:
        over: set if the engine must not be used again.
    """

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self._turn = asyncio.Lock()
        self._loaded: VllmBackend | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the test of one connection until it closes the connection."""
        try:
            async with self._turn:
                is_clean = await self._test(reader, writer)
        except HarnessError as error:
            is_clean = False
            writer.write(message(event="failed", error=error.as_json()))
        except Exception as error:  # noqa: BLE001  (reported to the test, which ends with it)
            is_clean = False
            said = HarnessError(
                "engine_error", f"the engine's process failed: {type(error).__name__}: {error}"
            )
            writer.write(message(event="failed", error=said.as_json()))
        with suppress(ConnectionError):
            await writer.drain()
            writer.close()
        if not is_clean:
            self.over.set()

    async def _test(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a test; return True if all of its samples were answered."""
        incoming = frames(reader)
        asked: dict[str, Any] = json.loads((await incoming.__anext__())[1])
        backend = vllm.create(asked["settings"], _context(asked, writer))
        if self._loaded is not None:
            backend.loaded = self._loaded.loaded
        facts = await backend.start()
        self._loaded = backend
        gc.collect()
        gc.freeze()  # objects alive now stay alive: the collector need not scan them in the timed part
        writer.write(message(event="ready", facts=dict(facts), version=backend.version))
        sink = _SocketSink(writer, backend, texts=asked["mode"] == "accuracy")
        async for kind, content in incoming:
            if kind == SAMPLES:
                ids, indices = read_issued(content)
                sink.waiting.update(ids)
                backend.submit(Batch(ids, indices), sink)
        backend.release()
        return not sink.waiting and not sink.failed

    async def stop(self) -> None:
        """Stop the engine."""
        if self._loaded is not None:
            await self._loaded.stop()


def _context(asked: dict[str, Any], writer: asyncio.StreamWriter) -> BackendContext:
    return BackendContext(
        unpacked(asked["samples"]),
        asked["scenario"],
        asked["mode"],
        asked["max_output_tokens"],
        asked["sample_timeout_s"],
        Path(asked["output_dir"]),
        lambda words: writer.write(message(event="news", words=words)),
    )


class _SocketSink:
    """Sends answers to the test immediately.

    Args:
        writer: the connection.
        backend: what answers; its counters are sent along with each answer.
        texts: True to send answers as text too.
    """

    def __init__(self, writer: asyncio.StreamWriter, backend: VllmBackend, *, texts: bool) -> None:
        self._writer = writer
        self._backend = backend
        self._texts = texts
        self.waiting: set[int] = set()
        self.failed = False

    def first_token(self, sample_id: int, token: bytes) -> None:
        self._writer.write(first_token(sample_id, token))

    def first_token_many(self, tokens: Sequence[FirstToken]) -> None:
        for one in tokens:
            self.first_token(*one)

    def complete(self, sample_id: int, data: bytes, token_count: int) -> None:  # noqa: ARG002
        # The backend has just counted this answer, and nothing else since the one before.
        stats, self._backend.stats = self._backend.stats, BackendStats()
        text = self._backend.decode(data) if self._texts else ""
        self.waiting.discard(sample_id)
        self._writer.write(
            answered(Answer(sample_id, data, text, stats.input_tokens or 0, stats.cached_tokens or 0))
        )

    def complete_many(self, completions: Sequence[Completion]) -> None:
        for one in completions:
            self.complete(*one)

    def fail(self, sample_id: int, error: HarnessError) -> None:
        self.failed = True
        self._writer.write(message(event="failed", id=sample_id, error=error.as_json()))


async def keep(path: str) -> None:
    """Serve tests at a socket until a signal, the parent's end, or a reason to distrust the engine."""
    engine, parent = KeptEngine(), os.getppid()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, engine.over.set)
    server = await asyncio.start_unix_server(engine.serve, path)
    while not engine.over.is_set() and os.getppid() == parent:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(engine.over.wait(), _LOOK_S)
    server.close()
    await engine.stop()


def main(arguments: list[str]) -> int:
    """Keep an engine at the socket with this path."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m harness.kept_engine SOCKET\n")
        return _EXIT_USAGE
    asyncio.run(keep(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
