"""Answer with vLLM in a process that outlives the test (``harness.kept_engine``), through its socket."""

# ruff: noqa: TID252  (the harness is its own top-level package where it runs)
from __future__ import annotations

import asyncio
import json
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..engine_link import (
    ANSWER,
    FIRST_TOKEN,
    MESSAGE,
    frames,
    issued,
    message,
    packed,
    read_answer,
    read_first_token,
)
from ..errors import HarnessError
from .base import BackendStats, checked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from .base import BackendContext, Batch, Sink

_DEFAULTS: Mapping[str, Any] = {"socket": None, "settings": {}, "connect_timeout_s": 30.0}
_AGAIN_S = 0.05


class KeptVllmBackend:
    """Passes samples to the engine's process, and its answers on.

    Args:
        socket: the process's socket.
        settings: the settings of the vllm backend.
        connect_timeout_s: seconds in which the process must listen.
        context: the run.
    """

    data_encoding = "int32"

    def __init__(
        self, *, socket: str, settings: Mapping[str, Any], connect_timeout_s: float, context: BackendContext
    ) -> None:
        self._socket = socket
        self._settings = settings
        self._connect_timeout_s = connect_timeout_s
        self._context = context
        self._writer: asyncio.StreamWriter | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._sinks: dict[int, Sink] = {}
        self._texts: dict[bytes, str] = {}
        self._failure: HarnessError | None = None
        self.version = "vllm"
        self.stats = BackendStats()

    async def start(self) -> Mapping[str, Any]:
        """Connect, and wait until the engine is loaded.

        Raises:
            HarnessError: if the process cannot be reached, or its engine does not start.
        """
        reader, self._writer = await self._connect()
        context = self._context
        self._writer.write(
            message(
                settings=dict(self._settings),
                samples=packed(context.samples),
                scenario=context.scenario,
                mode=context.mode,
                max_output_tokens=context.max_output_tokens,
                sample_timeout_s=context.sample_timeout_s,
                output_dir=str(context.output_dir),
            )
        )
        incoming = frames(reader)
        async for _, content in incoming:
            said = json.loads(content)
            if said["event"] == "news":
                context.tell(said["words"])
            elif said["event"] == "failed":
                raise HarnessError(**said["error"])
            else:
                self.version = said["version"]
                self._receiving = asyncio.get_running_loop().create_task(self._receive(incoming))
                facts: dict[str, Any] = said["facts"]
                return facts
        raise self._gone("before the engine was loaded")

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        deadline = perf_counter() + self._connect_timeout_s
        while True:
            try:
                return await asyncio.open_unix_connection(self._socket)
            except OSError as error:  # it does not listen yet
                if perf_counter() > deadline:
                    raise HarnessError(
                        "connection",
                        f"the engine's process does not listen: {error.strerror}",
                        "see server.log",
                    ) from error
            await asyncio.sleep(_AGAIN_S)

    async def _receive(self, incoming: AsyncIterator[tuple[bytes, bytes]]) -> None:
        """Pass answers on until the connection is closed."""
        async for kind, content in incoming:
            if kind == FIRST_TOKEN:
                sample_id, token = read_first_token(content)
                self._sinks[sample_id].first_token(sample_id, token)
            elif kind == ANSWER:
                self._answered(content)
            elif kind == MESSAGE:
                self._fail(HarnessError(**json.loads(content)["error"]))
        self._fail(self._gone("during the test"))

    def _answered(self, content: bytes) -> None:
        answer = read_answer(content)
        if self._context.mode == "accuracy":
            self._texts[answer.data] = answer.text
        self.stats.count_input(answer.input_tokens, answer.cached_tokens)
        sources = self.stats.token_count_sources
        sources["engine"] = sources.get("engine", 0) + 1
        # Tokens are 32-bit numbers.
        self._sinks.pop(answer.sample_id).complete(answer.sample_id, answer.data, len(answer.data) // 4)

    def _fail(self, error: HarnessError) -> None:
        self._failure = error
        for sample_id, sink in list(self._sinks.items()):
            sink.fail(sample_id, error)

    def _gone(self, when: str) -> HarnessError:
        log = self._context.output_dir / "engine.log"
        return HarnessError("engine_error", f"the engine's process ended {when}", f"see {log} and server.log")

    def submit(self, batch: Batch, sink: Sink) -> None:
        """Send the samples."""
        assert self._writer is not None  # noqa: S101 - start comes first
        self._sinks.update(dict.fromkeys(batch.ids, sink))
        if self._failure is not None:
            self._fail(self._failure)
            return
        self._writer.write(issued(batch.ids, batch.indices))

    def decode(self, data: bytes) -> str:
        """Return an answer as text."""
        return self._texts[data]

    async def stop(self) -> None:
        """Close the connection; the engine stays."""
        if self._receiving is not None:
            self._receiving.cancel()
        if self._writer is not None:
            self._writer.close()

    def kill(self) -> None:
        """Do nothing: the engine's process ends when it sees that a test did not end well."""


def create(settings: Mapping[str, Any], context: BackendContext) -> KeptVllmBackend:
    """Create the backend.

    Raises:
        HarnessError: (``config``) if a setting is unknown or socket is missing.
    """
    values = checked(settings, _DEFAULTS, "vllm_kept")
    if not values["socket"]:
        raise HarnessError(
            "config", "the vllm_kept backend needs a socket", "give that of harness.kept_engine"
        )
    return KeptVllmBackend(**values, context=context)
