"""Monitor NVIDIA GPUs with NVML while actions run, and the kernel log for their errors.

The type has VirtualClient's name; nvidia-smi itself is not run, since a process per second costs too much.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from actions.monitors.gpu_metrics import POWER, GpuMetrics, clock_warnings, column, span_metrics
from actions.monitors.interval import IntervalMonitor
from actions.monitors.kernel_errors import nvidia_error_of
from actions.monitors.kernel_log import KernelLog
from agent.component.component import MonitorSummary
from agent.core.records import Metric, Relativity
from agent.core.safe_files import append_to
from agent.facts.nvml_library import NvmlError, NvmlSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.component.component import ComponentParameters, MonitorContext
    from agent.facts.nvml_library import GpuReadings, NvmlGpu

EMIT_INTERVAL_S = 5.0
"""Longest time that measurements wait to be written together, which costs less; errors do not wait."""

EVENT_LIMIT = 1000
"""Maximum number of errors kept for reporting them with their cases."""

_MOST_OF_LIMIT = 1.2
"""Largest credible ratio of a GPU's power to its limit; higher readings are faults of the sensor."""
_MOST_ENERGY_OF_LIMIT = 2.0
"""Largest credible ratio for the power from its energy counter, which increases in steps."""
_ENERGY_STEP_S = 0.1
"""Longest time between two steps of the energy counter, in seconds (A100, H100: arXiv:2312.02741)."""
_READ_SLOWLY = ("power_draw_average", "memory_temperature", "pcie_transmitted", "pcie_received")
"""Values read every SLOW_INTERVAL_S; they hold until the next reading."""


class GpuSensors(Protocol):
    """Source of readings, such as an NvmlSession."""

    driver: str
    gpus: tuple[NvmlGpu, ...]

    def read(self, gpu: NvmlGpu, *, slow: bool) -> GpuReadings:
        """Read a GPU; raise NvmlError if it does not answer."""

    def close(self) -> None:
        """Close the source."""


@dataclass
class _Watched:
    """State of one GPU over time.

    Args:
        metrics: creates its metrics.
        at_s: time of the last reading, in seconds of the monitor's clock; None if unread or silent.
        silent_since_s: time since which the GPU does not answer; None if it answers.
        slowly: the last readings of rarely read values.
    """

    metrics: GpuMetrics
    at_s: float | None = None
    silent_since_s: float | None = None
    counters: Mapping[str, float] | None = None
    clock_events: int = 0
    errors: Mapping[str, float] | None = None
    slowly: dict[str, float] = field(default_factory=dict)


