"""A search for the highest load on a modelled system: its statement about the rate that it ended at."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from actions.loadgen.in_environment.harness.errors import HarnessError
from actions.loadgen.in_environment.harness.load_search import LoadSearch
from actions.loadgen.in_environment.harness.tuning import Tuning

if TYPE_CHECKING:
    from pathlib import Path

    from actions.loadgen.in_environment.harness.loadgen import LoadGenTest
    from actions.loadgen.in_environment.harness.samples import SampleRecorder

FULL_MS = 600_000


@dataclass(frozen=True)
class ModelledTest:
    """Has the parts of a test that the search uses."""

    output_dir: Path
    server_target_qps: float = 0.0
    min_duration_ms: int = FULL_MS

    @property
    def settings(self) -> SimpleNamespace:
        """Limits that drift never exceeds."""
        return SimpleNamespace(
            min_duration_ms=self.min_duration_ms, use_token_latencies=True, ttft_latency=2_000_000_000
        )

    def again(self, output_dir: Path, *, server_target_qps: float, **changes: Any) -> ModelledTest:
        """Return the same test at another rate."""
        return ModelledTest(output_dir, server_target_qps, changes.get("min_duration_ms", FULL_MS))


class ModelledRecorder:
    """One sample that did not wait."""

    def waits(self) -> tuple[list[float], list[float]]:
        """Return when the sample was issued, and how long it waited."""
        return [0.0], [0.0]

    def answer_s(self) -> float:
        """Return the time of its answer."""
        return 0.0

    def write(self, path: Path) -> None:
        """Write an empty file."""
        path.touch()


@pytest.mark.parametrize(
    ("full", "target", "lowest_invalid", "trials"),
    [
        pytest.param(50.0, 49.7, 50.58, 5, id="a long test holds what a short one did"),
        pytest.param(49.0, 48.21, 49.7, 6, id="a long test holds a little less"),
        pytest.param(40.0, 45.32, 45.32, 7, id="a long test holds none of the rates"),
        pytest.param(None, 23.0, None, 3, id="no limit within the trials"),
    ],
)
def test_the_bracket_at_the_end(
    tmp_path: Path, full: float | None, target: float, lowest_invalid: float | None, trials: int
) -> None:
    """Model a system that sustains 50 queries/s in short tests, and ``full`` in long ones."""
    notes = []

    async def run(test: Any, note: str) -> Any:
        notes.append(note)
        most = (full or 50.0) if test.min_duration_ms == FULL_MS else 50.0
        verdict = "VALID" if test.server_target_qps <= most else "INVALID"
        (test.output_dir / "mlperf_log_summary.txt").write_text(f"Result is : {verdict}\n")
        return cast("SampleRecorder", ModelledRecorder())

    search = LoadSearch(
        Tuning(most_trials=12 if full else 3),
        cast("LoadGenTest", ModelledTest(tmp_path)),
        tmp_path,
        run=run,
        ask=lambda rate: f"*.Server.target_qps = {rate:g}\n",
    )
    asyncio.run(search.execute(48.0 if full else 10.0))
    found = search.as_json()
    assert (found["target_qps"], found["lowest_invalid_qps"]) == (target, lowest_invalid)
    assert len(found["trials"]) == trials
    first = "48" if full else "10"
    assert notes[:2] == [
        f"trial 1 at {first} queries/s (nothing tried)",
        f"trial 2 at {float(first) * 1.15:g} queries/s (valid at {first}, no limit found)",
    ]
    assert (tmp_path / "user.conf").read_text() == f"*.Server.target_qps = {target:g}\n"


class FallingBehind:
    """The times of a test in which the wait for the first token grows steadily."""

    def __init__(self, growth: float) -> None:
        self._growth = growth

    def waits(self) -> tuple[list[float], list[float]]:
        """Return 300 samples, one every 0.1 s; they wait 0.5 s at first."""
        issued = [number / 10 for number in range(300)]
        return issued, [0.5 + self._growth * at for at in issued]

    def answer_s(self) -> float:
        """Return a time that is short enough for 30 s."""
        return 9.9

    def write(self, path: Path) -> None:
        """Write the growth."""
        path.write_text(str(self._growth))


@dataclass(frozen=True)
class LimitedTest(ModelledTest):
    """A test whose limits differ between its kinds."""

    by_token: bool = True
    limit_ns: int = 2_000_000_000

    @property
    def settings(self) -> SimpleNamespace:
        """Return limits of which only the one of the test's kind is the right one."""
        own, other = ("ttft_latency", "server_target_latency_ns")[:: 1 if self.by_token else -1]
        return SimpleNamespace(
            min_duration_ms=self.min_duration_ms,
            use_token_latencies=self.by_token,
            **{own: self.limit_ns, other: 10**15},
        )

    def again(self, output_dir: Path, *, server_target_qps: float, **changes: Any) -> LimitedTest:
        """Return the same test at another rate; a trial's limits are those that the search asks for."""
        if output_dir.parent.name == "trials":
            assert changes == {
                "min_duration_ms": min(self.min_duration_ms, 30_000),
                "min_query_count": 700,
                "sample_concatenate_permutation": False,
            }
        else:
            assert changes == {}
        return LimitedTest(output_dir, server_target_qps, self.min_duration_ms, self.by_token, self.limit_ns)


