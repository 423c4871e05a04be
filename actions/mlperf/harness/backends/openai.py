# ruff: noqa: TID252  (the harness is its own top-level package where it runs)
"""An OpenAI-compatible HTTP endpoint: vLLM's, llama.cpp's or any other server's ``/v1/completions``."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp

from ..completion import CompletionReader
from ..errors import HarnessError
from .base import BackendStats, checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .base import Backend, BackendContext, Batch, Sink

__all__ = ["OpenAIBackend", "create"]

_SHOWN = 300
_POLL_S = 0.1
_HTTP_ERROR = 400
_LOADING = 503
_RESERVED = ("model", "prompt", "max_tokens", "stream", "stream_options")


@dataclass(frozen=True)
class _Settings:
    """The backend's settings.

    Args:
        url: where the server listens, with or without ``/v1``.
        model: the model to ask for, as ``/v1/models`` names it; the first one there if None.
        request: further fields of every request, such as ``{"ignore_eos": true, "temperature": 0}``.
        api_key_file: a file that holds the key.
        api_key_env: an environment variable that holds it.
        max_in_flight: requests under way at once; more wait here, and LoadGen's clock runs for them.
        stream: whether answers are streamed. None: except in Offline, where nobody waits for a first token
            and one reply costs client and server far less than one a token.
        connect_timeout_s: seconds the server may take to be reachable and loaded.
    """

    url: str | None = None
    model: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    api_key_file: str | None = None
    api_key_env: str | None = None
    max_in_flight: int = 512
    stream: bool | None = None
    connect_timeout_s: float = 10.0


class OpenAIBackend:
    """Sends each sample as one request.

    Args:
        settings: its settings.
        context: the run.

    Raises:
        HarnessError: (``config``) if a setting cannot be used.
    """

    data_encoding = "utf-8"

    def __init__(self, settings: _Settings, context: BackendContext) -> None:
        self._settings = settings
        self._context = context
        self._url = _base_url(settings.url)
        self._key = _api_key(settings)
        self._stream = context.scenario != "Offline" if settings.stream is None else settings.stream
        self._bodies: list[bytes] = []
        self._waiting: deque[tuple[int, int, Sink]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self.version = f"aiohttp {aiohttp.__version__}"
        self.stats = BackendStats()

    async def start(self) -> Mapping[str, Any]:
        """Wait for the server and check that it serves the model."""
        self._session = self._open(aiohttp.TCPConnector(limit=0))
        self._fresh = self._open(aiohttp.TCPConnector(limit=0, force_close=True))
        listed, server = await self._models()
        served = self._choose(listed)
        if server:
            self.version += f"; {server}"
        self._bodies = self._make_bodies(served["id"])
        return {
            "type": "openai",
            "url": self._url,
            "model": served["id"],
            "server": server,
            "owned_by": served.get("owned_by"),
            "meta": served.get("meta") or {},
            "max_model_len": served.get("max_model_len"),
            "streamed": self._stream,
            "request": dict(self._settings.request),
        }

    def _open(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        timeout = aiohttp.ClientTimeout(total=self._context.sample_timeout_s)
        return aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)

    async def _models(self) -> tuple[list[dict[str, Any]], str]:
        """The models that the server lists, and what it calls itself."""
        assert self._session is not None  # noqa: S101
        deadline = perf_counter() + self._settings.connect_timeout_s
        while True:
            try:
                async with self._session.get(f"{self._url}/v1/models") as response:
                    body = await response.read()
                if response.status == _LOADING:
                    problem = self._http_error(response.status, body)
                elif response.status >= _HTTP_ERROR:
                    raise self._http_error(response.status, body)
                else:
                    return _listed(body), response.headers.get("Server", "")
            except (aiohttp.ClientError, asyncio.TimeoutError) as error:
                problem = self._unreachable(error)
            if perf_counter() > deadline:
                raise problem
            await asyncio.sleep(_POLL_S)

    def _choose(self, listed: list[dict[str, Any]]) -> dict[str, Any]:
        """The model asked for, by its id or one of its aliases."""
        wanted = self._settings.model
        for served in listed:
            if wanted is None or wanted == served["id"] or wanted in served.get("aliases", ()):
                return {**served, "id": wanted or served["id"]}
        raise HarnessError(
            "model_mismatch",
            f"the model asked for is {wanted!r}, but {self._url} serves "
            + (", ".join(repr(served["id"]) for served in listed) or "none"),
            "start the engine with that model, or ask for the one it serves",
        )

    def _make_bodies(self, model: str) -> list[bytes]:
        """Every request's body, made before the timed part."""
        common: dict[str, Any] = {
            "model": model,
            "max_tokens": self._context.max_output_tokens,
            "stream": self._stream,
            **self._settings.request,
        }
        if self._stream:
            common["stream_options"] = {"include_usage": True}
        head = json.dumps(common)[:-1]
        return [
            f'{head}, "prompt": {json.dumps(sample.prompt)}}}'.encode() for sample in self._context.samples
        ]

    def submit(self, batch: Batch, sink: Sink) -> None:
        """Start requests, as many as may be under way."""
        self._waiting.extend((sample_id, index, sink) for sample_id, index in zip(*batch, strict=True))
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._tasks) < self._settings.max_in_flight:
            task = asyncio.ensure_future(self._answer(*self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "a request failed", "exception": error})
        self._start_waiting()

    async def _answer(self, sample_id: int, index: int, sink: Sink) -> None:
        """One sample, from its request to the report of its answer; a stale connection is tried once more."""
        try:
            try:
                await self._request(self._session, sample_id, index, sink)
            except _NoReplyError:
                self.stats.retries += 1
                await self._request(self._fresh, sample_id, index, sink)
        except HarnessError as error:
            sink.fail(sample_id, error)
        except _NoReplyError as error:
            sink.fail(sample_id, self._unreachable(error.cause))

    async def _request(
        self, session: aiohttp.ClientSession | None, sample_id: int, index: int, sink: Sink
    ) -> None:
        assert session is not None, "not started"  # noqa: S101
        reader = CompletionReader()
        try:
            try:
                response = await session.post(f"{self._url}/v1/completions", data=self._bodies[index])
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                raise (
                    self._unreachable(error)
                    if isinstance(error, aiohttp.ClientConnectorError)
                    else _NoReplyError(error)
                ) from error
            async with response:
                if response.status >= _HTTP_ERROR:
                    raise self._http_error(response.status, await response.read())
                if self._stream:
                    await self._read_stream(response, reader, sample_id, sink)
                else:
                    reader.whole(await response.read())
                    self._complete(reader, sample_id, sink)
        except asyncio.TimeoutError as error:
            raise HarnessError(
                "timeout",
                f"sample {index} was not answered within {self._context.sample_timeout_s:g} s "
                f"({len(reader.texts)} parts had come)",
                "see the engine's log; a slow engine needs a larger sample_timeout_s",
            ) from error
        except aiohttp.ClientError as error:
            if not reader.done:
                raise HarnessError(
                    "cut_stream",
                    f"the connection broke after {len(reader.texts)} parts of an answer: "
                    + " ".join(str(error).split()),
                    "see the engine's log: it may have died or run out of memory",
                ) from error

    async def _read_stream(
        self, response: aiohttp.ClientResponse, reader: CompletionReader, sample_id: int, sink: Sink
    ) -> None:
        """Report the first token when its part arrives, and the answer when the stream says it is over."""
        is_reported = is_complete = False
        async for data in response.content.iter_any():
            reader.feed(data)
            if reader.texts and not is_reported:
                is_reported = True
                sink.first_token(sample_id, reader.texts[0].encode())
            if reader.done and not is_complete:
                is_complete = True
                self._complete(reader, sample_id, sink, first_is_missing=not is_reported)
        reader.check_end()
        if not is_complete:
            self._complete(reader, sample_id, sink, first_is_missing=not is_reported)

    def _complete(
        self, reader: CompletionReader, sample_id: int, sink: Sink, *, first_is_missing: bool = False
    ) -> None:
        tokens, source = reader.token_count()
        if not self._stream and source != "usage":
            raise HarnessError(
                "malformed_reply",
                "the engine's reply has no usage, so its tokens cannot be counted",
                "set the backend's stream to true: then the parts of the stream are counted",
            )
        if first_is_missing and tokens:
            sink.first_token(sample_id, b"")  # tokens without any text: the end is the first one can see
        sink.complete(sample_id, reader.text.encode(), tokens)
        self.stats.input_tokens += reader.input_tokens
        self.stats.cached_tokens += reader.cached_tokens
        sources = self.stats.token_count_sources
        sources[source] = sources.get(source, 0) + 1

    def _http_error(self, status: int, body: bytes) -> HarnessError:
        shown = self._masked(body.decode(errors="replace").strip())[:_SHOWN]
        remedy = "check api_key_file or api_key_env" if status in {401, 403} else "see the engine's log"
        return HarnessError("http_error", f"{self._url} answered HTTP {status}: {shown}", remedy)

    def _unreachable(self, error: BaseException) -> HarnessError:
        cause = self._masked(str(error)) or type(error).__name__
        return HarnessError(
            "connection", f"the engine at {self._url} cannot be reached: {cause}", "see whether it still runs"
        )

    def _masked(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text

    def decode(self, data: bytes) -> str:
        """An answer as text."""
        return data.decode()

    async def stop(self) -> None:
        """Close all connections."""
        for session in (self._session, self._fresh):
            if session is not None:
                await session.close()

    def kill(self) -> None:
        """There are no child processes."""


class _NoReplyError(Exception):
    """The connection was closed before any byte of the reply; the server may not have seen the request."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _base_url(url: str | None) -> str:
    parts = urlsplit(url or "")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise HarnessError(
            "config", f"the backend's url is {url!r}", "give one such as http://127.0.0.1:8000"
        )
    if "@" in parts.netloc:
        raise HarnessError("config", "the backend's url holds a password", "use api_key_file or api_key_env")
    return (url or "").rstrip("/").removesuffix("/v1")


def _api_key(settings: _Settings) -> str:
    """The key, from a file or the environment, so that it stands in no configuration or process list."""
    if settings.api_key_file:
        with suppress(OSError):
            return Path(settings.api_key_file).read_text(encoding="utf-8").strip()
        raise HarnessError("config", f"api_key_file {settings.api_key_file} cannot be read")
    if settings.api_key_env:
        if settings.api_key_env not in os.environ:
            raise HarnessError("config", f"api_key_env {settings.api_key_env} is not set")
        return os.environ[settings.api_key_env]
    return ""


def _listed(body: bytes) -> list[dict[str, Any]]:
    try:
        listed = json.loads(body)["data"]
        return [{**served, "id": str(served["id"])} for served in listed]
    except (ValueError, TypeError, KeyError) as error:
        shown = body[:_SHOWN].decode(errors="replace")
        raise HarnessError("malformed_reply", f"/v1/models is no list of models: {shown!r}") from error


def create(settings: Mapping[str, Any], context: BackendContext) -> Backend:
    """Make the backend."""
    defaults = vars(_Settings())
    values = _Settings(**checked(settings, defaults, "openai"))
    for name in values.request:
        if name in _RESERVED:
            raise HarnessError("config", f"the backend's request may not set {name!r}", "the harness sets it")
    if values.max_in_flight < 1:
        raise HarnessError("config", f"max_in_flight is {values.max_in_flight}; the least is 1")
    return OpenAIBackend(values, context)
