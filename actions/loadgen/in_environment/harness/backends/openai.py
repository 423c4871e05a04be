# ruff: noqa: TID252  (the harness is its own top-level package where it runs)
"""Send queries to an OpenAI-compatible HTTP endpoint: ``/v1/completions`` or ``/v1/chat/completions``."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections import deque
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import aiohttp

from ..completion import CompletionReader, whole_characters
from ..endpoint import api_key, base_url, is_like, listed, retried, stored
from ..errors import HarnessError
from ..recount import recount, recount_at_server
from ..reply_log import Reply, ReplyLog
from .base import BackendStats, checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..dataset import Sample
    from .base import Backend, BackendContext, Batch, Sink

_SHOWN = 300
_POLL_S = 0.1
_HTTP_ERROR = 400
_LOADING = 503
_OK = 200
_LAST_WORDS_S = 1.0
_AT_SERVER = 16
_MOMENTS = 9
"""Number of arrival times kept for the text of a reply: of its first blocks of text, and of the last one."""
_WITH_TOKEN_IDS = {"return_token_ids": True, "return_tokens": True, "verbose": True}
"""Fields by which vLLM (the first one) and llama.cpp's server send an answer's token ids."""
_CLOSING = {"llamacpp"}
"""Owners of the models of servers that announce keep-alive, but close a connection after a streamed reply:
the next request would race with the end of its connection."""
_RESERVED = ("model", "prompt", "messages", "max_tokens", "stream", "stream_options")
_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


@dataclass(frozen=True)
class _Settings:
    """Settings of the backend.

    Args:
        url: the server's address, with or without ``/v1``.
        api: ``completions``, or ``chat``, where each prompt is the only message of a user, and must be text.
        model: the model to request, by its name at ``/v1/models``; None for the first one listed.
        model_like: if ``model`` is None, the expected name of the served model: the same words and numbers,
            with any separators, in its full name or in the last part of it.
        request: further fields of every request, such as ``{"ignore_eos": true, "temperature": 0}``.
        api_key_file: a file with the key.
        api_key_env: an environment variable with the key.
        max_in_flight: concurrent requests; others wait here while LoadGen's clock runs for them.
        stream: True to stream answers. None streams except in Offline, where first tokens do not count
            and one reply costs client and server far less than one per token.
        connect_timeout_s: time limit in seconds for the server to be reachable and loaded.
        tokenizer: the model's tokenizer on this host, for counting some answers' tokens a second time.
        token_ids: True to report answers as token ids, which compliance runs compare, instead of text.
    """

    url: str | None = None
    api: str = "completions"
    model: str | None = None
    model_like: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    api_key_file: str | None = None
    api_key_env: str | None = None
    max_in_flight: int = 512
    stream: bool | None = None
    connect_timeout_s: float = 10.0
    tokenizer: str | None = None
    token_ids: bool = False


class OpenAIBackend:
    """Sends each sample as one request.

    Args:
        settings: the settings of the backend.
        context: the run.

    Raises:
        HarnessError: (``config``) if a setting cannot be used.
    """

    def __init__(self, settings: _Settings, context: BackendContext) -> None:
        self._settings = settings
        self.data_encoding = "int32" if settings.token_ids else "utf-8"
        self._context = context
        self._url = base_url(settings.url)
        self._chat = settings.api == "chat"
        self._requests_url = self._url + _PATHS[settings.api]
        self._key = api_key(settings.api_key_file, settings.api_key_env)
        self._stream = context.scenario != "Offline" if settings.stream is None else settings.stream
        self._bodies: list[bytes] = []
        self._model = self._owner = ""
        self._names: tuple[str, ...] = ()
        self._waiting: deque[tuple[float, int, int, Sink]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self._usual: aiohttp.ClientSession | None = None
        self.version = f"aiohttp {aiohttp.__version__}"
        self.stats = BackendStats()

    async def start(self) -> Mapping[str, Any]:
        """Wait for the server and check that it serves the model."""
        self._session = self._open(aiohttp.TCPConnector(limit=0))
        self._fresh = self._open(aiohttp.TCPConnector(limit=0, force_close=True))
        models, server = await self._models()
        served = self._choose(models)
        self._model, self._owner = str(served["id"]), str(served.get("owned_by"))
        self._usual = self._fresh if self._owner in _CLOSING else self._session
        self._names = (self._model, *map(str, served.get("aliases", ())), str(served["listed"]))
        if server:
            self.version += f"; {server}"
        self._bodies = self._make_bodies(served["id"])
        return {
            "type": "openai",
            "url": self._url,
            "api": self._settings.api,
            "model": served["id"],
            "server": server,
            "owned_by": served.get("owned_by"),
            "meta": served.get("meta") or {},
            "max_model_len": served.get("max_model_len"),
            "streamed": self._stream,
            "request": dict(self._settings.request),
        }

    def _open(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        # A gateway that compresses a stream gathers its parts.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        timeout = aiohttp.ClientTimeout(total=self._context.sample_timeout_s)
        return aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)

    async def _models(self) -> tuple[list[dict[str, Any]], str]:
        """Return the models that the server lists, and the server's name for itself."""
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
                    return listed(body), response.headers.get("Server", "")
            except (aiohttp.ClientError, asyncio.TimeoutError) as error:
                problem = self._unreachable(error)
            if perf_counter() > deadline:
                raise problem
            await asyncio.sleep(_POLL_S)

    def _choose(self, models: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the requested model, by its id or one of its aliases."""
        wanted, like = self._settings.model, self._settings.model_like
        for served in models:
            for name in (served["id"], *served.get("aliases", ())):
                if wanted == name or (wanted is None and (like is None or is_like(name, like))):
                    return {**served, "id": name, "listed": served["id"]}
        serves = ", ".join(repr(served["id"]) for served in models) or "none"
        raise HarnessError(
            "model_mismatch",
            f"the requested model is {wanted or like!r}, but {self._url} serves {serves}",
            "start the engine with that model, or set endpointModel to the one that it serves",
        )

    def _make_bodies(self, model: str) -> list[bytes]:
        """Build every request's body before the timed part."""
        common: dict[str, Any] = {
            "model": model,
            "stream": self._stream,
            **(_WITH_TOKEN_IDS if self._settings.token_ids else {}),
            **self._settings.request,
        }
        if self._stream:
            common["stream_options"] = {"include_usage": True}
        head = json.dumps(common)[:-1]
        return [f"{head}, {self._own_part(sample)}}}".encode() for sample in self._context.samples]

    def _own_part(self, sample: Sample) -> str:
        """Return the part of a request that differs from others, as JSON without its braces."""
        own: dict[str, Any] = {"max_tokens": sample.max_output_tokens or self._context.max_output_tokens}
        if self._chat:
            own["messages"] = [{"role": "user", "content": sample.prompt}]
        else:
            own["prompt"] = list(sample.tokens) or sample.prompt
        return json.dumps(own)[1:-1]

    def submit(self, batch: Batch, sink: Sink) -> None:
        """Start as many requests as the limit allows."""
        now = perf_counter()
        self._waiting.extend((now, sample_id, index, sink) for sample_id, index in zip(*batch, strict=True))
        self._start_waiting()
        self.stats.queue_peak = max(self.stats.queue_peak, len(self._waiting))

    def _start_waiting(self) -> None:
        while self._waiting and len(self._tasks) < self._settings.max_in_flight:
            since, sample_id, index, sink = self._waiting.popleft()
            self.stats.queue_wait_max_s = max(self.stats.queue_wait_max_s, perf_counter() - since)
            task = asyncio.ensure_future(self._answer(sample_id, index, sink))
            self._tasks.add(task)
            task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "a request failed", "exception": error})
        self._start_waiting()

    async def _answer(self, sample_id: int, index: int, sink: Sink) -> None:
        """Send one sample and report its answer; retry once on a stale connection."""
        try:
            try:
                await self._request(self._usual, sample_id, index, sink)
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
        reader = CompletionReader(chat=self._chat)
        sent = perf_counter()
        try:
            try:
                response = await session.post(
                    self._requests_url, data=self._bodies[index], allow_redirects=False
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                raise (
                    self._unreachable(error)
                    if isinstance(error, aiohttp.ClientConnectorError)
                    else _NoReplyError(error)
                ) from error
            async with response:
                if response.status != _OK:  # also a part of a reply, and a redirect to another server
                    raise self._http_error(response.status, await response.read())
                if said := stored(response.headers.items()):
                    self._replies.count("stored", said)
                if said := retried(response.headers.items()):
                    self._replies.count("retried", said)
                reader.date = response.headers.get("Date", "")
                if self._stream:
                    await self._read_stream(
                        response, reader, sink, sample_id=sample_id, index=index, sent=sent
                    )
                else:
                    reader.whole(await response.read())
                    self._complete(reader, sample_id, index, (sent, []), sink)
        except asyncio.TimeoutError as error:
            raise HarnessError(
                "timeout",
                f"sample {index} was not answered within {self._context.sample_timeout_s:g} s "
                f"({len(reader.texts)} parts had arrived)",
                "see the engine's log; if slow, raise sampleTimeout (EndpointSweep: requestTimeout)",
            ) from error
        except aiohttp.ClientError as error:
            if not reader.done:
                raise HarnessError(
                    "cut_stream",
                    f"the connection broke after {len(reader.texts)} parts of an answer: "
                    + " ".join(str(error).split()),
                    "see the engine's log: it may have died or run out of memory",
                ) from error

    @property
    def _replies(self) -> ReplyLog:
        """Return the log for the current part of the run."""
        if self.stats.replies is None:
            context = self._context
            self.stats.replies = ReplyLog(
                context.samples,
                self._names,
                context.max_output_tokens,
                distinct=context.mode == "performance",
            )
        return self.stats.replies

    async def _read_stream(
        self,
        response: aiohttp.ClientResponse,
        reader: CompletionReader,
        sink: Sink,
        *,
        sample_id: int,
        index: int,
        sent: float,
    ) -> None:
        """Report the first token when its part arrives, and the answer when the stream ends."""
        noted: frozenset[str] | None = None
        parts = 0
        moments: list[tuple[float, int]] = []
        try:
            async for data in response.content.iter_any():
                reader.feed(data)
                if len(reader.texts) > parts and noted is None:
                    if not parts:
                        sink.first_token(sample_id, self._data(reader, reader.texts[0]))
                    parts = len(reader.texts)
                    if len(moments) > _MOMENTS:
                        moments[-1] = perf_counter(), parts
                    else:
                        moments.append((perf_counter(), parts))
                if reader.done and noted is None:
                    self._complete(reader, sample_id, index, (sent, moments), sink)
                    noted = frozenset(reader.oddities)
        finally:  # the server may have sent more after the end
            if noted is not None:
                reader.check_counts()
                for name in reader.oddities - noted:
                    self._replies.count(name, reader.reply_id or "")
        reader.check_end()
        if noted is None:
            self._complete(reader, sample_id, index, (sent, moments), sink)

    def _complete(
        self,
        reader: CompletionReader,
        sample_id: int,
        index: int,
        times: tuple[float, list[tuple[float, int]]],
        sink: Sink,
    ) -> None:
        """Report a whole answer.

        Args:
            reader: the content of the answer.
            sample_id: LoadGen's id of the sample.
            index: the sample's index in the data set.
            times: time of sending the request; arrivals of text, each with the number of parts so far: the
                first ones, and the last.
            sink: the destination.
        """
        sent, moments = times
        tokens, source = reader.token_count()
        if not self._stream and source != "usage":
            raise HarnessError(
                "malformed_reply",
                "the engine's reply has no usage, so its tokens cannot be counted",
                "set the backend's stream to true: the parts of the stream are counted then",
            )
        if self._stream and not moments and tokens:
            # tokens without text: the client first sees them at the end
            sink.first_token(sample_id, self._data(reader, ""))
        sink.complete(sample_id, self._data(reader, reader.text), tokens)
        ended = perf_counter()
        data = reader.text.encode()
        self._replies.note(Reply(index, reader, data, tokens, source, sent, tuple(moments), ended))
        self.stats.count_input(reader.input_tokens, reader.cached_tokens)
        sources = self.stats.token_count_sources
        sources[source] = sources.get(source, 0) + 1

    def _data(self, reader: CompletionReader, text: str) -> bytes:
        """Return the tokens that have arrived, or the given text, in the data encoding.

        Raises:
            HarnessError: (``no_token_ids``) if token ids are needed, and the engine sends none.
        """
        if not self._settings.token_ids:
            return whole_characters(text).encode()
        if text and not reader.token_ids:
            raise HarnessError(
                "no_token_ids",
                f"{self._url} sends no token ids, which a compliance run compares",
                "use an engine that sends them: vLLM 0.10.2 or newer (return_token_ids), llama.cpp's server",
            )
        return array("i", reader.token_ids).tobytes()

    def _http_error(self, status: int, body: bytes) -> HarnessError:
        shown = self._masked(body.decode(errors="replace").strip())[:_SHOWN]
        remedy = "check api_key_file or api_key_env" if status in {401, 403} else "see the engine's log"
        return HarnessError("http_error", f"{self._url} answered HTTP {status}: {shown}", remedy)

    def _unreachable(self, error: BaseException) -> HarnessError:
        cause = self._masked(str(error)) or type(error).__name__
        return HarnessError(
            "connection",
            f"the engine at {self._url} cannot be reached: {cause}",
            "check that it is still running",
        )

    def _masked(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text

    def decode(self, data: bytes) -> str:
        """Return an answer as text."""
        return data.decode()

    async def stop(self) -> None:
        """Wait for data after the last answers, count some answers' tokens again, close all connections."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_WORDS_S)
        if (replies := self.stats.replies) is not None:
            replies.recount = (
                recount(replies.kept, self._settings.tokenizer)
                if self._settings.tokenizer
                else await recount_at_server(replies.kept[:_AT_SERVER], self._tokens_of)
            )
        for session in (self._session, self._fresh):
            if session is not None:
                await session.close()

    async def _tokens_of(self, text: str) -> int | None:
        """Return a text's token count by llama.cpp's or vLLM's tokenizer; None if the server has none."""
        assert self._fresh is not None  # noqa: S101
        asked = {"content": text, "add_special": False}
        if self._owner != "llamacpp":
            asked = {"model": self._model, "prompt": text, "add_special_tokens": False}
        try:
            async with self._fresh.post(f"{self._url}/tokenize", json=asked) as response:
                told = await response.json() if response.status == _OK else {}
            return len(told["tokens"])
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, KeyError, TypeError):
            return None

    def kill(self) -> None:
        """Do nothing: this backend has no child processes."""


class _NoReplyError(Exception):
    """The connection was closed before any byte of the reply; the server may not have seen the request."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def create(settings: Mapping[str, Any], context: BackendContext) -> Backend:
    """Create the backend."""
    defaults = vars(_Settings())
    values = _Settings(**checked(settings, defaults, "openai"))
    for name in values.request:
        if name in _RESERVED:
            raise HarnessError("config", f"the backend's request may not set {name!r}", "the harness sets it")
    if values.api not in _PATHS:
        raise HarnessError("config", f"api is {values.api!r}", f"give one of {', '.join(_PATHS)}")
    if values.api == "chat" and not all(sample.prompt for sample in context.samples):
        raise HarnessError(
            "config",
            "the chat API takes texts, but a sample has only token ids",
            "give samples with a prompt",
        )
    if values.max_in_flight < 1:
        raise HarnessError("config", f"max_in_flight is {values.max_in_flight}; the least is 1")
    return OpenAIBackend(values, context)
