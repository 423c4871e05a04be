"""Runs each monitor in its own thread, from the first action to the last, and restarts it if it dies."""

from __future__ import annotations

import threading
import time
import traceback
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from agent.component.component import Monitor, MonitorContext, MonitorSummary
from agent.core.errors import ProfileError
from agent.core.safe_files import append_text
from agent.profile import SWITCHED_OFF
from agent.run.recorder import MonitorRecords
from agent.run.step_runner import title_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agent.core.records import Metric
    from agent.facts import Facts
    from agent.host.processes import LocalProcesses
    from agent.planning.planner import Planner
    from agent.profile import Element
    from agent.run.recorder import Recorder

END_WAIT_S = 10.0
"""Seconds that a monitor may take to end after the last action."""
BEGIN_WAIT_S = 10.0
"""Seconds that the first action waits for a monitor to be ready."""
RESTART_WAIT_S = 1.0
"""Seconds until a monitor that died is restarted; doubled each time that it soon dies again."""
_LONGEST_WAIT_S = 60.0


@contextmanager
def monitors_beside(
    elements: Sequence[Element],
    *,
    planner: Planner,
    facts: Facts,
    processes: LocalProcesses,
    recorder: Recorder,
    run_dir: Path,
    notes: list[str],
) -> Iterator[None]:
    """Run monitors while the context is open.

    Args:
        elements: the profile's monitors.
        planner: builds them.
        facts: the host.
        processes: runs commands for them.
        recorder: takes their metrics.
        run_dir: the run's folder.
        notes: gets a line for each monitor that was skipped, died or could not write its records.

    Raises:
        ProfileError: if an element is not a monitor.
    """
    ended = threading.Event()
    watched: list[_Watched] = []
    for element in elements:
        if reason := planner.skipped(element, facts):
            if reason != SWITCHED_OFF:
                notes.append(f"{title_of(element)} was skipped: {reason}")
            continue
        monitor = planner.build(element)
        if not isinstance(monitor, Monitor):
            raise ProfileError(f"{element.type} is not a monitor", where=str(element.location))
        log = run_dir / "logs" / f"{element.key.replace('[', '-').replace(']', '')}.log"
        one = _Watched(element, monitor, recorder, notes)
        one.context = MonitorContext(emit=one.emit, stop=ended, facts=facts, processes=processes, log=log)
        watched.append(one)
    threads = [threading.Thread(target=one.run, daemon=True) for one in watched]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + BEGIN_WAIT_S
    for one in watched:
        one.begun.wait(max(0.0, deadline - time.monotonic()))
    recorder.monitors = tuple(one.sum_up for one in watched)
    try:
        yield
    finally:
        recorder.monitors = ()
        ended.set()
        for thread in threads:
            thread.join(END_WAIT_S)


class _Watched:
    """One monitor while it runs.

    Args:
        element: the monitor's element in the profile.
        monitor: the monitor.
        recorder: takes its metrics.
        notes: the run's warnings.

    Attributes:
        context: the context that the monitor runs in.
        begun: set when the monitor is ready, or has died.
    """

    context: MonitorContext

    def __init__(self, element: Element, monitor: Monitor, recorder: Recorder, notes: list[str]) -> None:
        self.begun = threading.Event()
        self._element = element
        self._monitor = monitor
        self._recorder = recorder
        self._notes = notes
        self._outages: list[_Outage] = []
        self._unwritten: list[tuple[datetime, str]] = []

    def run(self) -> None:
        """Run the monitor until the actions have ended, and restart it whenever it dies."""
        wait_s = RESTART_WAIT_S
        while True:
            began_s = time.monotonic()
            try:
                self._monitor.prepare(self.context)
                if self._outages:
                    self._outages[-1].end = _now()
                self.begun.set()
                self._monitor.watch(self.context)
            except Exception as error:  # noqa: BLE001 - a monitor never ends a run
                self._died(error)
            else:
                return
            if time.monotonic() - began_s > _LONGEST_WAIT_S:
                wait_s = RESTART_WAIT_S
            if self.context.stop.wait(wait_s):
                return
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _died(self, error: Exception) -> None:
        """Note the outage before the log is written: writing fails if the disk is full."""
        why = f"{error}" or type(error).__name__
        if self._outages and self._outages[-1].end is None:
            return  # the monitor could not be restarted: the same outage goes on
        self._outages.append(_Outage(_now(), why))
        self._notes.append(f"{title_of(self._element)} died and is started again: {why}")
        self.begun.set()
        with suppress(OSError):
            append_text(self.context.log, self.context.processes.secrets.mask(traceback.format_exc()))

    def emit(self, metrics: Sequence[Metric]) -> None:
        """Record the monitor's metrics; if they cannot be written, note it and go on."""
        parameters = self._monitor.parameters
        scenario = parameters.scenario or self._element.type
        try:
            self._recorder.emit(
                self._element.type, scenario, parameters.tags, parameters.metric_filters, metrics
            )
        except Exception as error:  # noqa: BLE001 - usually a full disk; the summaries of cases are in memory
            if not self._unwritten:
                self._notes.append(f"{title_of(self._element)}: records could not be written: {error}")
            self._unwritten.append((_now(), str(error)))

    def sum_up(self, start: datetime, end: datetime) -> MonitorRecords:
        """Return what the monitor recorded during a case, with warnings about what it missed."""
        title, parameters = title_of(self._element), self._monitor.parameters
        try:
            summary = self._monitor.summary(start, end)
        except Exception as error:  # noqa: BLE001 - a result counts even if the monitor cannot sum it up
            summary = MonitorSummary(warnings=(f"{title} could not sum up: {error}",))
        length_s = (end - start).total_seconds()
        missed = [
            f"{title} died and did not run for {seconds:.1f} s of {length_s:.1f} s: {why}"
            for seconds, why in ((outage.within(start, end), outage.why) for outage in self._outages)
            if seconds > 0
        ]
        unwritten = [why for at, why in self._unwritten if start <= at <= end]
        if unwritten:
            missed.append(f"{title}: records could not be written {len(unwritten)} times: {unwritten[0]}")
        summary = MonitorSummary(summary.metrics, (*summary.warnings, *missed))
        return MonitorRecords(self._element.type, parameters.tags, parameters.metric_filters, summary)


class _Outage:
    """A time in which a monitor did not run.

    Args:
        start: when the monitor died.
        why: the error that it died of.

    Attributes:
        end: when it ran again; None if it does not run yet.
    """

    def __init__(self, start: datetime, why: str) -> None:
        self.start = start
        self.why = why
        self.end: datetime | None = None

    def within(self, start: datetime, end: datetime) -> float:
        """Return the seconds of a time span that fall within this outage."""
        return (min(self.end or end, end) - max(self.start, start)).total_seconds()


def _now() -> datetime:
    return datetime.now(timezone.utc)
