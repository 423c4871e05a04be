"""A case's summary waits for a running measurement, but not for one that hangs."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from actions.monitors import interval
from actions.monitors.interval import IntervalMonitor, IntervalParameters
from agent.component.component import MonitorContext, MonitorSummary
from agent.facts import Facts
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT_S = 30.0


class Driver(IntervalMonitor):
    """Measures once a call; a measurement of the loop hangs until it is let go."""

    def __init__(self) -> None:
        super().__init__(IntervalParameters(interval=0.1))
        self.hangs, self.let_go = threading.Event(), threading.Event()
        self.measured: list[str] = []

    def measure(self, context: MonitorContext, *, slow: bool) -> None:
        name = threading.current_thread().name
        if name == "loop" and not self.hangs.is_set():
            self.hangs.set()
            self.let_go.wait(LIMIT_S)
        self.measured.append(f"{name}, {slow}")

    def sum_up(self, start_s: float, end_s: float) -> MonitorSummary:
        return MonitorSummary(warnings=("summed up",))


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[Driver, threading.Thread, threading.Event]]:
    """Start a monitor and wait until its measurement hangs."""
    driver, stop = Driver(), threading.Event()
    context = MonitorContext(
        emit=lambda _: None,
        stop=stop,
        facts=Facts(None),
        processes=LocalProcesses("interval-tests"),
        log=tmp_path / "log",
    )
    thread = threading.Thread(target=driver.watch, args=(context,), name="loop")
    thread.start()
    assert driver.hangs.wait(LIMIT_S)
    yield driver, thread, stop
    stop.set()
    driver.let_go.set()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def summary_of(driver: Driver) -> MonitorSummary:
    end = datetime.now(timezone.utc)
    return driver.summary(end - timedelta(seconds=1), end)


def test_a_measurement_that_hangs_does_not_hold_up_a_case(
    hanging: tuple[Driver, threading.Thread, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _, _ = hanging
    monkeypatch.setattr(interval, "_STUCK_S", 0.01)
    assert "summed up" in summary_of(driver).warnings
    assert driver.measured == []
    assert not driver._turn.acquire(blocking=False)  # the hanging measurement still has its turn


def test_a_case_waits_for_a_measurement_that_runs_and_then_takes_its_own(
    hanging: tuple[Driver, threading.Thread, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, loop, stop = hanging
    monkeypatch.setattr(interval, "_STUCK_S", LIMIT_S)
    found: list[MonitorSummary] = []
    case = threading.Thread(target=lambda: found.append(summary_of(driver)), name="case")
    case.start()
    assert not found
    stop.set()
    driver.let_go.set()
    case.join(LIMIT_S)
    loop.join(LIMIT_S)
    assert len(found) == 1
    assert driver.measured[0].startswith("loop")
    assert all(one in {"loop, True", "loop, False", "case, True"} for one in driver.measured)
