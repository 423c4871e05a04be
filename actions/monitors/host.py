"""Monitor the host while actions run: processor, memory, disks, network."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from actions.monitors.coverage import is_enough, share, with_coverage
from actions.monitors.interval import IntervalMonitor
from agent.component.component import MonitorSummary
from agent.core.records import Metric, Relativity
from agent.core.safe_files import append_to

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.component.component import ComponentParameters, MonitorContext

_VIRTUAL_NICS = ("lo", "veth", "docker", "br-", "virbr", "cni", "flannel")
"""Prefixes of interfaces whose traffic also passes another one, or none; never counted."""

_CPU_STATES = ("user", "system", "iowait", "irq", "steal")
_IDLE = ("idle", "iowait")

_SUMMED_UP = {
    "cpu_utilisation": "ratio",
    "cpu_steal": "ratio",
    "load_1m": "count",
    "memory_used": "bytes",
    "swap_used": "bytes",
    "disk_read": "bytes/s",
    "disk_written": "bytes/s",
    "network_received": "bytes/s",
    "network_sent": "bytes/s",
    "cpu_temperature": "celsius",
}
"""Metrics in a case's summary, of those emitted."""

_COUNTED = ("ratio", "bytes/s")
"""Units of values that are counted over an interval; the others are read at its end."""

_READ_SLOWLY = ("cpu_temperature", "cpu_frequency")
"""Values that are read rarely, and hold until the next reading."""


@dataclass(frozen=True)
class Snapshot:
    """Readings of all sensors at one time; unavailable ones are None or absent.

    Args:
        at_s: time of the readings, by a monotonic clock.
        cpu_s: seconds spent in each state since boot, summed over all logical cores; guest time is
            included in user and nice.
        load_1m: running and waiting processes, averaged over a minute.
        memory: ``used``, ``available``, ``swap_used`` in bytes.
        counters: bytes since boot: ``disk_read``, ``disk_written``, ``network_received``, ``network_sent``.
        temperature_celsius: temperature of the hottest sensor of the processor.
        frequency_hz: mean over all cores.
    """

    at_s: float
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    load_1m: float | None = None
    memory: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    temperature_celsius: float | None = None
    frequency_hz: float | None = None


class Sensors(Protocol):
    """Source of snapshots."""

    def snapshot(self, *, slow: bool) -> Snapshot:
        """Read the sensors; read slow ones only if ``slow`` is set. Never raises for a missing sensor."""


class PsutilSensors(Sensors):
    """Sensors of this host; missing ones are recorded in ``missing``, with the cause.

    Args:
        sys: mount point of sysfs.
    """

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self.missing: dict[str, str] = {}
        self._sys = sys

    @override
    def snapshot(self, *, slow: bool) -> Snapshot:
        import psutil

        cpu = self._read("processor times", psutil.cpu_times)
        return Snapshot(
            at_s=time.monotonic(),
            cpu_s=cpu._asdict() if cpu else {},
            load_1m=self._read("load", lambda: psutil.getloadavg()[0]),
            memory=self._read("memory", self._memory) or {},
            counters={
                **(self._read("disks", self._disks) or {}),
                **(self._read("network", self._network) or {}),
            },
            temperature_celsius=self._read("temperature", self._temperature) if slow else None,
            frequency_hz=self._read("frequency", self._frequency) if slow else None,
        )

    def _read(self, name: str, sensor: Callable[[], Any]) -> Any:
        if name in self.missing:
            return None
        try:
            value = sensor()
        except Exception as error:  # noqa: BLE001 - no failure of a sensor may end a run
            self.missing[name] = f"{type(error).__name__}: {error}"
            return None
        if value is None:
            self.missing[name] = "this host does not have it"
        return value

    @staticmethod
    def _memory() -> dict[str, float]:
        import psutil

        memory = psutil.virtual_memory()
        return {
            "used": memory.total - memory.available,
            "available": memory.available,
            "swap_used": psutil.swap_memory().used,
        }

    def _disks(self) -> dict[str, float] | None:
        import psutil

        disks = psutil.disk_io_counters(perdisk=True) or {}
        # Partitions and layers on top of disks (LVM, RAID, loop devices, zram) are not separate devices.
        devices = [disks[name] for name in disks if self._is_device("block", name.replace("/", "!"))]
        if not devices:
            whole = psutil.disk_io_counters()
            devices = [whole] if whole else []
        if not devices:
            return None
        return {
            "disk_read": sum(counters.read_bytes for counters in devices),
            "disk_written": sum(counters.write_bytes for counters in devices),
        }

    def _network(self) -> dict[str, float]:
        import psutil

        nics = psutil.net_io_counters(pernic=True)
        # A virtual function below a virtual NIC (Azure's accelerated networking) is also counted by that NIC.
        names = [
            name
            for name in nics
            if self._is_device("class/net", name) and not self._is_device("class/net", f"{name}/master")
        ] or [name for name in nics if not name.startswith(_VIRTUAL_NICS)]
        return {
            "network_received": sum(nics[name].bytes_recv for name in names),
            "network_sent": sum(nics[name].bytes_sent for name in names),
        }

    def _is_device(self, kind: str, name: str) -> bool:
        """Return True if a device is on a bus, such as virtio; bonds, bridges, VLANs and tunnels are not."""
        return (self._sys / kind / name / "device").exists()

    @staticmethod
    def _temperature() -> float | None:
        import psutil

        chips = psutil.sensors_temperatures()
        processor = [
            chips[name] for name in ("coretemp", "k10temp", "zenpower", "cpu_thermal") if name in chips
        ]
        values = [sensor.current for chip in processor for sensor in chip if sensor.current]
        return max(values, default=None)

    @staticmethod
    def _frequency() -> float | None:
        import psutil

        frequency = psutil.cpu_freq()
        return frequency.current * 1e6 if frequency and frequency.current else None


