"""The warm-up on a modelled engine: its rounds, what it measures, and how it fails."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.in_environment.harness import warmup
from actions.loadgen.in_environment.harness.errors import HarnessError
from actions.loadgen.in_environment.harness.warmup import WarmUp, WarmUpResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actions.loadgen.in_environment.harness.backends.base import Batch

TOKENS = 3


class Engine:
    """Answers each batch completely, after the modelled number of seconds.

    Args:
        seconds: for each batch, the seconds until the last of its samples is answered.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: Iterable[float]) -> None:
        self.now = 100.0
        self.batches: list[Batch] = []
        self.reports: list[tuple[int, int, int]] = []
        self._seconds = iter(seconds)
        monkeypatch.setattr(warmup, "perf_counter", lambda: self.now)

    def submit(self, batch: Batch, sink: Any) -> None:
        self.batches.append(batch)
        self.now += next(self._seconds)
        sink.complete_many([(number, b"text", TOKENS) for number in batch.ids])

    def report(self, *numbers: int) -> None:
        self.reports.append(numbers)  # type: ignore[arg-type]

    def run(
        self, measure: Callable[[WarmUp], Any], *, sample_count: int = 5, timeout_s: float = 60.0
    ) -> WarmUpResult:
        async def warm_up() -> WarmUpResult:
            result: WarmUpResult = await measure(
                WarmUp(self, sample_count=sample_count, sample_timeout_s=timeout_s, report=self.report)
            )
            return result

        return asyncio.run(warm_up())

    @property
    def sizes(self) -> list[int]:
        return [len(batch.ids) for batch in self.batches]


def test_one_round_takes_the_samples_in_order_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(monkeypatch, [2.0])
    found = engine.run(lambda warm_up: warm_up.run(7))
    assert found == WarmUpResult(7, 2.0, 3.5, 7, None, 7 * TOKENS)
    (batch,) = engine.batches
    assert list(batch.ids) == list(range(7))
    assert list(batch.indices) == [0, 1, 2, 3, 4, 0, 1]
    assert engine.reports[-1] == (7, 7, 21)


def test_a_warm_up_without_samples_sends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(monkeypatch, [])
    assert engine.run(lambda warm_up: warm_up.run(0)) == WarmUpResult(0, 0.0, None, 0)
    assert engine.batches == []


