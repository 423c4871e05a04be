"""Serve the mock engine; prints its port as a JSON line, ``{"event": "listening", "port": 8000}``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from .answer import Answer, words_of
from .cheats import CHEATS

FAULTS = {
    "none": "answer every request",
    "http_500": "answer with HTTP 500",
    "http_400": "answer with HTTP 400",
    "http_206": "answer with HTTP 206, as if the reply were a part of one",
    "http_307": "answer with HTTP 307: another address has the answer",
    "hang": "accept the request and never answer",
    "hang_midway": "stop in the middle of an answer",
    "cut": "end the stream in the middle of an answer, as if it were over",
    "reset": "break the connection in the middle of an answer",
    "die": "end the process in the middle of an answer",
    "malformed": "send an event that is not JSON",
    "error_event": "send an error as an event of the stream",
    "no_tokens": "answer without any token",
    "abort": "end an answer in the middle with the finish_reason abort",
    "drop": "close the connection before any byte of the reply",
}


@dataclass(frozen=True)
class MockOptions:
    """Behaviour of the server.

    Args:
        model: the model it serves.
        tokens: output tokens of an answer; 0 for the number requested.
        first_token_s: seconds to the first token.
        token_s: seconds between tokens.
        fault: one of FAULTS or CHEATS.
        fault_after: requests answered correctly before the fault.
        fault_count: requests that meet the fault; 0 for all further ones.
        cached_tokens: prompt tokens reported as taken from a cache.
        cache_report: True to report cached tokens.
        usage: True to report token counts.
        keep_alive: True if a connection serves several requests; if False, it is closed after a reply
            without notice, as llama.cpp's server does after a stream.
        loading_s: seconds of HTTP 503 after the start, as while a model loads.
        api_key: a key that every request must send.
        echo: True if the answer repeats the prompt; if False, the words depend on the prompt.
        share: share of the eligible requests that meet the fault.
        slots: requests answered concurrently, others wait; 0 for no limit.
    """

    model: str = "mock"
    tokens: int = 0
    first_token_s: float = 0.0
    token_s: float = 0.0
    fault: str = "none"
    fault_after: int = 0
    fault_count: int = 0
    cached_tokens: int = 0
    cache_report: bool = True
    usage: bool = True
    keep_alive: bool = True
    loading_s: float = 0.0
    api_key: str = ""
    echo: bool = True
    share: float = 1.0
    slots: int = 0


class _CloseConnectionError(Exception):
    """Raised to close the connection immediately."""


class MockServer:
    """Serves ``/health``, ``/v1/models``, ``/v1/completions`` and ``/v1/chat/completions``.

    ``/servers`` starts another server in the same process: it takes the options that differ, as JSON, and
    replies with the port. So one process can stand in for many engines.
    """

    def __init__(self, options: MockOptions) -> None:
        self._options = options
        self._requests = 0
        self._ready_at = 0.0
        self._slots = asyncio.Semaphore(options.slots) if options.slots else None

    async def serve(self, port: int, host: str = "127.0.0.1") -> None:
        """Listen on this port (0 for any free one) of a local address until cancelled."""
        async with await self._listen(port, host) as server:
            sys.stdout.write(json.dumps({"event": "listening", "port": _port(server)}) + "\n")
            sys.stdout.flush()
            await server.serve_forever()

    async def _listen(self, port: int, host: str) -> asyncio.Server:
        self._ready_at = asyncio.get_running_loop().time() + self._options.loading_s
        return await asyncio.start_server(self._connection, host, port, backlog=1024)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one connection in sequence."""
        with suppress(_CloseConnectionError, asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self._request(head.split(" ", 2)[1], head, body, writer)
                if not self._options.keep_alive:
                    break
        writer.close()

    async def _request(self, path: str, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        options = self._options
        if asyncio.get_running_loop().time() < self._ready_at:
            _reply(writer, 503, {"error": {"message": "Loading model"}})
        elif options.api_key and f"Bearer {options.api_key}" not in head:
            _reply(writer, 401, {"error": {"message": f"wrong key in: {head}"}})
        elif path == "/health":
            _reply(writer, 200, {"status": "ok"})
        elif path == "/v1/models":
            listed = {"id": options.model, "object": "model", "owned_by": "mock"}
            _reply(writer, 200, {"object": "list", "data": [listed]})
        elif path in {"/v1/completions", "/v1/chat/completions"}:
            async with self._slots or nullcontext():
                await self._completion(json.loads(body), writer)
        elif path == "/servers":
            another = MockServer(replace(options, **json.loads(body)))
            _reply(writer, 200, {"port": _port(await another._listen(0, "127.0.0.1"))})
        else:
            _reply(writer, 404, {"error": {"message": f"no {path} here"}})
        await writer.drain()

    def _next_fault(self) -> str:
        """Return the fault that the next request meets."""
        options = self._options
        number, self._requests = self._requests, self._requests + 1
        past = number - options.fault_after
        if past < 0 or (options.fault_count and past >= options.fault_count):
            return "none"
        return options.fault if int((past + 1) * options.share) > int(past * options.share) else "none"

    async def _completion(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        options, fault = self._options, self._next_fault()
        if fault.startswith("http_"):
            _reply(
                writer,
                int(fault[5:]),
                {"error": {"message": "out of memory, said the mock"}},
                "Location: /elsewhere\r\n" if fault == "http_307" else "",
            )
            return
        if fault == "hang":
            await asyncio.Event().wait()
        if fault == "drop":
            raise _CloseConnectionError
        tokens = 0 if fault == "no_tokens" else options.tokens or int(request.get("max_tokens", 16))
        messages = request.get("messages")
        answer = self._answer(messages[-1]["content"] if messages else request["prompt"], tokens)
        if messages:
            answer.chat = "delta" if request.get("stream") else "message"
        if fault in CHEATS:
            CHEATS[fault](answer)
        if answer.body is not None:
            _reply(writer, 200, answer.body)
        elif request.get("stream"):
            await self._stream(answer, fault, writer)
        else:
            await self._whole(answer, fault, writer)

    def _answer(self, prompt: str | list[int], tokens: int) -> Answer:
        """Return an honest answer."""
        options = self._options
        words = prompt.split() if isinstance(prompt, str) else [str(token) for token in prompt]
        echoed = [f" {words[number % len(words)]}" for number in range(tokens)]
        usage = {
            "prompt_tokens": len(words),
            "completion_tokens": tokens,
            "prompt_tokens_details": {"cached_tokens": options.cached_tokens}
            if options.cache_report
            else None,
        }
        return Answer(
            words,
            echoed if options.echo else words_of(" ".join(words), tokens),
            usage if options.usage else None,
            options.model,
            f"cmpl-{self._requests}",
            self._requests,
        )

    async def _whole(self, answer: Answer, fault: str, writer: asyncio.StreamWriter) -> None:
        options = self._options
        if not answer.instant:
            await asyncio.sleep(options.first_token_s + options.token_s * (len(answer.parts) - 1))
        if fault == "die":
            os._exit(1)
        if fault == "malformed":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot JSON!")
            return
        content = answer.event("".join(answer.parts), "abort" if fault == "abort" else answer.finish)
        edits = {name: value for name, value in answer.edits.get(0, {}).items() if name != "choices"}
        _reply(writer, 200, {**content, **answer.last(), **edits}, answer.headers)

    async def _stream(self, answer: Answer, fault: str, writer: asyncio.StreamWriter) -> None:
        options, parts = self._options, answer.parts
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        writer.write(f"{head}{answer.headers}Transfer-Encoding: chunked\r\n\r\n".encode())
        for event in answer.begin:
            _event(writer, event)
        waits = {} if answer.instant else {0: options.first_token_s, **answer.pauses}
        token_s = 0.0 if answer.together or answer.instant else options.token_s
        for number, part in enumerate(parts):
            if wait := waits.get(number):
                await writer.drain()
                await asyncio.sleep(wait)
            if number == len(parts) // 2 and fault in FAULTS and fault != "none":
                await self._misbehave(fault, writer)
                if fault == "cut":
                    return
            if answer.comments:
                _chunk(writer, b": keep-alive\n\n")
            event = answer.event(part)
            if answer.usage_of_parts:
                event["usage"] = {"completion_tokens": answer.usage_of_parts[number]}
            _edited(writer, answer, number, event)
            if token_s and number + 1 < len(parts):  # an engine ends its stream with the last token
                await writer.drain()
                await asyncio.sleep(token_s)
        await self._end(answer, writer)

    async def _end(self, answer: Answer, writer: asyncio.StreamWriter) -> None:
        count = len(answer.parts)
        _edited(writer, answer, count, answer.event("", answer.finish))
        if last := answer.last():
            _edited(writer, answer, count + 1, {**answer.event(""), "choices": [], **last})
        for _ in range(answer.ends):
            _chunk(writer, b"data: [DONE]\n\n")
        for event in answer.more.get(-1, ()):
            _event(writer, event)
        for part in answer.late:
            await writer.drain()
            await asyncio.sleep(self._options.token_s)
            _event(writer, answer.event(part))
        writer.write(b"0\r\n\r\n")

    async def _misbehave(self, fault: str, writer: asyncio.StreamWriter) -> None:
        """Fail in the middle of an answer."""
        await writer.drain()
        if fault == "hang_midway":
            await asyncio.Event().wait()
        elif fault == "cut":
            writer.write(b"0\r\n\r\n")
        elif fault == "reset":
            writer.transport.abort()
            raise _CloseConnectionError
        elif fault == "die":
            os._exit(1)
        elif fault == "malformed":
            _chunk(writer, b"data: {not JSON}\n\n")
        elif fault == "abort":
            _event(writer, {"choices": [{"text": "", "finish_reason": "abort"}]})
        elif fault == "error_event":
            _event(writer, {"error": {"message": "the slot was lost"}})


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


def _reply(writer: asyncio.StreamWriter, status: int, content: dict[str, Any], headers: str = "") -> None:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status} Mock\r\nServer: mock\r\n{headers}Content-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _edited(writer: asyncio.StreamWriter, answer: Answer, number: int, content: dict[str, Any]) -> None:
    """Send an event with its changes, and the events that follow it."""
    for event in ({**content, **answer.edits.get(number, {})}, *answer.more.get(number, ())):
        _event(writer, event)


def _event(writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
    _chunk(writer, b"data: " + json.dumps(content).encode() + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def main() -> None:
    """Serve until killed; every option of MockOptions is a command-line option."""
    parser = argparse.ArgumentParser(prog="mock_engine", description="A stand-in for an engine.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    for option in fields(MockOptions):
        flag = f"--{option.name.replace('_', '-')}"
        if isinstance(option.default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=option.default)
        else:
            choices = [*FAULTS, *CHEATS] if option.name == "fault" else None
            parser.add_argument(flag, type=type(option.default), default=option.default, choices=choices)
    values = vars(parser.parse_args())
    host, port = values.pop("host"), values.pop("port")
    with suppress(KeyboardInterrupt):
        asyncio.run(MockServer(MockOptions(**values)).serve(port, host))
