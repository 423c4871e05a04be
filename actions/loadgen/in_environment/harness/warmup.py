"""Send samples before the timed part, to warm the engine up and to measure the load it can take.

They go through the backend like LoadGen's samples, and are not counted anywhere else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from .backends.base import Batch
from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .backends.base import Backend, Completion, FirstToken

_MOST_SAMPLES = 4096
_LONGEST_ROUND_S = 10.0
_GAIN = 1.1
_LATENCIES = 8


@dataclass(frozen=True)
class WarmUpResult:
    """Result of the warm-up.

    Args:
        samples: samples answered in all rounds.
        duration_s: seconds of all rounds.
        samples_per_second: rate of the fastest round with all of its samples in flight, once further
            rounds would not be faster.
        in_flight: number of samples in flight in that round.
        latency_s: median duration of a single query, if measured.
        output_tokens: output tokens of all rounds.
    """

    samples: int
    duration_s: float
    samples_per_second: float | None = None
    in_flight: int | None = None
    latency_s: float | None = None
    output_tokens: int = 0


class WarmUp:
    """Sends samples through a backend, in rounds.

    Args:
        backend: a started backend.
        sample_count: samples in the data set; rounds take them in order, repeatedly.
        sample_timeout_s: seconds without any progress after which the warm-up fails.
        report: called occasionally with the issued samples, completed samples and tokens so far.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        sample_count: int,
        sample_timeout_s: float,
        report: Callable[[int, int, int], None],
    ) -> None:
        self._backend = backend
        self._sample_count = sample_count
        self._timeout_s = sample_timeout_s
        self._report = report
        self._ids = count()
        self._issued = self._completed = self._tokens = 0

    async def run(self, samples: int) -> WarmUpResult:
        """Send this many samples at once.

        Raises:
            HarnessError: if the backend fails.
        """
        duration = await self._round(samples) if samples else 0.0
        rate = samples / duration if duration > 0 else None
        return WarmUpResult(samples, duration, rate, samples, output_tokens=self._tokens)

    async def rate(self, samples: int) -> WarmUpResult:
        """Find the rate with all samples in flight: rounds double until the gain is below 10 %.

        An unmeasured first round covers one-time work such as compiling and allocating.

        Raises:
            HarnessError: if the backend fails.
        """
        total = await self._round(samples)
        best, in_flight = 0.0, samples
        while True:
            duration = await self._round(samples)
            total += duration
            rate = samples / duration
            saturated = rate < best * _GAIN
            if rate > best:
                best, in_flight = rate, samples
            if saturated or duration > _LONGEST_ROUND_S or samples >= _MOST_SAMPLES:
                return WarmUpResult(self._completed, total, best, in_flight, output_tokens=self._tokens)
            samples *= 2

    async def latency(self, samples: int, samples_per_query: int) -> WarmUpResult:
        """Find the latency of a single query: the median of at least eight, after an unmeasured first one.

        Raises:
            HarnessError: if the backend fails.
        """
        durations = [await self._round(samples_per_query) for _ in range(max(samples, _LATENCIES) + 1)]
        return WarmUpResult(
            self._completed, sum(durations), latency_s=median(durations[1:]), output_tokens=self._tokens
        )

    async def _round(self, samples: int) -> float:
        """Send samples at once and return the seconds until the last is answered."""
        ids = [next(self._ids) for _ in range(samples)]
        sink = _WarmUpSink(ids)
        start = perf_counter()
        self._backend.submit(Batch(ids, [sample % self._sample_count for sample in ids]), sink)
        self._issued += samples
        while True:
            done, _ = await asyncio.wait({sink.done}, timeout=min(0.5, self._timeout_s))
            self._report(
                self._issued, self._completed + samples - len(sink.waiting), self._tokens + sink.tokens
            )
            if done:
                sink.done.result()
                break
            if perf_counter() - sink.last_progress > self._timeout_s:
                raise HarnessError(
                    "stalled",
                    f"the warm-up made no progress for {self._timeout_s:g} s with {len(sink.waiting)} of "
                    f"{samples} samples unanswered",
                    "see the engine's log; if slow, raise sampleTimeout (EndpointSweep: requestTimeout)",
                )
        self._completed += samples
        self._tokens += sink.tokens
        return sink.last_progress - start


class _WarmUpSink:
    """Counts answers until none is missing."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.waiting = set(ids)
        self.tokens = 0
        self.last_progress = perf_counter()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def first_token(self, sample_id: int, token: bytes) -> None:  # noqa: ARG002
        self.last_progress = perf_counter()

    def first_token_many(self, tokens: Sequence[FirstToken]) -> None:  # noqa: ARG002
        self.last_progress = perf_counter()

    def complete(self, sample_id: int, data: bytes, token_count: int) -> None:  # noqa: ARG002
        self.waiting.remove(sample_id)
        self.tokens += token_count
        self.last_progress = perf_counter()
        if not self.waiting and not self.done.done():
            self.done.set_result(None)

    def complete_many(self, completions: Sequence[Completion]) -> None:
        for completion in completions:
            self.complete(*completion)

    def fail(self, sample_id: int, error: HarnessError) -> None:  # noqa: ARG002
        if not self.done.done():
            self.done.set_exception(error)