def searched(test: LimitedTest, growth: float) -> tuple[LoadSearch, list[str]]:
    """Search on a system that is valid up to 50 queries/s and falls behind above 20; return the notes too."""
    notes = []

    async def run(of: Any, note: str) -> Any:
        notes.append(note)
        verdict = "VALID" if of.server_target_qps <= 50 else "INVALID"
        (of.output_dir / "mlperf_log_summary.txt").write_text(f"Result is : {verdict}\n")
        return cast("SampleRecorder", FallingBehind(growth if of.server_target_qps > 20 else 0.0))

    search = LoadSearch(
        Tuning(most_trials=3, trial_s=30.0),
        cast("LoadGenTest", test),
        test.output_dir,
        run=run,
        ask=lambda rate: f"target_qps = {rate:g}\n",
    )
    asyncio.run(search.execute(18.0))
    return search, notes


@pytest.mark.parametrize("by_token", [True, False])
def test_a_trial_that_falls_behind_does_not_hold(tmp_path: Path, *, by_token: bool) -> None:
    """Try 18, 20.7 and 19.3 queries/s; a wait that grows by 0.0625 s per second misses 2 s within 600 s."""
    search, notes = searched(LimitedTest(tmp_path, by_token=by_token), 0.0625)
    found = search.as_json()
    assert [(trial["target_qps"], trial["is_valid"], trial["holds"]) for trial in found["trials"]] == [
        (18.0, True, True),
        (20.7, True, False),
        (19.3, True, True),
    ]
    # The 297th of 300 waits, 0.5 + 29.7 * 0.0625 s, and 600 s more of the growth.
    late = "the wait grows by 0.0625 s per second: about 39.9 s after 600 s"
    assert [trial["why"] for trial in found["trials"]] == ["", late, ""]
    assert [trial["folder"] for trial in found["trials"]] == ["trials/01", "trials/02", "trials/03"]
    assert not any(trial["is_final"] for trial in found["trials"])
    assert (found["target_qps"], found["lowest_invalid_qps"], found["precision"]) == (19.3, 20.7, 0.02)
    assert notes[2:] == ["trial 3 at 19.3 queries/s (valid at 18, not at 20.7: 15.0% apart)", ""]
    assert (tmp_path / "trials" / "02" / "samples.csv").read_text() == "0.0625"
    assert (tmp_path / "samples.csv").read_text() == "0.0"


@pytest.mark.parametrize(
    ("limit_s", "full_ms", "holds"),
    [
        pytest.param(39.9, 600_000, True, id="within the limit"),
        pytest.param(39.8, 600_000, False, id="beyond the limit"),
        pytest.param(3.7, 20_000, True, id="a full test that is shorter than a trial"),
        pytest.param(3.5, 20_000, False, id="a short test beyond the limit"),
        pytest.param(0.0, 600_000, True, id="no limit"),
    ],
)
def test_growth_matters_where_it_misses_the_limit(
    limit_s: float, full_ms: int, tmp_path: Path, *, holds: bool
) -> None:
    test = LimitedTest(tmp_path, min_duration_ms=full_ms, limit_ns=round(limit_s * 1e9))
    trials = searched(test, 0.0625)[0].as_json()["trials"]
    assert trials[1]["holds"] is holds


