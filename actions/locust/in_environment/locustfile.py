"""Simulate users that request text from a server, one request after another, in an environment with locust.

It imports nothing from the agent. ``VCAGENT_LOAD`` names the folder of its ``load.json`` and
``prompts.json``; each process with users writes ``requests-<process>.jsonl`` there: the time of each request,
and the arrival of each part of its reply. Times are seconds of the host's monotonic clock, which all
processes share.

For locust a request ends with its headers, when a streamed reply has hardly begun. So the users take the
times themselves, and locust counts three events of each request: POST (the whole), TTFT and TPOT.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import re
import time
import zlib
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import gevent
from locust import User, constant, events, task
from locust.runners import WorkerRunner

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(os.environ["VCAGENT_LOAD"])
LOAD: dict[str, Any] = {
    **json.loads((FOLDER / "load.json").read_text(encoding="utf-8")),
    **json.loads((FOLDER / "prompts.json").read_text(encoding="utf-8")),
}
KEY = os.environ.get("VCAGENT_LOAD_KEY", "")
PATHS = {"llamacpp": "/completion", "openai": "/v1/completions"}
PAUSE_AFTER_FAILURE_S = 0.5
"""Pause in seconds after a failure, so that a server that refuses requests is not flooded."""
MOST_WITHOUT_TEXT = 4
"""Maximum number of tokens in a row without text, as in LoadGen's harness."""
WITHHELD = ("content_filter", "tool_calls", "function_call")
"""Values of finish_reason for an answer that is not the requested text."""
INCOMPLETE = ("abort", "error")
"""Values of finish_reason (of vLLM and SGLang) for an incomplete answer."""
ERROR = re.compile(
    r"\s*(\{\s*\"(error|detail)\"|<html|error\b\s*[:\d(]|(an )?internal (server )?error|traceback \(most|"
    r"cuda (error|out of memory)|out of memory|rate limit|too many requests|service unavailable)",
    re.IGNORECASE,
)
"""The beginning of an error in place of an answer, as in LoadGen's harness."""
PROGRESS_S = 1.0
HIT = re.compile(r"(\b|_)hit\b")
BUILD_NAMES = ("system_fingerprint", "provider")
CACHED_NAMES = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
USUAL_TRIES = {
    "x-litellm-attempted-retries": 0,
    "x-litellm-attempted-fallbacks": 0,
    "x-portkey-retry-attempt-count": 0,
    "cf-aig-step": 0,
    "x-envoy-attempt-count": 1,
    "ngrok-aig-attempts": 1,
}
"""Fields and headers that reveal a router or a cache, as in LoadGen's harness."""
FIRST_PARTS = 9
"""Number of parts whose text is logged, as checksums, to find answers that begin alike."""
MOST_REPEATED = 2
"""Different parts of an answer that repeats a word or two."""


class ReplyError(Exception):
    """Raised for a reply that does not count."""


_NOT_A_REPLY = (
    OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError, RecursionError,
)  # fmt: skip
"""Errors of the connection, and of reading something that is not a reply."""


