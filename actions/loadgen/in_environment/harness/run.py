"""Run one test from its configuration to its result."""

from __future__ import annotations

import asyncio
import gc
import platform
import signal
import traceback
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from . import loadgen
from .backends import load_backend
from .backends.base import BackendContext, BackendStats
from .dataset import Sample, read_dataset
from .errors import HarnessError
from .feed import Feed
from .load_search import LoadSearch
from .loop_lag import LoopLag
from .outputs import remove_outputs, write_new
from .progress import Progress
from .samples import OutputWriter, SampleRecorder
from .settings import Asked, ask, loadgen_scenario
from .sink import LoadGenSink
from .wall_clock import WallClock
from .warmup import WarmUp, WarmUpResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .backends.base import Backend
    from .benchmark import Benchmark
    from .config import HarnessConfig
    from .tuning import Tuning

_TICK_S = 0.5
_FIRST_SHARE = 0.8
"""First rate of the search, as a share of the rate that the warm-up reaches."""


class Run:
    """One test.

    Args:
        config: the configuration.

    Attributes:
        output_dir: the folder for all files.
    """

    def __init__(self, config: HarnessConfig) -> None:
        self.config = config
        self.output_dir = Path(config.output_dir)
        self._scenario = loadgen_scenario(config.scenario)
        self._progress = Progress()
        self._started_at = _now()
        self._backend: Backend | None = None
        self._engine: Mapping[str, Any] = {}
        self._warmup: WarmUpResult | None = None
        self._load: dict[str, float] | None = None
        self._asked: Asked | None = None
        self._benchmark: Benchmark | None = None
        self._lag = LoopLag()
        self._clock = WallClock()
        self._test: loadgen.LoadGenTest | None = None
        self._recorder: SampleRecorder | None = None
        self._outputs: OutputWriter | None = None
        self._sink: LoadGenSink | None = None
        self._failure: asyncio.Future[None] | None = None
        self._search: LoadSearch | None = None

    async def execute(self) -> None:
        """Run the test.

        Raises:
            HarnessError: at the first failure; LoadGen cannot be stopped and may still be running then.
        """
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        loop.set_exception_handler(self._on_unhandled)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        body = asyncio.ensure_future(self._body())
        await asyncio.wait({body, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        await (self._failure if self._failure.done() else body)

    async def _body(self) -> None:
        config = self.config
        self._clear_output_dir()
        samples = read_dataset(Path(config.dataset))
        loadgen.load()
        self._asked = self._ask(samples, {})  # find a wrong setting before any request to the engine

        context = BackendContext(
            samples,
            config.scenario,
            config.mode,
            config.max_output_tokens,
            config.sample_timeout_s,
            self.output_dir,
            lambda words: self._progress.report("load", detail=words),
        )
        backend = self._backend = load_backend(config.backend, context)
        self._progress.report("connect")
        self._engine = await backend.start()
        load = await self._warm_up(backend, len(samples), self._asked)
        self._asked = self._ask(samples, load)
        test = loadgen.LoadGenTest.asked(
            self._asked,
            mode=config.mode,
            sample_count=len(samples),
            output_dir=self.output_dir,
            audit_config=config.audit_config,
        )
        if config.tuning is None:
            await self._timed_part(test, backend, samples)
            self.close_outputs()
        else:
            await self._tune(config.tuning, test, backend, samples)
        await backend.stop()

    def _clear_output_dir(self) -> None:
        """Create the folder, and remove an earlier test's files, which could be mistaken for this test's."""
        try:
            self.output_dir.mkdir(parents=True, exist_ok=True)
            remove_outputs(self.output_dir)
        except OSError as error:
            raise HarnessError("config", f"output_dir {self.output_dir}: {error.strerror}") from error
        if self.config.audit_config and not Path(self.config.audit_config).is_file():
            raise HarnessError("config", f"audit_config {self.config.audit_config} is not a file")

    def _ask(self, samples: list[Sample], load: Mapping[str, float]) -> Asked:
        """Return the combined settings; ``load`` is the result of the warm-up."""
        config = self.config
        count = config.performance_sample_count or len(samples)
        model, base_model = config.model, config.model
        if config.scenario == "Interactive":
            base_model = model.removesuffix("-interactive")
            own_name = f"{base_model}-interactive"
            self._benchmark = loadgen.known_benchmark(own_name, self._scenario)
            model = own_name if self._benchmark else model
        else:
            self._benchmark = loadgen.known_benchmark(model, self._scenario)
        asked = ask(
            self._scenario,
            mode=config.mode,
            model=model,
            base_model=base_model,
            own_limits=self._benchmark.limits if self._benchmark else {},
            defaults={"performance_sample_count_override": count},
            settings={**config.settings, **load},
            user_conf=Path(config.user_conf) if config.user_conf else None,
        )
        loaded = asked.values["performance_sample_count_override"]
        if loaded > len(samples):
            raise HarnessError(
                "settings",
                f"{loaded} samples should be loaded, but {config.dataset} has {len(samples)}",
                "prepare the whole data set, or lower performance_sample_count",
            )
        return asked

    async def _warm_up(self, backend: Backend, sample_count: int, asked: Asked) -> dict[str, float]:
        """Warm the engine up; return the load to offer, if it depends on the warm-up."""
        config = self.config

        def report(issued: int, completed: int, tokens: int) -> None:
            self._progress.report("warmup", issued=issued, completed=completed, tokens=tokens)

        warmup = WarmUp(
            backend, sample_count=sample_count, sample_timeout_s=config.sample_timeout_s, report=report
        )
        samples, share = config.warmup_samples, config.load_share
        if config.tuning is not None:
            share = _FIRST_SHARE if config.tuning.start_qps is None else None
        is_paced = config.mode == "performance" or self._scenario == "Server"
        if share is None or not is_paced:
            self._warmup = await warmup.run(samples)
            start_qps = config.tuning and config.tuning.start_qps
            return {"target_qps": start_qps} if start_qps else {}
        if self._scenario in {"Server", "Offline"}:
            self._warmup = await warmup.rate(max(samples, 8))
            measured = self._warmup.samples_per_second or 0.0
            name, value = "target_qps", share * measured
        else:
            # LoadGen's own value by default: *.MultiStream.samples_per_query of its mlperf.conf
            per_query = (
                int(asked.values.get("samples_per_query", 8)) if self._scenario == "MultiStream" else 1
            )
            self._warmup = await warmup.latency(samples, per_query)
            measured = self._warmup.latency_s or 0.0
            name, value = "target_latency", share * measured * 1000
        target = float(f"{value:.4g}")
        self._load = {"share": share, "measured": measured, name: target}
        return {name: target}

    async def _tune(
        self, tuning: Tuning, test: loadgen.LoadGenTest, backend: Backend, samples: list[Sample]
    ) -> None:
        """Find the highest rate that holds with short trials, then run the full-length test at it."""

        async def run(test: loadgen.LoadGenTest, note: str) -> SampleRecorder:
            await self._timed_part(test, backend, samples, note)
            assert self._recorder is not None  # noqa: S101  (tuning needs record_samples)
            return self._recorder

        def ask(rate: float) -> str:
            self._asked = self._ask(samples, {"target_qps": rate})
            return self._asked.user_conf

        assert self._asked is not None  # noqa: S101  (set before the engine was started)
        self._search = LoadSearch(tuning, test, self.output_dir, run=run, ask=ask)
        await self._search.execute(float(self._asked.values["target_qps"]))

    async def _timed_part(
        self, test: loadgen.LoadGenTest, backend: Backend, samples: list[Sample], note: str = ""
    ) -> None:
        config = self.config
        self._test = test
        backend.stats = BackendStats()
        loop = asyncio.get_running_loop()
        keeps_text = config.mode == "accuracy"
        if config.record_samples or keeps_text:
            self._recorder = SampleRecorder()
        if keeps_text:
            self._outputs = OutputWriter(self.output_dir / "outputs.jsonl", samples, backend.decode)
        sink = self._sink = LoadGenSink(
            loadgen.load(),
            recorder=self._recorder,
            outputs=self._outputs,
            first_tokens=test.wants_first_tokens,
            tokens=bool(test.settings.use_token_latencies),
            on_failure=self.fail,
        )
        feed = Feed(loop, backend, sink)
        ended: asyncio.Future[None] = loop.create_future()
        self._progress = Progress(test.expected_samples(), note)
        gc.collect()
        gc.freeze()  # objects alive now stay alive: the collector need not scan them in the timed part
        self._started_at = _now()
        self._clock = WallClock()
        self._lag.start()
        test.start(feed.issue, feed.flush, lambda error: loop.call_soon_threadsafe(_settle, ended, error))
        await self._watch(sink, feed, ended)
        self._lag.stop()
        if not sink.issued or sink.outstanding:
            raise HarnessError(
                "loadgen",
                f"LoadGen ended after {sink.issued} samples with {sink.outstanding} of them unanswered",
                f"see {self.output_dir / 'mlperf_log_detail.txt'}",
            )

    async def _watch(self, sink: LoadGenSink, feed: Feed, ended: asyncio.Future[None]) -> None:
        """Report progress until the test ends.

        Raises:
            HarnessError: if no sample completes within the time limit.
        """
        timeout_s = self.config.sample_timeout_s
        while True:
            phase = "drain" if feed.all_issued else "run"
            self._progress.report(
                phase, issued=sink.issued, completed=sink.completed, tokens=sink.output_tokens
            )
            done, _ = await asyncio.wait({ended}, timeout=min(_TICK_S, timeout_s / 2))
            self._clock.look()
            if done:
                return await ended
            if sink.outstanding and perf_counter() - sink.last_progress > timeout_s:
                raise HarnessError(
                    "stalled",
                    f"no progress for {timeout_s:g} s with {sink.outstanding} samples unanswered",
                    "see the engine's log; if slow, raise sampleTimeout (EndpointSweep: requestTimeout)",
                )

    def fail(self, error: HarnessError) -> None:
        """Mark the run as failed; only the first failure counts."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _on_signal(self, number: signal.Signals) -> None:
        self.fail(HarnessError("interrupted", f"stopped by {signal.Signals(number).name}", "resume the run"))

    def _on_unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail(
            error if isinstance(error, HarnessError) else self.internal(error, context.get("message", ""))
        )

    def internal(self, error: BaseException | None, message: str = "") -> HarnessError:
        """Return an error for an unexpected failure; write its traceback to a file."""
        path = self.output_dir / "harness_traceback.txt"
        if error is not None and self.output_dir.is_dir():
            write_new(path, "".join(traceback.format_exception(None, error, error.__traceback__)))
        what = f"{type(error).__name__}: {error}" if error is not None else message
        return HarnessError("internal", f"the harness failed: {what}", f"report it with {path}")

    def close_outputs(self) -> None:
        """Write samples.csv and close outputs.jsonl, if they exist."""
        if self._outputs is not None:
            self._outputs.close()
        if self._recorder is not None:
            self._recorder.write(self.output_dir / "samples.csv")

    def kill(self) -> None:
        """End the backend's child processes."""
        if self._backend is not None:
            self._backend.kill()

    def _compared(self) -> dict[str, Any] | None:
        """Return a performance test's settings beside the benchmark's; None without a benchmark."""
        if self._benchmark is None or self._test is None or self.config.mode != "performance":
            return None
        return self._benchmark.compare(self._test.settings)

    def _repeats(self) -> dict[str, float] | None:
        """Return the waits of repeated samples; None in Offline, where every sample waits for all others."""
        if self._recorder is None or self._scenario == "Offline":
            return None
        return self._recorder.repeats(seen=self._warmup.samples if self._warmup else 0)

    def result(self, error: HarnessError | None) -> dict[str, Any]:
        """Return the content of ``harness_result.json``, up to the point that the run reached."""
        sink, backend, test, warmup = self._sink, self._backend, self._test, self._warmup
        stats = backend.stats if backend else BackendStats()
        return {
            "status": "failed" if error else "completed",
            "error": error.as_json() if error else None,
            "versions": {
                "python": platform.python_version(),
                "loadgen": loadgen.version(),
                "backend": backend.version if backend else None,
            },
            "scenario": self.config.scenario,
            "mode": self.config.mode,
            "loadgen_model": self._asked.model if self._asked else None,
            "asked": dict(self._asked.values) if self._asked else {},
            "effective": test.effective() if test else {},
            "benchmark_limits": self._compared(),
            "issued": sink.issued if sink else 0,
            "completed": sink.completed if sink else 0,
            "output_tokens": sink.output_tokens if sink else 0,
            "input_tokens": stats.input_tokens,
            "cached_tokens": stats.cached_tokens,
            "retries": stats.retries,
            "token_count_sources": stats.token_count_sources,
            "replies": stats.replies.as_json() if stats.replies else None,
            "repeats": self._repeats(),
            "clock_set_by_s": self._clock.set_by_s,
            "client": {
                "queue_peak": stats.queue_peak,
                "queue_wait_max_s": stats.queue_wait_max_s,
                "loop_lag_max_s": self._lag.seconds()[0],
                "loop_lag_p99_s": self._lag.seconds()[1],
            },
            "data_encoding": backend.data_encoding if backend else None,
            "started_at": self._started_at,
            "ended_at": _now(),
            "warmup": vars(warmup) if warmup else None,
            "load_share": self._load,
            "tuning": self._search.as_json() if self._search else None,
            "engine": dict(self._engine),
        }


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    """Signal that LoadGen has ended, with or without an error."""
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(HarnessError("loadgen", f"LoadGen failed: {error}", "see LoadGen's detail log"))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