def metrics_between(before: Snapshot, after: Snapshot) -> list[Metric]:
    """Return the metrics between two snapshots: shares and rates over the time, states at the end."""
    elapsed_s = after.at_s - before.at_s
    metrics = _cpu_metrics(before.cpu_s, after.cpu_s)
    if after.load_1m is not None:
        metrics.append(
            _metric("load_1m", after.load_1m, "count", "processes that run or wait, mean of a minute")
        )
    for name, value in after.memory.items():
        headline = 2 if name == "used" else 3
        metrics.append(
            _metric(f"memory_{name}".replace("memory_swap", "swap"), value, "bytes", verbosity=headline)
        )
    for name, value in after.counters.items():
        moved = value - before.counters.get(name, value)
        # A counter that decreased belongs to a device that was removed.
        if elapsed_s > 0 and name in before.counters and moved >= 0:
            metrics.append(_metric(name, moved / elapsed_s, "bytes/s"))
    if after.temperature_celsius is not None:
        metrics.append(
            _metric("cpu_temperature", after.temperature_celsius, "celsius", relativity=Relativity.LOWER)
        )
    if after.frequency_hz is not None:
        metrics.append(_metric("cpu_frequency", after.frequency_hz, "hertz", "mean over all cores"))
    return metrics


def _cpu_metrics(before: Mapping[str, float], after: Mapping[str, float]) -> list[Metric]:
    # Guest time is already included in user and nice (proc_stat(5)).
    spent = {
        name: max(0.0, after[name] - before[name])
        for name in after
        if name in before and not name.startswith("guest")
    }
    total = sum(spent.values())
    if total <= 0:
        return []
    idle = sum(spent.get(name, 0.0) for name in _IDLE)
    metrics = [_metric("cpu_utilisation", 1 - idle / total, "ratio", "of all logical cores", verbosity=2)]
    metrics += [_metric(f"cpu_{name}", spent[name] / total, "ratio") for name in _CPU_STATES if name in spent]
    return metrics


def _metric(
    name: str,
    value: float,
    unit: str,
    description: str = "",
    *,
    verbosity: int = 3,
    relativity: Relativity = Relativity.UNDEFINED,
) -> Metric:
    return Metric(name, float(value), unit, relativity, description, verbosity)


class HostMonitor(IntervalMonitor):
    """Emit metrics of the host at an interval, until the actions have ended."""

    def __init__(self, parameters: ComponentParameters, sensors: Sensors | None = None) -> None:
        super().__init__(parameters)
        self.sensors: Sensors = sensors or PsutilSensors()
        self._before = Snapshot(0.0)
        self._before_s = 0.0
        self._slowly: dict[str, float] = {}

    @override
    def begin(self, context: MonitorContext) -> None:
        self._before, self._before_s = self.sensors.snapshot(slow=False), self.clock.now_s()

    @override
    def measure(self, context: MonitorContext, *, slow: bool) -> None:
        after, after_s = self.sensors.snapshot(slow=slow), self.clock.now_s()
        if after.at_s <= self._before.at_s:
            return
        metrics = metrics_between(self._before, after)
        values = {metric.name: metric.value for metric in metrics}
        self._slowly |= {name: values[name] for name in _READ_SLOWLY if name in values}
        self.history.add(self._before_s, after_s, {**self._slowly, **values})
        self._before, self._before_s = after, after_s
        measured = datetime.now(timezone.utc)
        context.emit([replace(metric, timestamp=measured) for metric in metrics])

    def sum_up(self, start_s: float, end_s: float) -> MonitorSummary:
        """Return mean and maximum of the host's metrics over a time span."""
        metrics = []
        for name, unit in _SUMMED_UP.items():
            if found := self.history.statistic(name, start_s, end_s, is_counted=unit in _COUNTED):
                seen = share(found.covered_s, start_s, end_s)
                mean = _metric(f"{name}_mean", found.mean, unit, "mean while it ran")
                highest = _metric(f"{name}_max", found.maximum, unit, "highest while it ran")
                both = [mean, highest] if is_enough(seen) else [highest]
                metrics += [with_coverage(metric, seen) for metric in both]
        return MonitorSummary(tuple(metrics))

    @override
    def end(self, context: MonitorContext) -> None:
        missing = getattr(self.sensors, "missing", {})
        if missing:
            with append_to(context.log) as log:
                log.writelines(f"not measured: {name}: {cause}\n" for name, cause in missing.items())