@dataclass
class Reply:
    """A reply as it arrives: the time of each part, and the server's own numbers at the end."""

    arrivals: list[float] = field(default_factory=list)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    truncated: bool = False
    ended: bool = False
    counted: bool = False
    finish: str = ""
    went_on: bool = False
    """True after a part with text that had no finish_reason: only then does one show an end."""
    texts_counted: int = 0
    builds: dict[str, str] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    oddities: set[str] = field(default_factory=set)
    model: str = ""
    ids: set[str] = field(default_factory=set)
    parts_with_id: int = 0
    created_s: float = 0.0

    def take(self, event: dict[str, Any] | None) -> None:
        """Read one event of the stream; None for the one that says that the stream has ended."""
        if event is None:
            if self.ended and LOAD["api"] == "openai":
                self.oddities.add("data_after_end")
            self.ended = True
            return
        error = event.get("error")
        if error or event.get("object") == "error":  # vLLM before 0.10 wrote the latter
            error = error or event
            said = error.get("message", error) if isinstance(error, dict) else error
            raise ReplyError(f"the server says: {said}")
        self._heading(event)
        if LOAD["api"] == "openai":
            self._take_openai(event)
        elif event.get("stop"):
            self._count(event["tokens_evaluated"], event["tokens_predicted"])
            self.ended, self.finish = True, "stop"
            self.truncated = bool(event.get("truncated"))
            self.timings = {
                name: value
                for name, value in (event.get("timings") or {}).items()
                if isinstance(value, int | float)
            }
            self.cached_tokens = self.timings.get("cache_n")  # type: ignore[assignment]
        else:
            self._part(event.get("content") or "")

    def _heading(self, event: dict[str, Any]) -> None:
        """Record the statements that each part of a reply repeats."""
        if (model := event.get("model")) and model != self.model:
            if self.model:
                self.oddities.add("models")
            elif LOAD["api"] == "openai" and model != LOAD["model"]:
                self.oddities.add("other_model")
            self.model = model
        for name in BUILD_NAMES:
            if build := str(event.get(name) or ""):
                if self.builds.get(name, build) != build:
                    self.oddities.add("builds")
                self.builds[name] = build
        # Azure's parts about content filters have an empty id and the time 0.
        if own := event.get("id"):
            self.parts_with_id += 1
            self.ids.add(str(own))
        if (created_s := event.get("created")) and isinstance(created_s, int | float):
            if created_s < self.created_s:
                self.oddities.add("created_falls")
            self.created_s = created_s

    def _part(self, text: str, *, has_finish: bool = False) -> None:
        if self.ended:
            self.oddities.add("text_after_end")
        elif self.finish and self.went_on:
            self.oddities.add("text_after_finish")
        elif self.finish:
            if self.texts:
                self.oddities.add("early_finish")
            if not has_finish:
                self.finish = ""
        self.went_on = self.went_on or not has_finish
        self.texts.append(text)
        self.arrivals.append(time.monotonic())

    def _count(self, input_tokens: int, output_tokens: int) -> None:
        """Record the server's counts, and how they differ from earlier ones."""
        before = self.input_tokens, self.output_tokens or 0
        if self.ended:
            same = self.counted and before == (input_tokens, output_tokens)
            self.oddities.add("data_after_end" if same else "usage_after_end")
        else:
            if before[0] and input_tokens and input_tokens != before[0]:
                self.oddities.add("prompt_differs")
            if output_tokens < before[1]:
                self.oddities.add("usage_falls")
            elif (
                self.counted
                and self.texts_counted == len(self.texts)
                and output_tokens - before[1] > MOST_WITHOUT_TEXT
            ):
                self.oddities.add("usage_differs")
        self.input_tokens, self.output_tokens, self.counted = input_tokens, output_tokens, True
        self.texts_counted = len(self.texts)

    def _take_openai(self, event: dict[str, Any]) -> None:
        choices = event.get("choices") or ()
        if len(choices) > 1 or (choices and choices[0].get("index")):
            self.oddities.add("choices")
        for choice in choices[:1]:
            self._take_choice(choice.get("text"), choice.get("finish_reason"))
        if usage := event.get("usage"):
            self._count(usage["prompt_tokens"], usage["completion_tokens"])
            total = usage.get("total_tokens")
            if total is not None and total != usage["prompt_tokens"] + usage["completion_tokens"]:
                self.oddities.add("total_tokens")
            details = usage.get("prompt_tokens_details") or {}
            for cached in (details.get("cached_tokens"), *map(usage.get, CACHED_NAMES)):
                if cached is not None:
                    self.cached_tokens = max(cached, self.cached_tokens or 0)
            of_answer = usage.get("completion_tokens_details") or {}
            if of_answer.get("reasoning_tokens") or of_answer.get("rejected_prediction_tokens"):
                self.oddities.add("hidden_tokens")

    def _take_choice(self, text: str | None, finish: str | None) -> None:
        if finish == "null":  # KoboldCpp, in parts before the end; Ollama and SGLang send ""
            finish = None
        if text:
            self._part(text, has_finish=bool(finish))
        if not finish:
            return
        if finish in INCOMPLETE:
            raise ReplyError(f"the server ended the answer with finish_reason {finish}")
        if finish in WITHHELD:
            self.oddities.add("withheld")
        is_early = not self.went_on and len(self.texts) > 1
        if self.finish and self.finish != finish and not is_early:
            self.oddities.add("finishes")
        self.finish = finish

    def check(self) -> None:
        """Check that the reply is complete and has the requested lengths."""
        if not self.counted or not self.arrivals:
            raise ReplyError("the stream ended before the reply was complete")
        if not self.finish:
            self.oddities.add("unfinished")
        if LOAD["api"] == "openai" and not self.model:
            self.oddities.add("no_model")
        if ERROR.match("".join(self.texts)):
            self.oddities.add("error_text")
        pairs = len(self.texts) // 2 * 2
        if self.texts[0:pairs:2] == self.texts[1:pairs:2] and len(set(self.texts)) > MOST_REPEATED:
            self.oddities.add("doubled")
        if len(self.ids) > 1:
            is_of_each_part = 2 * len(self.ids) > self.parts_with_id  # as in LoadGen's harness
            self.oddities.add("id_of_each_part" if is_of_each_part else "ids")
        if self.truncated:
            raise ReplyError("the server cut the prompt to its context")
        for name in ("input_tokens", "output_tokens"):
            if (counted := getattr(self, name)) != LOAD[name]:
                raise ReplyError(f"{name} are {counted}, not {LOAD[name]}")


