"""If a host's clock goes back, the run reports it, and so does the case in which it happened."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from agent.core.records import ParsedOutput
from agent.run.clock import HostClock
from agent.run.recorder import Recorder, RunContext
from agent.store.journal import Journal, StepRow, now

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("wall_s", "steady_s", "told"),
    [(100.0, 100.0, ""), (98.5, 100.0, ""), (90.0, 100.0, "10.0 s"), (-3500.0, 100.0, "3600.0 s"),
     (500.0, 100.0, "")],
)  # fmt: skip
def test_a_clock_that_went_back_is_told(wall_s: float, steady_s: float, told: str) -> None:
    walls, steadies = iter([1_000.0, 1_000.0 + wall_s]), iter([50.0, 50.0 + steady_s])
    warning = HostClock(lambda: next(walls), lambda: next(steadies)).warning()
    assert (told in warning) if told else warning == ""
    assert not told or "went back" in warning


@pytest.mark.parametrize("named", [True, False])
def test_a_case_that_ends_before_it_began_says_so(named: bool, tmp_path: Path) -> None:  # noqa: FBT001
    with Journal(tmp_path / "journal.sqlite") as journal:
        recorder = Recorder(journal, (), RunContext("e", "r", "host", "P"), tmp_path, str)
        journal.start_step(StepRow("a/run", "a", "X", "action", "run", "", "", ""))
        outputs = [ParsedOutput("rules", "tool", scenario="A")] if named else []
        recorder.finish_step(
            "a/run", outputs, started=now() + timedelta(seconds=90), message="", case_dir=None, scenario="A",
            tags="", filters="",
        )  # fmt: skip
        told = journal.cases()[0]["warnings"] if named else recorder.warnings
    assert any("the host's clock went back by" in text for text in told)


def test_a_run_tells_it_with_its_verdict(run_profile: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostClock, "warning", lambda _: "the clock of this host went back by 7.0 s")
    finished = run_profile({"Actions": [{"Type": "Measuring", "Parameters": {"Scenario": "A"}}]})  # type: ignore[operator]
    assert "the clock of this host went back by 7.0 s" in finished.description["verdict"]["warnings"]
