from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pytest
from pydantic import ValidationError

from actions.monitors.host import HostMonitor, PsutilSensors, Snapshot, metrics_between
from actions.monitors.interval import IntervalParameters
from agent.component.component import MonitorContext
from agent.facts import Facts
from agent.host.processes import LocalProcesses
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.core.records import Metric

BEFORE = Snapshot(
    at_s=100.0,
    cpu_s={"user": 10.0, "system": 5.0, "idle": 80.0, "iowait": 5.0, "steal": 0.0, "guest": 3.0},
    counters={"disk_read": 1000, "disk_written": 500, "network_received": 10, "network_sent": 10},
)
AFTER = Snapshot(
    at_s=102.0,
    cpu_s={"user": 12.0, "system": 5.5, "idle": 81.0, "iowait": 5.5, "steal": 0.0, "guest": 5.0},
    load_1m=1.5,
    memory={"used": 2000, "available": 3000, "swap_used": 0},
    counters={"disk_read": 3000, "disk_written": 500, "network_received": 0, "network_sent": 30},
    temperature_celsius=55.0,
    frequency_hz=2.5e9,
)


def test_shares_and_rates_between_two_snapshots() -> None:
    metrics = {
        metric.name: (round(metric.value, 6), metric.unit) for metric in metrics_between(BEFORE, AFTER)
    }
    assert metrics == {
        "cpu_utilisation": (0.625, "ratio"),
        "cpu_user": (0.5, "ratio"),
        "cpu_system": (0.125, "ratio"),
        "cpu_iowait": (0.125, "ratio"),
        "cpu_steal": (0.0, "ratio"),
        "load_1m": (1.5, "count"),
        "memory_used": (2000, "bytes"),
        "memory_available": (3000, "bytes"),
        "swap_used": (0, "bytes"),
        "disk_read": (1000, "bytes/s"),
        "disk_written": (0, "bytes/s"),
        "network_sent": (10, "bytes/s"),
        "cpu_temperature": (55.0, "celsius"),
        "cpu_frequency": (2.5e9, "hertz"),
    }


def test_what_was_not_measured_is_absent() -> None:
    assert metrics_between(Snapshot(0.0), Snapshot(1.0)) == []
    assert metrics_between(BEFORE, replace(BEFORE, at_s=101.0, cpu_s=BEFORE.cpu_s, counters={})) == []


class Collected:
    def __init__(self) -> None:
        self.batches: list[Sequence[Metric]] = []
        self.changed = threading.Condition()

    def emit(self, metrics: Sequence[Metric]) -> None:
        with self.changed:
            self.batches.append(metrics)
            self.changed.notify_all()


def watch(monitor: HostMonitor, tmp_path: Path, batches: int) -> tuple[Collected, Path]:
    collected, stop, log = Collected(), threading.Event(), tmp_path / "logs" / "monitor.log"
    context = MonitorContext(collected.emit, stop, Facts(None, {}), LocalProcesses("r"), log)
    thread = threading.Thread(target=monitor.watch, args=(context,))
    thread.start()
    with collected.changed:
        assert collected.changed.wait_for(lambda: len(collected.batches) >= batches, timeout=LIMIT_S)
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    return collected, log


def test_the_real_host_is_measured_until_told_to_stop(tmp_path: Path) -> None:
    monitor = HostMonitor(IntervalParameters.model_validate({"MonitorFrequency": "00:00:00.2"}))
    collected, _ = watch(monitor, tmp_path, batches=3)
    names = {metric.name for batch in collected.batches for metric in batch}
    assert {"cpu_utilisation", "load_1m", "memory_used", "network_received"} <= names
    times = [batch[0].timestamp for batch in collected.batches if batch]
    assert times == sorted(times, key=str)
    assert all(
        0 <= metric.value <= 1 for batch in collected.batches for metric in batch if metric.unit == "ratio"
    )


def test_it_measures_no_more_often_than_it_may(tmp_path: Path) -> None:
    asked = {"MonitorFrequency": "00:00:00.1", "MonitorIterations": 2}
    monitor = HostMonitor(IntervalParameters.model_validate(asked))
    collected, never = Collected(), threading.Event()
    context = MonitorContext(
        collected.emit, never, Facts(None, {}), LocalProcesses("r"), tmp_path / "monitor.log"
    )
    monitor.watch(context)  # ends by itself
    assert len(collected.batches) == 2
    with pytest.raises(ValidationError, match="-1 for no limit"):
        IntervalParameters.model_validate({"MonitorIterations": 0})


