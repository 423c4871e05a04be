"""Measures the host beside the actions: processor, memory, disks, network."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field, model_validator

from actions.parameter_types import Seconds  # noqa: TC001 - pydantic reads it
from agent.component import ComponentParameters, Monitor, MonitorContext
from agent.names import canonical
from agent.records import Metric, Relativity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["HostMonitor", "HostMonitorParameters", "PsutilSensors", "Sensors", "Snapshot", "metrics_between"]

SLOW_INTERVAL_S = 10.0
"""Temperatures and frequencies take milliseconds on large hosts: they are read this often at most."""

_VIRTUAL_NICS = ("lo", "veth", "docker", "br-", "virbr", "cni", "flannel")
"""Interfaces whose traffic also passes another one, or none; they count not even where none is a device."""

_CPU_STATES = ("user", "system", "iowait", "irq", "steal")
_IDLE = ("idle", "iowait")


class HostMonitorParameters(ComponentParameters):
    """How often to measure."""

    interval: Seconds = Field(
        1.0, ge=0.1, description="Time between two measurements; MonitorFrequency, too."
    )

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


@dataclass(frozen=True)
class Snapshot:
    """What the sensors said at one moment; what they could not say is None or absent.

    Args:
        at_s: the moment, by a clock that only goes forward.
        cpu_s: seconds spent in each state since boot, summed over all logical cores; guest time is
            within user and nice.
        load_1m: processes that run or wait, averaged over a minute.
        memory: ``used``, ``available``, ``swap_used`` in bytes.
        counters: bytes since boot: ``disk_read``, ``disk_written``, ``network_received``, ``network_sent``.
        temperature_celsius: the hottest sensor of the processor.
        frequency_hz: the mean over all cores.
    """

    at_s: float
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    load_1m: float | None = None
    memory: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    temperature_celsius: float | None = None
    frequency_hz: float | None = None


class Sensors(Protocol):
    """Where snapshots come from."""

    def snapshot(self, *, slow: bool) -> Snapshot:
        """Read the sensors; the slow ones only if ``slow``. Never raises for one that is missing."""


class PsutilSensors:
    """The sensors of this host; what is missing is noted in ``missing``, once, with the cause.

    Args:
        sys: where sysfs is mounted.
    """

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self.missing: dict[str, str] = {}
        self._sys = sys

    def snapshot(self, *, slow: bool) -> Snapshot:
        """See Sensors."""
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
        except Exception as error:  # noqa: BLE001 - a sensor that fails, however it does, never ends a run
            self.missing[name] = f"{type(error).__name__}: {error}"
            return None
        if value is None:
            self.missing[name] = "this host has none"
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
        # Partitions and what is built upon disks (LVM, RAID, loop devices, zram) are no devices of their own.
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
        # A virtual function below a virtual NIC (Azure's accelerated networking) is counted by that one, too.
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
        """Whether a bus carries it, virtio and the like included; a bond, bridge, VLAN or tunnel has none."""
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
    """The metrics of the time between two snapshots: shares and rates over it, states at its end."""
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
        # A counter that went back belongs to a device that was removed.
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
    # Guest time is counted within user and nice already (proc_stat(5)).
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


class HostMonitor(Monitor):
    """Emits what the host does, at an interval, until the actions have ended."""

    Parameters = HostMonitorParameters
    parameters: HostMonitorParameters

    def __init__(self, parameters: ComponentParameters, sensors: Sensors | None = None) -> None:
        super().__init__(parameters)
        self.sensors: Sensors = sensors or PsutilSensors()

    def watch(self, context: MonitorContext) -> None:
        """See Monitor."""
        slow_at = time.monotonic()
        before = self.sensors.snapshot(slow=False)
        due = before.at_s
        stopped = False
        while not stopped:
            due = max(due + self.parameters.interval, time.monotonic())
            # The time up to the end counts, too, so that a short action is seen at all.
            stopped = context.stop.wait(max(0.0, due - time.monotonic()))
            slow = time.monotonic() >= slow_at
            after = self.sensors.snapshot(slow=slow)
            if slow:
                slow_at = after.at_s + SLOW_INTERVAL_S
            if after.at_s > before.at_s:
                self._emit(context, before, after)
            before = after
        self._note_missing(context)

    @staticmethod
    def _emit(context: MonitorContext, before: Snapshot, after: Snapshot) -> None:
        measured = datetime.now(timezone.utc)
        context.emit([replace(metric, timestamp=measured) for metric in metrics_between(before, after)])

    def _note_missing(self, context: MonitorContext) -> None:
        missing = getattr(self.sensors, "missing", {})
        if missing:
            context.log.parent.mkdir(parents=True, exist_ok=True)
            with context.log.open("a", encoding="utf-8") as log:
                log.writelines(f"not measured: {name}: {cause}\n" for name, cause in missing.items())
