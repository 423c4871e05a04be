"""Run one point of a sweep over an endpoint: requests with due times, or a fixed concurrency.

It does not need LoadGen. The backend, the checks on replies and the watch over the client are those of
LoadGen's tests. A request's clock starts at its due time, not when it is sent: a late client makes latencies
longer, never shorter. A request that fails is counted, and the load continues.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from array import array
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .backends import load_backend
from .backends.base import BackendContext, BackendStats, Batch
from .dataset import read_dataset
from .errors import HarnessError
from .loop_lag import LoopLag
from .samples import SampleRecorder
from .warmup import WarmUp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .backends.base import Backend, Completion, FirstToken

    Tell = Callable[[str, float | None, float | None], None]

_LEAD_S = 0.05
_TICK_S = 0.5
_PAUSE_AFTER_FAILURE_S = 0.5
"""Pause that keeps the client from sending thousands of requests per second to an endpoint that refuses
them."""
_KINDS_OF_FAILURE = 5


@dataclass(frozen=True)
class _Load:
    """Parameters of the load.

    Args:
        output_dir: folder for ``samples.csv``.
        dataset: the samples, as ``dataset.read_dataset`` reads them: first those of the warm-up.
        backend: ``type`` and the backend's settings.
        duration_s: seconds during which requests are sent.
        arrivals_s: due time of each request, in seconds from the start, in order; empty for ``concurrency``.
        concurrency: number of concurrent requests.
        warmup_requests: uncounted requests before the timed part.
        request_timeout_s: time limit for a request, in seconds.
    """

    output_dir: str
    dataset: str
    backend: Mapping[str, Any]
    duration_s: float
    arrivals_s: Sequence[float] = ()
    concurrency: int = 0
    warmup_requests: int = 0
    request_timeout_s: float = 300.0


def program(config: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Run one point; other keys of the configuration are for the parser.

    Raises:
        HarnessError: if the endpoint cannot be used, or the warm-up fails.
    """
    _allow_many_connections()
    return asyncio.run(_run(_Load(**config["load"]), tell))


async def _run(load: _Load, tell: Tell) -> dict[str, Any]:
    return await _Point(load, tell).execute()