class Disk(NamedTuple):
    read_bytes: int
    write_bytes: int


class Nic(NamedTuple):
    bytes_recv: int
    bytes_sent: int


def counters_of(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    disks: dict[str, Disk],
    nics: dict[str, Nic],
    *devices: str,
) -> dict[str, float]:
    """Return the counters of a host with these disks and interfaces, some of them with a device in sysfs."""
    whole = Disk(sum(disk.read_bytes for disk in disks.values()), 0)
    monkeypatch.setattr(psutil, "disk_io_counters", lambda perdisk=False: disks if perdisk else whole)
    monkeypatch.setattr(psutil, "net_io_counters", lambda **_: nics)
    for name in devices:
        (tmp_path / name / "device").mkdir(parents=True)
    return dict(PsutilSensors(tmp_path).snapshot(slow=False).counters)


def test_only_devices_count_not_what_is_built_upon_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disks = dict.fromkeys(
        ["nvme0n1", "nvme0n1p3", "dm-0", "md0", "loop0", "zram0", "cciss/c0d0"], Disk(100, 10)
    )
    nics = {
        "ens1f0": Nic(60, 6),
        "ens1f1": Nic(40, 4),
        **dict.fromkeys(["bond0", "bond0.7", "tailscale0", "lo"], Nic(100, 10)),
    }
    bond = ("class/net/ens1f0", "class/net/ens1f1")
    (tmp_path / "class/net/bond0").mkdir(parents=True)
    for port in bond:
        (tmp_path / port).mkdir(parents=True)
        (tmp_path / port / "master").symlink_to(tmp_path / "class/net/bond0")
    found = counters_of(monkeypatch, tmp_path, disks, nics, "block/nvme0n1", "block/cciss!c0d0", *bond)
    assert found == {"disk_read": 200, "disk_written": 20, "network_received": 100, "network_sent": 10}


def test_a_virtual_function_below_a_virtual_nic_is_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("class/net/eth0", "class/net/enP1s1")
    (tmp_path / names[1]).mkdir(parents=True)
    (tmp_path / names[1] / "master").symlink_to(tmp_path / names[0])
    nics = dict.fromkeys(["eth0", "enP1s1"], Nic(100, 10))
    found = counters_of(monkeypatch, tmp_path, {"sda": Disk(1, 1)}, nics, "block/sda", *names)
    assert (found["network_received"], found["network_sent"]) == (100, 10)


def test_without_any_device_all_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nics = {"eth0": Nic(5, 5), "lo": Nic(9, 9), "docker0": Nic(9, 9)}
    found = counters_of(monkeypatch, tmp_path, {"dm-0": Disk(7, 0)}, nics)
    assert found == {"disk_read": 7, "disk_written": 0, "network_received": 5, "network_sent": 5}


class Broken(PsutilSensors):
    @staticmethod
    def _memory() -> dict[str, float]:
        raise KeyError("MemTotal")

    @staticmethod
    def _temperature() -> float | None:
        return None


def test_a_missing_sensor_is_told_once_and_the_others_go_on(tmp_path: Path) -> None:
    monitor = HostMonitor(IntervalParameters(interval=0.1), Broken())
    collected, log = watch(monitor, tmp_path, batches=2)
    names = {metric.name for batch in collected.batches for metric in batch}
    assert "load_1m" in names
    assert "memory_used" not in names
    lines = log.read_text().splitlines()
    assert "not measured: memory: KeyError: 'MemTotal'" in lines
    assert "not measured: temperature: this host does not have it" in lines
    assert len(lines) == len(set(lines))


def test_a_short_action_is_seen(tmp_path: Path) -> None:
    collected, stop = Collected(), threading.Event()
    stop.set()
    context = MonitorContext(collected.emit, stop, Facts(None, {}), LocalProcesses("r"), tmp_path / "log")
    HostMonitor(IntervalParameters(interval=3600)).watch(context)
    assert len(collected.batches) == 1


def test_a_measurement_is_cheap() -> None:
    sensors = PsutilSensors()
    sensors.snapshot(slow=True)
    began = time.process_time()
    for _ in range(50):
        metrics_between(BEFORE, sensors.snapshot(slow=False))
    # 1 % of a core at the default interval of a second would be 10 ms.
    assert (time.process_time() - began) / 50 < 0.01


@pytest.mark.parametrize("values", [{"interval": 0}, {"MonitorFrequency": "often"}, {"frequency": 1}])
def test_wrong_parameters(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        IntervalParameters.model_validate(values)
