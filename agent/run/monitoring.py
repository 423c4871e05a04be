"""Monitors: each in a thread of its own, from the first action to the last."""

from __future__ import annotations

import threading
import traceback
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from agent.component.component import Monitor, MonitorContext, MonitorSummary
from agent.core.errors import ProfileError
from agent.core.safe_files import append_text
from agent.profile import SWITCHED_OFF
from agent.run.recorder import MonitorRecords
from agent.run.step_runner import title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from agent.core.records import Metric
    from agent.facts import Facts
    from agent.host.processes import LocalProcesses
    from agent.planning.planner import Planner
    from agent.profile import Element
    from agent.run.recorder import Recorder

__all__ = ["monitors_beside"]

END_WAIT_S = 10.0
"""How long a monitor may take to end after the last action."""


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
        notes: gets a line for each monitor that was skipped or ended early.

    Raises:
        ProfileError: if an element is no monitor.
    """
    ended = threading.Event()

    def watch(element: Element, monitor: Monitor) -> None:
        parameters = monitor.parameters

        def emit(metrics: Sequence[Metric]) -> None:
            scenario = parameters.scenario or element.type
            recorder.emit(element.type, scenario, parameters.tags, parameters.metric_filters, metrics)

        log = run_dir / "logs" / f"{element.key.replace('[', '-').replace(']', '')}.log"
        try:
            monitor.watch(MonitorContext(emit=emit, stop=ended, facts=facts, processes=processes, log=log))
        except Exception as error:  # noqa: BLE001 - a monitor never ends a run; its end is told instead
            append_text(log, processes.secrets.mask(traceback.format_exc()))
            notes.append(processes.secrets.mask(f"{title_of(element)} ended early: {error}"))

    threads: list[threading.Thread] = []
    summaries: list[Callable[[datetime, datetime], MonitorRecords]] = []
    for element in elements:
        if reason := planner.skipped(element, facts):
            if reason != SWITCHED_OFF:
                notes.append(f"{title_of(element)} was skipped: {reason}")
            continue
        monitor = planner.build(element)
        if not isinstance(monitor, Monitor):
            raise ProfileError(f"{element.type} is no monitor", where=str(element.location))
        threads.append(threading.Thread(target=watch, args=(element, monitor), daemon=True))
        summaries.append(partial(_sum_up, element, monitor))
    for thread in threads:
        thread.start()
    recorder.monitors = tuple(summaries)
    try:
        yield
    finally:
        recorder.monitors = ()
        ended.set()
        for thread in threads:
            thread.join(END_WAIT_S)


def _sum_up(element: Element, monitor: Monitor, start: datetime, end: datetime) -> MonitorRecords:
    parameters = monitor.parameters
    try:
        summary = monitor.summary(start, end)
    except Exception as error:  # noqa: BLE001 - a result counts, whether or not it can be summed up
        summary = MonitorSummary(warnings=(f"{title_of(element)} could not sum up: {error}",))
    return MonitorRecords(element.type, parameters.tags, parameters.metric_filters, summary)
