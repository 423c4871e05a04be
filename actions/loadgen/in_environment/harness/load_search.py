"""Search for the highest load: short trials, then the full-length test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import HarnessError
from .loadgen import invalid_reason, is_valid
from .outputs import trial_folder, write_new
from .tuning import Search, Trial, drift

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from .loadgen import LoadGenTest
    from .samples import SampleRecorder
    from .tuning import Tuning

_STEP_DOWN = 0.03
"""Share by which the rate is lowered to repeat a full-length test; doubled each time."""
_FEWEST_ANSWERS_LONG = 3
"""Least duration of a trial, in answers: until the first ones are complete, the number in progress grows."""
_ANSWERS_LONG = 4
_NS = 1e9


class LoadSearch:
    """One search for the highest load.

    Args:
        tuning: parameters of the search.
        test: the full-length test, at any rate; not started.
        output_dir: the test's folder; trials get folders below ``trials``.
        run: runs a test to its end, with a note for the progress, and returns its samples' times.
        ask: sets a rate in the settings, and returns the resulting user.conf.
    """

    def __init__(
        self,
        tuning: Tuning,
        test: LoadGenTest,
        output_dir: Path,
        *,
        run: Callable[[LoadGenTest, str], Awaitable[SampleRecorder]],
        ask: Callable[[float], str],
    ) -> None:
        self._tuning = tuning
        self._test = test
        self._output_dir = output_dir
        self._run = run
        self._ask = ask
        self._trial_s = tuning.trial_s
        self._trials: list[Trial] = []
        self._target_qps: float | None = None
        self._lowest_bad: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the state of the search as stored in ``harness_result.json``."""
        return {
            "target_qps": self._target_qps,
            "lowest_invalid_qps": self._lowest_bad,
            "precision": self._tuning.precision,
            "trials": [vars(trial) for trial in self._trials],
        }

    async def execute(self, start: float) -> None:
        """Search, beginning at a rate in queries/s.

        Raises:
            HarnessError: (``load``) if no trial holds.
        """
        search = Search(start, self._tuning)
        while (rate := search.next_rate()) is not None:
            note = f"trial {len(search.tried) + 1} at {rate:g} queries/s ({search})"
            search.tell(rate, holds=await self._try(rate, note))
        self._lowest_bad = search.lowest_bad
        if search.highest_good is None:
            raise HarnessError(
                "load",
                f"no rate down to {min(search.tried):g} queries/s is valid: {self._trials[-1].why}",
                "see the trials' logs; give target_qps, or limits that the engine can keep",
            )
        await self._run_in_full(search.highest_good)

    async def _try(self, rate: float, note: str) -> bool:
        """Run a short test; return True if a long one would be valid at its rate.

        A trial that is valid but too short for its answers is repeated, and all later ones are longer.
        """
        settings = self._test.settings
        while True:
            folder = trial_folder(self._output_dir, len(self._trials) + 1)
            trial_ms = min(settings.min_duration_ms, round(self._trial_s * 1000))
            trial = self._test.again(
                folder,
                server_target_qps=rate,
                min_duration_ms=trial_ms,
                min_query_count=self._tuning.trial_queries,
                # A permutation would lengthen a trial to whole copies of the data set.
                sample_concatenate_permutation=False,
            )
            recorder = await self._run(trial, note)
            recorder.write(folder / "samples.csv")
            why = "" if (valid := is_valid(folder)) else invalid_reason(folder)
            longer_s = 0.0 if why or trial_ms == settings.min_duration_ms else _longer_s(recorder)
            is_too_short = longer_s > self._trial_s  # else it would be as long as this one, for ever
            if is_too_short:
                self._trial_s = longer_s
                why = f"too short to tell, because answers take {recorder.answer_s():.3g} s"
            self._note(rate, folder, is_valid=valid, why=why or self._will_be_late(recorder))
            if not is_too_short:
                return self._trials[-1].holds

    def _will_be_late(self, recorder: SampleRecorder) -> str:
        """Explain why a long test would miss a limit that a short one met; empty if it would not."""
        settings = self._test.settings
        by_token = settings.use_token_latencies
        limit_s = (settings.ttft_latency if by_token else settings.server_target_latency_ns) / _NS
        issued_s, waited_s = recorder.waits()
        growth = drift(issued_s, waited_s)
        full_s = settings.min_duration_ms / 1000
        last_s = sorted(waited_s)[len(waited_s) * 99 // 100] + growth * full_s
        if not limit_s or not growth or last_s <= limit_s:
            return ""
        return f"the wait grows by {growth:.3g} s per second: about {last_s:.3g} s after {full_s:g} s"

    async def _run_in_full(self, rate: float) -> None:
        """Run the full-length test; if it is invalid, count it as a trial and try a lower rate."""
        step_down = _STEP_DOWN
        for left in reversed(range(self._tuning.final_attempts)):
            self._target_qps = rate
            write_new(self._output_dir / "user.conf", self._ask(rate))
            recorder = await self._run(self._test.again(self._output_dir, server_target_qps=rate), "")
            recorder.write(self._output_dir / "samples.csv")
            if is_valid(self._output_dir):
                return
            self._lowest_bad = rate
            if not left:
                return
            folder = trial_folder(self._output_dir, len(self._trials) + 1)
            why = invalid_reason(self._output_dir)
            for path in [*self._output_dir.glob("mlperf_log_*"), self._output_dir / "samples.csv"]:
                path.replace(folder / path.name)
            self._note(rate, folder, is_valid=False, why=why, is_final=True)
            rate = float(f"{rate * (1 - step_down):.4g}")
            step_down *= 2

    def _note(self, rate: float, folder: Path, *, is_valid: bool, why: str, is_final: bool = False) -> None:
        place = str(folder.relative_to(self._output_dir))
        self._trials.append(Trial(rate, is_valid, not why, why, place, is_final))


def _longer_s(recorder: SampleRecorder) -> float:
    """Return the duration that a trial needs, in seconds; 0 if it was long enough for its answers."""
    issued_s, _ = recorder.waits()
    answer_s = recorder.answer_s()
    lasted_s = max(issued_s, default=0.0) - min(issued_s, default=0.0)
    is_short = lasted_s < _FEWEST_ANSWERS_LONG * answer_s
    return _ANSWERS_LONG * answer_s if is_short else 0.0
