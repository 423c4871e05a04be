"""The progress display during a run."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from agent.core.progress import PlainProgress, RunProgress, duration

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (7260, "2 h 01 min"),
        (-3, "0 s"),
    ],
)
def test_durations_are_told_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_line_at_the_start_now_and_then_and_at_the_end() -> None:
    stream, clock = io.StringIO(), [0.0]
    progress = PlainProgress(stream, lambda: clock[0])
    progress.expect([60.0, 30.0])
    step = progress.start("install", 60.0)
    clock[0] = 10.0
    step.update("unpacking", done=1, total=4)
    clock[0] = 20.0
    step.update("unpacking", done=2, total=4)
    step.update("not shown: too soon", done=2, total=4)
    progress.finish(step, "done")
    lines = stream.getvalue().splitlines()
    assert lines == [
        "[      0 s] 1/2 install (usually 1 min 00 s)",
        "[     20 s]     install: 50% unpacking, about 50 s left in all",
        "[     20 s]     install: done (20 s)",
    ]


def test_time_left_follows_from_the_count_alone() -> None:
    """Load for a minute, which says nothing about 500 samples that take 30 s."""
    clock = [0.0]
    step = RunProgress(lambda: clock[0]).start("test", 20.0)
    assert (step.left_s, step.fraction) == (20.0, 0.0)
    step.update("loading")
    assert (step.left_s, step.fraction) == (None, None)  # nobody knows how long
    clock[0] = 10.0
    step.update("running", done=0, total=500)
    assert (step.left_s, step.fraction) == (None, 0.0)  # loading took an unknown part of the usual 20 s
    step.update("loading again")
    clock[0] = 77.0
    step.update("running", done=0, total=500)
    assert step.left_s is None
    clock[0] = 83.0
    step.update("running", done=100, total=500)
    assert step.left_s == pytest.approx(24)
    clock[0] = 100.0
    step.update("scoring", done=0, total=10)
    clock[0] = 101.0
    step.update("scoring", done=2, total=10)
    assert step.left_s == pytest.approx(4)


def test_an_overdue_step_hides_the_time_left_of_the_run() -> None:
    clock = [0.0]
    progress = RunProgress(lambda: clock[0])
    progress.expect([10.0, 30.0])
    step = progress.start("first", 10.0)
    assert progress.left_s(step) == 40
    clock[0] = 50.0
    assert progress.left_s(step) is None


def test_the_time_left_of_the_run_needs_the_estimates_of_all_later_steps(tmp_path: Path) -> None:
    stream, clock = io.StringIO(), [0.0]
    progress = PlainProgress(stream, lambda: clock[0])
    progress.expect([20.0, None, 30.0])

    def halfway(title: str, estimate_s: float | None) -> str:
        """Return the end of the line that is shown when half of a step of 40 s is done."""
        step = progress.start(title, estimate_s)
        step.update(title, done=0, total=4)
        clock[0] += 20.0
        step.update(title, done=2, total=4)
        return stream.getvalue().splitlines()[-1].split(": ")[1]

    with progress.logged(tmp_path / "run.log"):
        assert halfway("first", 20.0) == "50% first, about 20 s left in this step"
        assert halfway("second", None) == "50% second, about 50 s left in all"
    logged = [line for line in (tmp_path / "run.log").read_text().splitlines() if "%" in line]
    assert [line.split(", ")[1] for line in logged] == [
        "about 20 s left in this step", "about 50 s left in all",
    ]  # fmt: skip


def test_a_step_is_shown_with_its_round() -> None:
    stream, clock = io.StringIO(), [0.0]
    progress = PlainProgress(stream, lambda: clock[0])
    progress.in_round(7, lambda: 22.0 - clock[0])
    step = progress.start("execute")
    clock[0] = 20.0
    step.update("working")
    progress.in_round(8, lambda: None)
    progress.start("execute", 5.0)
    assert stream.getvalue().splitlines() == [
        "[      0 s] 1 execute (round 7, 22 s left)",
        "[     20 s]     execute: working, round 7, 2 s left",
        "[     20 s] 2/2 execute (round 8, usually 5 s)",
    ]


def test_a_reader_that_has_gone_does_not_end_the_run() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(text)

    progress = PlainProgress(Closed())
    progress.finish(progress.start("install"), "done")
