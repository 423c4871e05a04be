"""Share code of monitors that measure at an interval."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from actions.monitors.coverage import coverage_warning, share
from actions.monitors.history import History
from actions.monitors.steady_clock import SteadyClock
from agent.component.component import ComponentParameters, Monitor, MonitorContext, MonitorSummary
from agent.component.parameter_types import Seconds  # noqa: TC001 - pydantic reads it
from agent.core.names import canonical
from agent.core.records import Metric, Relativity

if TYPE_CHECKING:
    from datetime import datetime

_STUCK_S = 10.0
"""Time limit of a case's wait for a running measurement: a driver that hangs must not block the run."""
SLOW_INTERVAL_S = 10.0
"""Minimum interval of values that are slow to read or change rarely."""


class IntervalParameters(ComponentParameters):
    """Parameters of the measuring interval."""

    interval: Seconds = Field(
        1.0, ge=0.1, description="Time between two measurements; also named MonitorFrequency."
    )
    monitor_warmup_period: Seconds = Field(
        0.0,
        ge=0,
        description="Accepted from VirtualClient, no effect: monitors start when the host is ready.",
    )
    monitor_iterations: int = Field(
        -1, ge=-1, description="From VirtualClient: maximum number of measurements; -1 for no limit."
    )

    @field_validator("monitor_iterations")
    @classmethod
    def _some(cls, value: int) -> int:
        if value == 0:
            raise ValueError("-1 for no limit, or a number above 0; enabled: false switches the monitor off")
        return value

    @model_validator(mode="before")
    @classmethod
    def _monitor_frequency(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        named = {canonical(str(key)): key for key in values}
        key = named.get("monitorfrequency")
        return (
            values if key is None else {"interval" if name == key else name: values[name] for name in values}
        )


class IntervalMonitor(Monitor):
    """Measure at an interval until the actions have ended, and summarise time spans of the measurements."""

    Parameters = IntervalParameters
    parameters: IntervalParameters
    subject = "the host"
    """Subject of the monitor, for messages."""

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.history = History(interval_s=self.parameters.interval)
        self.clock = SteadyClock()
        self._turn = threading.Lock()
        self._watching: MonitorContext | None = None

    def begin(self, context: MonitorContext) -> None:
        """Prepare for the first interval."""

    @abstractmethod
    def measure(self, context: MonitorContext, *, slow: bool) -> None:
        """Measure the time since the last call; take slow measurements only if ``slow`` is set."""

    @abstractmethod
    def sum_up(self, start_s: float, end_s: float) -> MonitorSummary:
        """Summarise the measurements of a time span, in seconds of ``clock``."""

    def end(self, context: MonitorContext) -> None:
        """Clean up after the last interval."""

    @override
    def prepare(self, context: MonitorContext) -> None:
        with self._turn:
            self.begin(context)
            self._watching = context

    @override
    def watch(self, context: MonitorContext) -> None:
        if self._watching is None:
            self.prepare(context)
        try:
            self._measure_until_stopped(context)
        finally:
            with self._turn:
                self._watching = None
                self.end(context)

    def _measure_until_stopped(self, context: MonitorContext) -> None:
        due = slow_at = time.monotonic()
        stopped, count = False, 0
        while not stopped and count != self.parameters.monitor_iterations:
            count += 1
            due = max(due + self.parameters.interval, time.monotonic())
            # The time until the end counts, too, so that a short action is covered.
            stopped = context.stop.wait(max(0.0, due - time.monotonic()))
            slow = time.monotonic() >= slow_at
            if slow:
                slow_at = time.monotonic() + SLOW_INTERVAL_S
            with self._turn:
                self.measure(context, slow=slow)

    @override
    def summary(self, start: datetime, end: datetime) -> MonitorSummary:
        is_free = self._turn.acquire(timeout=_STUCK_S)
        try:
            if self._watching and is_free:
                # A case that ends now ended after the last interval: without this, a short case would not be
                # covered.
                self.measure(self._watching, slow=True)
            end_s = self.clock.seconds_of(end, self.clock.now_s())
            return self._with_coverage(self.clock.seconds_of(start, end_s), end_s)
        finally:
            if is_free:
                self._turn.release()

    def _with_coverage(self, start_s: float, end_s: float) -> MonitorSummary:
        """Return the summary of a time span, with its coverage and changes of the host's clock."""
        found = self.sum_up(start_s, end_s)
        if end_s <= start_s:
            return found
        seen = share(self.history.covered_s(start_s, end_s), start_s, end_s)
        name = f"{canonical(type(self).__name__).removesuffix('monitor')}_coverage"
        text = f"share of the time for which {self.subject} was watched"
        metric = Metric(name, seen, "ratio", Relativity.HIGHER, text, verbosity=3)
        set_by_s = self.clock.set_by_s(start_s, end_s)
        warnings = [
            *coverage_warning(self.subject, seen, end_s - start_s),
            *(f"the host's clock was set by {step_s:+.1f} s while this ran" for step_s in set_by_s),
        ]
        return MonitorSummary((*found.metrics, metric), (*found.warnings, *warnings))