def _is_blank(text: str) -> bool:
    """Return True if nothing of a text is visible: blanks, control and zero-width characters."""
    return not any(char.isprintable() and not char.isspace() for char in text)


class _Log:
    """This process's log; opened by its first user's request, after locust has forked."""

    def __init__(self) -> None:
        self._file: Any = None
        self._began_s = self._began_cpu_s = 0.0
        self.sent = 0

    def write(self, **values: Any) -> None:
        if self._file is None:
            path = FOLDER / f"requests-{os.getpid()}.jsonl"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = open(os.open(path, flags, 0o666), "a", encoding="utf-8")  # noqa: PTH123, SIM115
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()

    def end(self) -> None:
        """Write this process's CPU time while it had users: a process at full load measures itself."""
        if self._file is not None:
            cpu_s, elapsed_s = time.process_time() - self._began_cpu_s, time.monotonic() - self._began_s
            self.write(event="client", cpu_s=round(cpu_s, 3), elapsed_s=round(elapsed_s, 3), sent=self.sent)
            self._file.close()
            self._file = None

    def begin(self) -> None:
        """Record the start of the process's first user."""
        if not self._began_s:
            self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()


LOG = _Log()
NUMBERS = itertools.count()


class LoadUser(User):  # type: ignore[misc]  # locust has no stubs here
    """Sends a request, waits for the whole reply, and repeats."""

    wait_time = constant(0)

    def on_start(self) -> None:
        """Set the user's number, and prompts that are the same in every run of the test."""
        LOG.begin()
        self.name = f"{self.environment.runner.worker_index}-{next(NUMBERS)}"
        seed = f"{LOAD['seed']} {LOAD['users']} {self.name}"
        self._random = random.Random(seed)  # noqa: S311 - prompts, not secrets
        self._prompt_crc32 = 0

    @task  # type: ignore[untyped-decorator]
    def ask(self) -> None:
        """Send one request; any error counts as its failure."""
        path, reply, error = PATHS[LOAD["api"]], Reply(), ""
        body = self._body()
        LOG.sent += 1
        sent = time.monotonic()
        try:
            for event in _stream(path, body, reply.oddities):
                reply.take(event)
            reply.check()
        except ReplyError as failure:
            error = str(failure)
        except _NOT_A_REPLY as failure:
            error = f"{type(failure).__name__}: {failure}"
        except gevent.GreenletExit:  # the test is over: a request that hangs has failed
            self._tell(path, sent, time.monotonic() - sent, reply, "it was unanswered until locust ended it")
            raise
        latency_s = time.monotonic() - sent
        self._tell(path, sent, latency_s, reply, error)
        if error:
            gevent.sleep(PAUSE_AFTER_FAILURE_S)

    def _body(self) -> bytes:
        """Return the body of a request; its prompt has an exact length and a first token of its own."""
        before: list[int] = LOAD["begin_ids"]
        ids = before + self._random.choices(LOAD["vocabulary_ids"], k=LOAD["input_tokens"] - len(before))
        self._prompt_crc32 = zlib.crc32(json.dumps(ids).encode())
        tokens = LOAD["output_tokens"]
        if LOAD["api"] == "openai":
            own = {"model": LOAD["model"], "max_tokens": tokens, "stream_options": {"include_usage": True}}
        else:
            own = {"n_predict": tokens, "cache_prompt": False}
        return json.dumps(
            {"prompt": ids, "temperature": 0, "ignore_eos": True, "stream": True, **own, **LOAD["request"]}
        ).encode()

    def _tell(self, path: str, sent: float, latency_s: float, reply: Reply, error: str) -> None:
        if KEY:  # some servers repeat the key when they refuse it
            error = error.replace(KEY, "***")
        arrivals = [moment - sent for moment in reply.arrivals]
        # Some servers send the halves of a character in two parts, as surrogates.
        whole = "".join(reply.texts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = whole.encode()
        begins = itertools.accumulate(reply.texts[:FIRST_PARTS])
        LOG.write(
            event="request",
            user=self.name,
            prompt_crc32=self._prompt_crc32,
            sent_s=round(sent, 6),
            latency_s=round(latency_s, 6),
            arrivals_s=[round(offset, 5) for offset in arrivals],
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            cached_tokens=reply.cached_tokens,
            timings=reply.timings,
            build=" ".join(reply.builds.values()),
            text_crc32=zlib.crc32(text),
            text_bytes=len(text),
            is_blank=_is_blank(whole),
            blank_parts=sum(map(_is_blank, reply.texts)),
            begins_crc32=[zlib.crc32(begin.encode("utf-16-le", "surrogatepass")) for begin in begins],
            begins_blank=bool(reply.texts) and _is_blank(reply.texts[0]),
            oddities=sorted(reply.oddities),
            error=error,
        )
        fire = self.environment.events.request.fire
        failure = ReplyError(error) if error else None
        length = reply.output_tokens or 0
        told: dict[str, Any] = {"name": path, "context": {}, "exception": failure}
        fire(request_type="POST", response_time=latency_s * 1e3, response_length=length, **told)
        if error:
            return
        fire(request_type="TTFT", response_time=arrivals[0] * 1e3, response_length=0, **told)
        if length > 1:
            tpot_ms = (arrivals[-1] - arrivals[0]) * 1e3 / (length - 1)
            fire(request_type="TPOT", response_time=tpot_ms, response_length=0, **told)


def _is_of_cache(name: str, value: str) -> bool:
    """Return True for a header by which a cache reports a stored reply, as ``stored`` in the harness does."""
    is_hit = HIT.search(value) or (name.endswith("hit") and value == "true")
    return name == "age" or ("cache" in name and bool(is_hit))


def _is_retried(name: str, value: str) -> bool:
    """Return True for a header by which a gateway reports that an earlier try failed."""
    return name in USUAL_TRIES and value.isdigit() and int(value) > USUAL_TRIES[name]


def _stream(path: str, body: bytes, oddities: set[str]) -> Iterator[dict[str, Any] | None]:
    """Yield the events of a reply, on a separate connection: llama.cpp's server closes it after a stream."""
    address = urlsplit(LOAD["url"])
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=LOAD["request_timeout_s"])
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if KEY:
        headers["Authorization"] = f"Bearer {KEY}"
    with closing(connection):
        connection.request("POST", address.path.rstrip("/") + path, body, headers)
        reply = connection.getresponse()
        if reply.status != http.client.OK:
            raise ReplyError(f"HTTP {reply.status}: {reply.read(2000).decode(errors='replace')}")
        if any(_is_of_cache(name.lower(), value.lower()) for name, value in reply.getheaders()):
            oddities.add("stored")
        if any(_is_retried(name.lower(), value.strip()) for name, value in reply.getheaders()):
            oddities.add("retried")
        rest, deadline = b"", time.monotonic() + LOAD["request_timeout_s"]
        while block := reply.read1(1 << 16):
            if time.monotonic() > deadline:
                raise ReplyError(f"it took longer than {LOAD['request_timeout_s']:g} s")
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    yield None if line[5:].strip() == b"[DONE]" else json.loads(line[5:])


@events.init.add_listener  # type: ignore[untyped-decorator]
def _set_clock(**_: Any) -> None:
    """Update the event loop's time, which is that before the imports: timers count from it."""
    gevent.get_hub().loop.update_now()


@events.init.add_listener  # type: ignore[untyped-decorator]
def _show_progress(environment: Any, **_: Any) -> None:
    if not isinstance(environment.runner, WorkerRunner):
        gevent.spawn(_tell_progress, environment)


def _tell_progress(environment: Any) -> None:
    began = time.monotonic()
    while True:
        gevent.sleep(PROGRESS_S)
        whole = [entry for (_, kind), entry in environment.stats.entries.items() if kind == "POST"]
        told = {
            "event": "progress",
            "requests": sum(entry.num_requests for entry in whole),
            "failures": sum(entry.num_failures for entry in whole),
            "users": environment.runner.user_count,
            "elapsed_s": round(time.monotonic() - began, 1),
        }
        print(json.dumps(told), flush=True)  # noqa: T201 - the agent reads it


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _end_log(**_: Any) -> None:
    LOG.end()