@pytest.mark.parametrize(("seconds", "rate"), [(0.5, 8.0), (0.0, None)])
def test_a_clock_that_stands_still_tells_no_rate(
    seconds: float, rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Engine(monkeypatch, [seconds]).run(lambda warm_up: warm_up.run(4)).samples_per_second == rate


@pytest.mark.parametrize(
    ("seconds", "sizes", "rate", "in_flight"),
    [
        # An engine for 16 samples at once: the unmeasured first round, 8, 16, then no gain with 32.
        pytest.param([9.0, 2.0, 2.0, 4.0], [8, 8, 16, 32], 8.0, 16, id="saturated"),
        pytest.param([9.0, 2.0, 3.9, 7.6], [8, 8, 16], 16 / 3.9, 16, id="a little faster than before"),
        pytest.param([9.0, 2.2, 3.9, 8.0], [8, 8, 16, 32], 16 / 3.9, 16, id="over a tenth faster goes on"),
        pytest.param([9.0, 2.0, 5.0], [8, 8, 16], 4.0, 8, id="slower than before"),
        pytest.param([0.1, 10.0, 12.0], [8, 8, 16], 16 / 12, 16, id="ten seconds are not too long"),
        pytest.param([0.1, 10.5], [8, 8], 8 / 10.5, 8, id="a round of over ten seconds is the last"),
    ],
)
def test_rounds_double_until_they_gain_nothing(
    seconds: list[float], sizes: list[int], rate: float, in_flight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(monkeypatch, seconds)
    found = engine.run(lambda warm_up: warm_up.rate(8))
    assert engine.sizes == sizes
    assert found.samples_per_second == pytest.approx(rate)
    assert found.in_flight == in_flight
    assert found.samples == sum(sizes)
    assert found.duration_s == pytest.approx(sum(seconds[: len(sizes)]))
    assert found.output_tokens == sum(sizes) * TOKENS
    assert found.latency_s is None
    ids = [number for batch in engine.batches for number in batch.ids]
    assert ids == list(range(sum(sizes)))
    assert engine.reports[-1] == (sum(sizes), sum(sizes), sum(sizes) * TOKENS)


def test_no_more_than_4096_samples_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(monkeypatch, [0.1] * 9)
    assert engine.run(lambda warm_up: warm_up.rate(1024)).in_flight == 4096
    assert engine.sizes == [1024, 1024, 2048, 4096]


@pytest.mark.parametrize(("samples", "queries"), [(2, 9), (8, 9), (11, 12)])
def test_the_latency_is_the_median_after_a_first_query(
    samples: int, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [50.0, *(0.5 + number / 4 for number in range(queries - 1))]
    engine = Engine(monkeypatch, seconds)
    found = engine.run(lambda warm_up: warm_up.latency(samples, 3))
    assert engine.sizes == [3] * queries
    middle = (seconds[1] + seconds[-1]) / 2
    assert found == WarmUpResult(3 * queries, sum(seconds), None, None, middle, 3 * queries * TOKENS)


class Slow(Engine):
    """Answers two samples of a batch at once; after a report of the progress, the next step is made.

    Args:
        steps: called one after the other for each batch, with the engine, the batch and the sink.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[Slow, Batch, Any], None]) -> None:
        super().__init__(monkeypatch, [])
        self._steps = steps
        self._left: list[Callable[[], None]] = []

    def submit(self, batch: Batch, sink: Any) -> None:
        self.batches.append(batch)
        for number in batch.ids[:2]:
            sink.complete(number, b"text", TOKENS)
        self._left = [partial(step, self, batch, sink) for step in self._steps]

    def report(self, *numbers: int) -> None:
        super().report(*numbers)
        if self._left:
            self._left.pop(0)()


def answer_the_others(engine: Slow, batch: Batch, sink: Any) -> None:
    engine.now += 0.5
    sink.complete_many([(number, b"text", TOKENS) for number in batch.ids[2:]])


def test_an_engine_that_stops_answering_ends_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def just_in_time(engine: Slow, _batch: Batch, _sink: Any) -> None:
        engine.now += 0.015625

    def late(engine: Slow, _batch: Batch, _sink: Any) -> None:
        engine.now += 0.001

    engine = Slow(monkeypatch, just_in_time, late)
    with pytest.raises(HarnessError) as caught:
        engine.run(lambda warm_up: warm_up.run(5), timeout_s=0.015625)
    assert caught.value.kind == "stalled"
    assert caught.value.message == (
        "the warm-up made no progress for 0.015625 s with 3 of 5 samples unanswered"
    )
    assert "if slow, raise sampleTimeout" in caught.value.remedy
    assert engine.reports == [(5, 2, 2 * TOKENS)] * 2


@pytest.mark.parametrize("how", ["one", "many", "answer"])
def test_a_token_is_progress(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def progress(engine: Slow, batch: Batch, sink: Any) -> None:
        engine.now += 0.02
        if how == "one":
            sink.first_token(batch.ids[2], b"t")
        elif how == "many":
            sink.first_token_many([(batch.ids[2], b"t")])
        else:
            sink.complete(batch.ids[2], b"text", TOKENS)

    def answer(engine: Slow, batch: Batch, sink: Any) -> None:
        engine.now += 0.005
        sink.complete_many([(number, b"text", TOKENS) for number in batch.ids[3 if how == "answer" else 2 :]])

    engine = Slow(monkeypatch, progress, answer)
    found = engine.run(lambda warm_up: warm_up.run(5), timeout_s=0.01)
    assert found.samples == 5
    assert found.duration_s == pytest.approx(0.025)
    assert engine.reports[0] == (5, 2, 2 * TOKENS)


def test_a_second_round_reports_on_top_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Slow(monkeypatch, answer_the_others)
    found = engine.run(lambda warm_up: warm_up.latency(8, 3), timeout_s=0.01)
    assert found.output_tokens == 27 * TOKENS
    assert engine.reports[:3] == [(3, 2, 2 * TOKENS), (3, 3, 3 * TOKENS), (6, 5, 5 * TOKENS)]


def test_the_first_failure_of_the_engine_is_the_warm_up_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_engine: Slow, batch: Batch, sink: Any) -> None:
        sink.fail(batch.ids[2], HarnessError("engine_error", "the engine ended"))
        sink.fail(batch.ids[3], HarnessError("connection", "and so on"))
        sink.complete_many([(number, b"text", TOKENS) for number in batch.ids[2:]])

    with pytest.raises(HarnessError, match="the engine ended"):
        Slow(monkeypatch, fail).run(lambda warm_up: warm_up.run(5), timeout_s=0.01)


def test_an_engine_that_answers_nothing_at_all_ends_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Slow):
        def submit(self, batch: Batch, sink: Any) -> None:
            self._left = [partial(step, self, batch, sink) for step in self._steps]

    def late(engine: Slow, _batch: Batch, _sink: Any) -> None:
        engine.now += 0.02

    with pytest.raises(HarnessError, match="with 5 of 5 samples unanswered"):
        Silent(monkeypatch, late).run(lambda warm_up: warm_up.run(5), timeout_s=0.01)