def test_no_rate_that_holds_is_an_error(tmp_path: Path) -> None:
    async def run(of: Any, _note: str) -> Any:
        unmet = {46: "Min queries", 40: "Early stopping"}.get(of.server_target_qps, "Performance constraints")
        summary = f"Result is : INVALID\n{unmet} satisfied : NO\n"
        (of.output_dir / "mlperf_log_summary.txt").write_text(summary)
        return cast("SampleRecorder", ModelledRecorder())

    search = LoadSearch(
        Tuning(most_trials=3),
        cast("LoadGenTest", ModelledTest(tmp_path)),
        tmp_path,
        run=run,
        ask=lambda _: pytest.fail("no full-length test is made"),
    )
    assert search.as_json() == {
        "target_qps": None,
        "lowest_invalid_qps": None,
        "precision": 0.02,
        "trials": [],
    }
    with pytest.raises(HarnessError) as caught:
        asyncio.run(search.execute(46.0))
    assert caught.value.as_json() == {
        "kind": "load",
        "message": "no rate down to 20 queries/s is valid: not met: Performance constraints",
        "remedy": "see the trials' logs; give target_qps, or limits that the engine can keep",
    }
    assert search.as_json()["lowest_invalid_qps"] == 20.0
    assert search.as_json()["target_qps"] is None


def test_an_invalid_full_test_becomes_a_trial(tmp_path: Path) -> None:
    calls = []

    async def run(of: Any, note: str) -> Any:
        calls.append(of.server_target_qps)
        verdict = "VALID" if note else "INVALID"
        (of.output_dir / "mlperf_log_summary.txt").write_text(f"Result is : {verdict}\n# {len(calls)}\n")
        (of.output_dir / "mlperf_log_detail.txt").write_text(f"{len(calls)}")
        return cast("SampleRecorder", FallingBehind(float(len(calls)) if not note else 0.0))

    (tmp_path / "engine.log").write_text("stays")
    search = LoadSearch(
        Tuning(most_trials=1, final_attempts=2),
        cast("LoadGenTest", ModelledTest(tmp_path)),
        tmp_path,
        run=run,
        ask=lambda rate: f"target_qps = {rate:g}\n",
    )
    asyncio.run(search.execute(1234.5))
    assert calls == [1234.0, 1234.0, 1197.0]  # four digits; the second full test 3 % lower
    first, final = search.as_json()["trials"]
    assert (first["folder"], first["is_final"]) == ("trials/01", False)
    assert (final["folder"], final["is_final"], final["is_valid"], final["holds"]) == (
        "trials/02",
        True,
        False,
        False,
    )
    assert final["target_qps"] == 1234.0
    assert final["why"]
    folder = tmp_path / "trials" / "02"
    assert (folder / "mlperf_log_summary.txt").read_text().endswith("# 2\n")
    assert (folder / "mlperf_log_detail.txt").read_text() == "2"
    assert (folder / "samples.csv").read_text() == "2.0"
    assert (tmp_path / "mlperf_log_summary.txt").read_text().endswith("# 3\n")
    assert (tmp_path / "samples.csv").read_text() == "3.0"
    assert (tmp_path / "engine.log").read_text() == "stays"
    assert (tmp_path / "user.conf").read_text() == "target_qps = 1197\n"
    assert search.as_json()["lowest_invalid_qps"] == 1197.0
    assert search.as_json()["target_qps"] == 1197.0


class SlowAnswers:
    """A test that lasted as long as it was asked to, and whose answers take a while."""

    def __init__(self, lasted_s: float, answer_s: float) -> None:
        self._lasted_s = lasted_s
        self._answer_s = answer_s

    def waits(self) -> tuple[list[float], list[float]]:
        """Return samples, of which the later third waits, as after a burst, if a trial was too short."""
        issued = [5.0 + number * self._lasted_s / 299 for number in range(300)]
        later = 9.0 if 30 <= self._lasted_s < 3 * self._answer_s else 0.1
        return issued, [0.1] * 200 + [later] * 100

    def answer_s(self) -> float:
        """Return the time of an answer."""
        return self._answer_s

    def write(self, path: Path) -> None:
        """Write an empty file."""
        path.touch()