class NvidiaSmiMonitor(IntervalMonitor):
    """Emit metrics of NVIDIA GPUs at an interval, until the actions have ended.

    Args:
        parameters: the parameters of the monitor.
        open_sensors: opens NVML; raises NvmlError if it does not answer.
        kernel_log: the log in which errors appear.
    """

    is_for_gpus = True
    subject = "the GPUs"
    source = "NVML"
    """Name of the library or tool that readings come from, for messages."""
    remedy = "check cooling and power (nvidia-smi -q -d PERFORMANCE)"
    """Advice for clocks that were held down."""
    errors = "Xid errors"
    """Name of the errors in the kernel log, for messages."""
    error_of = staticmethod(nvidia_error_of)
    """Reads a line of the kernel log."""

    def __init__(
        self,
        parameters: ComponentParameters,
        open_sensors: Callable[[], GpuSensors] = NvmlSession,
        kernel_log: KernelLog | None = None,
    ) -> None:
        super().__init__(parameters)
        self._open_sensors = open_sensors
        self._kernel_log = kernel_log or KernelLog()
        self._sensors: GpuSensors | None = None
        self._silence = ""
        self._watched: dict[int, _Watched] = {}
        self._limits_watts: dict[int, float] = {}
        self._events: deque[tuple[float, str]] = deque(maxlen=EVENT_LIMIT)
        self._gaps: deque[tuple[float, float, str]] = deque(maxlen=EVENT_LIMIT)
        self._set_aside: deque[tuple[float, int, float, float]] = deque(maxlen=EVENT_LIMIT)
        """Impossible readings of power: time, GPU, watts, and its limit."""
        self._silent_since_s: float | None = None
        self._pending: list[Metric] = []
        self._emit_at_s = 0.0
        self._row_s: float | None = None
        """Time of the last reading of all GPUs."""

    @override
    def begin(self, context: MonitorContext) -> None:
        self._row_s = None  # after a restart, the time before was not measured
        self.watch_errors(context)
        self._read_all(context, slow=False)

    def watch_errors(self, context: MonitorContext) -> None:
        """Start to watch the kernel log for errors of GPUs."""
        if why := self._kernel_log.open():
            _note(context, f"{self.errors} are not watched: {why}")

    @override
    def measure(self, context: MonitorContext, *, slow: bool) -> None:
        self._pending += self._read_all(context, slow=slow)
        happened = self._kernel_errors(now=slow)
        self._pending += happened
        if self._pending and (happened or slow or time.monotonic() >= self._emit_at_s):
            self._emit(context)

    @override
    def end(self, context: MonitorContext) -> None:
        now_s = self.clock.now_s()
        gaps = []
        if self._silent_since_s is not None:
            gaps.append(self._gap(self._silent_since_s, now_s, self._silence, None))
        gaps += [
            self._gap(watched.silent_since_s, now_s, "it did not answer", watched)
            for watched in self._watched.values()
            if watched.silent_since_s is not None and self._silent_since_s is None
        ]
        self._pending += gaps
        self._emit(context)
        self._kernel_log.close()
        self._close()

    def _emit(self, context: MonitorContext) -> None:
        if self._pending:
            context.emit(self._pending)
        self._pending, self._emit_at_s = (
            [],
            time.monotonic() + min(EMIT_INTERVAL_S, 5 * self.parameters.interval),
        )

    def sum_up(self, start_s: float, end_s: float) -> MonitorSummary:
        """Return means, maxima and energy; throttling, errors and gaps are warnings."""
        gpus = [watched.metrics.gpu for watched in self._watched.values()]
        metrics = span_metrics(gpus, self.history, start_s, end_s)
        for watched in self._watched.values():
            metrics += watched.metrics.summary(self.history, start_s, end_s)
        warnings = clock_warnings(gpus, self._limits_watts, self.history, start_s, end_s, advice=self.remedy)
        warnings += dict.fromkeys(text for at_s, text in self._events if start_s <= at_s <= end_s)
        warnings += self._set_aside_warnings(start_s, end_s)
        warnings += self._gap_warnings(start_s, end_s)
        return MonitorSummary(tuple(metrics), tuple(warnings))

    def _read_all(self, context: MonitorContext, *, slow: bool) -> list[Metric]:
        metrics: list[Metric] = []
        if self._sensors is None and not self._reopen(context, metrics):
            return metrics
        sensors = self._sensors
        assert sensors is not None  # noqa: S101 - _reopen says so
        began_s, moment = self.clock.now_s(), datetime.now(timezone.utc)
        values: dict[str, float] = {}
        silent: list[tuple[_Watched, str]] = []
        for gpu in sensors.gpus:
            watched = self._watched[gpu.index]
            read_s = self.clock.now_s()  # read counters first: rates are of the time between two readings
            try:
                readings = sensors.read(gpu, slow=slow)
            except NvmlError as error:
                silent.append((watched, error.message))
                continue
            metrics += self._take(watched, readings, read_s, moment, values)
        if values and self._row_s is not None:
            self.history.add(self._row_s, began_s, values)
        self._row_s = began_s
        if silent and len(silent) == len(sensors.gpus):
            self._lose(context, silent[0][1], began_s)
            return metrics
        for watched, why in silent:
            self._fell_silent(context, watched, why)
        return metrics

    def _take(
        self,
        watched: _Watched,
        readings: GpuReadings,
        now_s: float,
        moment: datetime,
        values: dict[str, float],
    ) -> list[Metric]:
        """Return a GPU's metrics, and its values for the history's next row."""
        gpu, made = watched.metrics.gpu, watched.metrics
        metrics = []
        if watched.silent_since_s is not None:
            metrics.append(self._gap(watched.silent_since_s, now_s, "it did not answer", watched))
            watched.silent_since_s = None
        gauges = dict(readings.gauges)
        if "power_limit" in gauges:
            self._limits_watts[gpu.index] = gauges["power_limit"]
        metrics += self._quarantine(watched, gauges, now_s)
        watched.slowly |= {name: gauges[name] for name in _READ_SLOWLY if name in gauges}
        if watched.at_s is not None and now_s > watched.at_s:
            elapsed_s = now_s - watched.at_s
            grown = _growth(watched.counters or {}, readings.counters)
            energy = grown.pop("energy", None)
            power = next((gauges[name] for name in POWER if name in gauges), None)
            if energy is None and power is not None:
                energy = power * elapsed_s
            limit_watts = self._limit(watched)
            if (
                energy
                and limit_watts
                and energy > _MOST_ENERGY_OF_LIMIT * limit_watts * (elapsed_s + _ENERGY_STEP_S)
            ):
                self._set_aside.append((now_s, gpu.index, energy / elapsed_s, limit_watts))
                energy = None
            gauges |= {name: amount / elapsed_s for name, amount in grown.items()}
            kept = {**watched.slowly, **gauges}
            values |= {column(gpu, name): value for name, value in kept.items() if name in _KEPT}
            if energy is not None:
                values[column(gpu, "energy")] = energy
            if readings.clock_events is not None:
                values[column(gpu, "clock_events")] = readings.clock_events
            metrics += made.gauges(gauges, moment)
        if readings.clock_events is not None:
            metrics += made.clock_events(watched.clock_events, readings.clock_events)
            watched.clock_events = readings.clock_events
        self._note_errors(watched, gauges, now_s)
        watched.at_s, watched.counters = now_s, readings.counters
        return metrics

    def _limit(self, watched: _Watched) -> float | None:
        """Return the highest power limit of a GPU, in watts; None if unknown."""
        gpu = watched.metrics.gpu
        known = (self._limits_watts.get(gpu.index), gpu.default_power_limit_watts)
        return max((watts for watts in known if watts), default=None)

    def _quarantine(self, watched: _Watched, gauges: dict[str, float], now_s: float) -> list[Metric]:
        """Remove readings of power far above the limit; return an event for each."""
        limit_watts = self._limit(watched)
        too_high = [
            name for name in POWER if limit_watts and gauges.get(name, 0.0) > _MOST_OF_LIMIT * limit_watts
        ]
        metrics = []
        for name in too_high:
            watts = gauges.pop(name)
            self._set_aside.append((now_s, watched.metrics.gpu.index, watts, limit_watts or 0.0))
            text = f"a reading of {name.replace('_', ' ')} that was set aside: the limit is {limit_watts:g} W"
            metrics.append(watched.metrics.event("power_set_aside", watts, "watts", text))
        return metrics

    def _set_aside_warnings(self, start_s: float, end_s: float) -> list[str]:
        """Return warnings about GPUs with impossible readings of power."""
        found: dict[int, list[tuple[float, float]]] = {}
        for at_s, index, watts, limit_watts in self._set_aside:
            if start_s <= at_s <= end_s:
                found.setdefault(index, []).append((watts, limit_watts))
        return [
            f"GPU {index}: {len(told)} readings of power were set aside, the highest {max(told)[0]:.0f} W; "
            f"its limit is {max(told)[1]:g} W"
            for index, told in found.items()
        ]

    def _note_errors(self, watched: _Watched, gauges: Mapping[str, float], now_s: float) -> None:
        """Record errors counted since the last reading, to report them with the case that was running."""
        errors = {name: gauges[name] for name in _ERRORS if name in gauges}
        if not errors:
            return
        for name, amount in _growth(watched.errors or {}, errors).items():
            if amount:
                text = f"GPU {watched.metrics.gpu.index}: {amount:g} {_ERRORS[name]}"
                self._events.append((now_s, text))
        watched.errors = errors

    def _kernel_errors(self, *, now: bool) -> list[Metric]:
        metrics = []
        by_bus = {watched.metrics.gpu.bus_id: watched.metrics for watched in self._watched.values()}
        for line in self._kernel_log.lines(now=now):
            error = self.error_of(line)
            if error is None:
                continue
            made = by_bus.get(error.bus_id) if error.device == "gpu" else None
            name = f"{f'gpu{made.gpu.index}' if made else error.device}_{error.name}"
            metadata = {key: value for key, value in error.metadata.items() if value not in {"", None}}
            if made:
                metadata["gpu_index"] = made.gpu.index
            metrics.append(
                Metric(name, 1.0, "count", Relativity.LOWER, error.said, verbosity=3, metadata=metadata)
            )
            where = f"GPU {made.gpu.index}: " if made else ""
            self._events.append((self.clock.now_s(), f"{where}{error.said}"))
        return metrics

    def _reopen(self, context: MonitorContext, metrics: list[Metric]) -> bool:
        try:
            sensors = self._open_sensors()
        except NvmlError as error:
            if self._silent_since_s is None:
                self._lose(context, error.message, self.clock.now_s())
            return False
        now_s = self.clock.now_s()
        if self._silent_since_s is not None:
            metrics.append(self._gap(self._silent_since_s, now_s, self._silence, None))
            _note(context, f"{self.source} answers again after {now_s - self._silent_since_s:.1f} s")
            self._silent_since_s = None
        self._sensors = sensors
        self._watched = {gpu.index: _Watched(GpuMetrics(gpu, sensors.driver)) for gpu in sensors.gpus}
        return True

    def _lose(self, context: MonitorContext, why: str, at_s: float) -> None:
        """Mark all GPUs as silent, and close the source; the next round opens it again."""
        self._silence, self._silent_since_s, self._row_s = why, at_s, None
        _note(context, f"{self.source} does not answer: {why}")
        self._close()
        for watched in self._watched.values():
            watched.silent_since_s = watched.at_s = None

    def _fell_silent(self, context: MonitorContext, watched: _Watched, why: str) -> None:
        if watched.silent_since_s is None:
            watched.silent_since_s, watched.at_s = watched.at_s or self.clock.now_s(), None
            _note(context, why)

    def _gap(self, start_s: float, end_s: float, why: str, watched: _Watched | None) -> Metric:
        self._gaps.append((start_s, end_s, f"GPU {watched.metrics.gpu.index}" if watched else self.source))
        text = f"not measured: {why}"
        if watched:
            return watched.metrics.event("not_measured", end_s - start_s, "seconds", text)
        return Metric("gpu_not_measured", end_s - start_s, "seconds", Relativity.LOWER, text, verbosity=3)

    def _gap_warnings(self, start_s: float, end_s: float) -> list[str]:
        """Return warnings with the time in a span during which a GPU or the source did not respond.

        An outage that is still going on counts.
        """
        gaps = [*self._gaps]
        if self._silent_since_s is not None:
            gaps.append((self._silent_since_s, end_s, self.source))
        gaps += [
            (watched.silent_since_s, end_s, f"GPU {watched.metrics.gpu.index}")
            for watched in self._watched.values()
            if watched.silent_since_s is not None
        ]
        silent_s: dict[str, float] = {}
        for gap_start_s, gap_end_s, who in gaps:
            within_s = min(gap_end_s, end_s) - max(gap_start_s, start_s)
            if within_s > 0:
                silent_s[who] = silent_s.get(who, 0.0) + within_s
        return [
            f"{who} did not answer for {seconds:.0f} s of {end_s - start_s:.0f} s: energy and means of GPUs "
            "leave that time out"
            for who, seconds in silent_s.items()
        ]

    def _close(self) -> None:
        if self._sensors is not None:
            self._sensors.close()
            self._sensors = None


_KEPT = frozenset(
    {
        "utilization",
        "memory_utilization",
        "memory_used",
        "temperature",
        "memory_temperature",
        "sm_clock",
        "nvlink_transmitted",
        "nvlink_received",
        "pcie_transmitted",
        "pcie_received",
        "xgmi_transmitted",
        "xgmi_received",
        "pcie_bandwidth",
        *POWER,
    }
)
_ERRORS = {
    "ecc_volatile_total_uncorrected_errors": "memory errors were not corrected",
    "remapped_rows_uncorrected": "rows of memory were replaced after errors that were not corrected",
    "nvlink_crc_errors": "NVLink CRC errors",
    "nvlink_replay_errors": "NVLink packets were sent again",
    "nvlink_recovery_errors": "NVLink links had to recover",
    "pcie_replays": "PCIe packets were sent again",
}


def _growth(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the growth of counters, without those that decreased because they were reset."""
    return {
        name: value - before[name]
        for name, value in after.items()
        if name in before and value >= before[name]
    }


def _note(context: MonitorContext, text: str) -> None:
    with append_to(context.log) as log:
        log.write(f"{datetime.now(timezone.utc).isoformat(timespec='milliseconds')} {text}\n")