def _allow_many_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Point:
    def __init__(self, load: _Load, tell: Tell) -> None:
        self._load = load
        self._tell = tell
        self._lag = LoopLag()
        self._late_s = array("d")
        self._recorder = SampleRecorder()
        self._sink = _RequestSink(self._recorder, self._on_end)
        self._used_up = asyncio.Event()
        self._issued = 0
        self._may_issue = 0
        self._stop_s = 0.0

    async def execute(self) -> dict[str, Any]:
        load = self._load
        samples = read_dataset(Path(load.dataset))
        self._may_issue = len(load.arrivals_s) or len(samples) - load.warmup_requests
        if self._may_issue + load.warmup_requests > len(samples):
            raise HarnessError(
                "dataset", f"{load.dataset} holds {len(samples)} samples, too few for the load"
            )
        context = BackendContext(
            samples,
            scenario="Server",
            mode="performance",
            max_output_tokens=1,
            sample_timeout_s=load.request_timeout_s,
            output_dir=Path(load.output_dir),
            tell=lambda words: self._tell(words, None, None),
        )
        backend = load_backend(load.backend, context)
        self._tell("connecting", None, None)
        engine = await backend.start()
        try:
            await self._warm_up(backend)
            backend.stats = BackendStats()
            self._backend = backend
            client = await self._timed_part()
        finally:
            await backend.stop()
        self._recorder.write(Path(load.output_dir) / "samples.csv")
        return self._result(engine, client)

    async def _warm_up(self, backend: Backend) -> None:
        count = self._load.warmup_requests
        if not count:
            return

        def report(issued: int, completed: int, tokens: int) -> None:  # noqa: ARG001 - the warm-up's signature
            self._tell(f"warming up: {completed} of {count} requests", None, None)

        timeout_s = self._load.request_timeout_s
        await WarmUp(backend, sample_count=count, sample_timeout_s=timeout_s, report=report).run(count)

    async def _timed_part(self) -> dict[str, float]:
        gc.collect()
        gc.freeze()  # objects alive now stay alive: the collector need not scan them in the timed part
        self._lag.start()
        cpu_s, began_s = time.process_time(), perf_counter()
        watch = asyncio.ensure_future(self._watch(began_s))
        if self._load.arrivals_s:
            await self._send_as_due()
        else:
            await self._send_at_once()
        await self._sink.answered(self._issued)
        watch.cancel()
        elapsed_s, cpu_s = perf_counter() - began_s, time.process_time() - cpu_s
        self._lag.stop()
        lag_max_s, lag_p99_s = self._lag.seconds()
        late_s = sorted(self._late_s) or [0.0]
        stats = self._backend.stats
        return {
            "cpu_s": round(cpu_s, 3),
            "elapsed_s": round(elapsed_s, 3),
            "loop_lag_max_s": lag_max_s,
            "loop_lag_p99_s": lag_p99_s,
            "lateness_p99_s": late_s[len(late_s) * 99 // 100],
            "lateness_max_s": late_s[-1],
            "queue_peak": stats.queue_peak,
            "queue_wait_max_s": stats.queue_wait_max_s if stats.queue_peak else 0.0,
        }

    async def _send_as_due(self) -> None:
        start_s = perf_counter() + _LEAD_S
        for due_s in self._load.arrivals_s:
            await asyncio.sleep(max(0.0, start_s + due_s - perf_counter()))
            self._late_s.append(perf_counter() - start_s - due_s)
            self._issue(start_s + due_s)

    async def _send_at_once(self) -> None:
        """Keep the concurrency until the time or the samples are used up."""
        self._stop_s = perf_counter() + self._load.duration_s
        for _ in range(min(self._load.concurrency, self._may_issue)):
            self._issue(perf_counter())
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._used_up.wait(), self._load.duration_s)

    def _issue(self, due_s: float) -> None:
        slot = self._issued
        index = self._load.warmup_requests + slot
        self._issued += 1
        self._recorder.issued(due_s, [index])
        if self._issued == self._may_issue:
            self._used_up.set()
        self._backend.submit(Batch([slot], [index]), self._sink)

    def _on_end(self, *, failed: bool) -> None:
        """Issue the next request after one has ended, if a concurrency is set."""
        if self._load.arrivals_s:
            return
        if failed:
            asyncio.get_running_loop().call_later(_PAUSE_AFTER_FAILURE_S, self._issue_next)
        else:
            self._issue_next()

    def _issue_next(self) -> None:
        now_s = perf_counter()
        if self._issued < self._may_issue and now_s < self._stop_s:
            self._issue(now_s)

    async def _watch(self, began_s: float) -> None:
        sink, arrivals_s = self._sink, self._load.arrivals_s
        duration_s = arrivals_s[-1] if arrivals_s else self._load.duration_s
        expected = f" of {len(arrivals_s)}" if arrivals_s else ""
        while True:
            elapsed_s = perf_counter() - began_s
            failed = f", {sink.failed} failed" if sink.failed else ""
            rate = sink.completed / elapsed_s if elapsed_s > _TICK_S else 0.0
            message = f"{sink.completed}{expected} requests answered{failed}, {rate:.1f}/s"
            self._tell(message, min(elapsed_s, duration_s), duration_s)
            await asyncio.sleep(_TICK_S)

    def _result(self, engine: Mapping[str, Any], client: Mapping[str, float]) -> dict[str, Any]:
        sink, stats = self._sink, self._backend.stats
        return {
            "issued": self._issued,
            "completed": sink.completed,
            "failed": sink.failed,
            "failures": [
                {"kind": kind, "message": sink.examples[kind], "count": count}
                for kind, count in sink.failures.most_common(_KINDS_OF_FAILURE)
            ],
            "client": dict(client),
            "replies": stats.replies.as_json() if stats.replies else None,
            "token_count_sources": stats.token_count_sources,
            "input_tokens": stats.input_tokens,
            "cached_tokens": stats.cached_tokens,
            "retries": stats.retries,
            "engine": dict(engine),
            "backend": self._backend.version,
        }


@dataclass
class _RequestSink:
    """Records how each request ends.

    Args:
        recorder: records times.
        on_end: called when a request has ended.
        completed: requests answered.
        failures: numbers of failed requests, by the kind of their error.
        examples: one error message of each kind.
    """

    recorder: SampleRecorder
    on_end: Callable[..., None]
    completed: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    failed: int = 0
    _all: asyncio.Event | None = None
    _expected: int = -1

    async def answered(self, requests: int) -> None:
        """Wait until this many requests have ended."""
        self._expected, self._all = requests, asyncio.Event()
        self._look()
        await self._all.wait()

    def _look(self) -> None:
        if self._all is not None and self.completed + self.failed >= self._expected:
            self._all.set()

    def first_token(self, sample_id: int, token: bytes) -> None:  # noqa: ARG002 - the sink's signature
        self.recorder.first_token[sample_id] = perf_counter()

    def first_token_many(self, tokens: Sequence[FirstToken]) -> None:
        for sample_id, token in tokens:
            self.first_token(sample_id, token)

    def complete(self, sample_id: int, data: bytes, token_count: int) -> None:  # noqa: ARG002 - likewise
        if token_count < 1:
            self.fail(sample_id, HarnessError("no_tokens", "an answer has no output token"))
            return
        self.recorder.completed(perf_counter(), [sample_id], [token_count])
        self.completed += 1
        self.on_end(failed=False)
        self._look()

    def complete_many(self, completions: Sequence[Completion]) -> None:
        for completion in completions:
            self.complete(*completion)

    def fail(self, sample_id: int, error: HarnessError) -> None:  # noqa: ARG002 - its row stays open
        self.failed += 1
        self.failures[error.kind] += 1
        self.examples.setdefault(error.kind, error.message)
        self.on_end(failed=True)
        self._look()