def durations(
    folder: Path, answer_s: float, full_s: float, *, verdict: str = "VALID", ends_after_s: float = math.inf
) -> list[float]:
    """Search in trials of 30 s; return the duration that each test was given, and check which ones count."""
    lasted: list[float] = []

    async def run(of: Any, _note: str) -> Any:
        lasted.append(of.min_duration_ms / 1000)
        is_trial = of.output_dir.parent.name == "trials"
        (of.output_dir / "mlperf_log_summary.txt").write_text(
            f"Result is : {verdict if is_trial else 'VALID'}\n"
        )
        return cast("SampleRecorder", SlowAnswers(min(lasted[-1], ends_after_s), answer_s))

    class Test(ModelledTest):
        def again(self, output_dir: Path, *, server_target_qps: float, **changes: Any) -> ModelledTest:
            return ModelledTest(
                output_dir, server_target_qps, changes.get("min_duration_ms", self.min_duration_ms)
            )

    search = LoadSearch(
        Tuning(most_trials=2),
        cast("LoadGenTest", Test(folder, min_duration_ms=round(full_s * 1000))),
        folder,
        run=run,
        ask=lambda rate: f"target_qps = {rate:g}\n",
    )
    if verdict == "VALID":
        asyncio.run(search.execute(100.0))
        short = [trial for trial in search.as_json()["trials"] if not trial["holds"]]
        assert [(trial["target_qps"], trial["is_valid"], trial["why"]) for trial in short] == [
            (100.0, True, f"too short to tell, because answers take {answer_s:g} s")
        ] * (len(lasted) - 3)
        assert search.as_json()["target_qps"] == 115.0
        assert search.as_json()["lowest_invalid_qps"] is None
    else:
        with pytest.raises(HarnessError):
            asyncio.run(search.execute(100.0))
    return lasted


@pytest.mark.parametrize(
    ("answer_s", "full_s", "lasted"),
    [
        pytest.param(10.0, 600.0, [30.0, 30.0, 600.0], id="three answers long"),
        pytest.param(
            12.0, 600.0, [30.0, 48.0, 48.0, 600.0], id="lengthened to four answers, for later rates too"
        ),
        pytest.param(12.0, 40.0, [30.0, 40.0, 40.0, 40.0], id="never longer than the full test"),
        pytest.param(12.0, 20.0, [20.0, 20.0, 20.0], id="a full test that is shorter than a trial"),
    ],
)
def test_a_trial_is_long_enough_for_its_answers(
    answer_s: float, full_s: float, lasted: list[float], tmp_path: Path
) -> None:
    """While the first answers are given, the number in progress grows, and so does the load on the engine."""
    assert durations(tmp_path, answer_s, full_s) == lasted


def test_a_trial_that_ends_early_is_not_repeated_with_the_same_length(tmp_path: Path) -> None:
    assert durations(tmp_path, 5.0, 600.0, ends_after_s=1.0) == [30.0, 30.0, 600.0]


def test_a_trial_that_is_invalid_is_not_repeated(tmp_path: Path) -> None:
    assert durations(tmp_path, 12.0, 600.0, verdict="INVALID") == [30.0, 30.0]


def test_each_full_test_is_lowered_by_twice_as_much(tmp_path: Path) -> None:
    calls = []

    async def run(of: Any, note: str) -> Any:
        calls.append(of.server_target_qps)
        (of.output_dir / "mlperf_log_summary.txt").write_text(f"Result is : {'' if note else 'IN'}VALID\n")
        return cast("SampleRecorder", ModelledRecorder())

    search = LoadSearch(
        Tuning(most_trials=1),
        cast("LoadGenTest", ModelledTest(tmp_path)),
        tmp_path,
        run=run,
        ask=lambda rate: f"target_qps = {rate:g}\n",
    )
    asyncio.run(search.execute(100.0))
    assert calls == [100.0, 100.0, 97.0, 91.18]
