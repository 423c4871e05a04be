"""NvidiaSmiMonitor with the real nvidia-ml-py; only libnvidia-ml is a stand-in, written in C."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from actions.monitors.history import History
from actions.monitors.interval import IntervalParameters
from actions.monitors.kernel_log import KernelLog
from actions.monitors.nvidia_smi import NvidiaSmiMonitor
from actions.monitors.steady_clock import SteadyClock
from agent.component.component import MonitorContext
from agent.facts import Facts
from agent.facts.nvml_library import NvmlError, NvmlSession
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.component.component import MonitorSummary
    from agent.core.records import Metric
    from tests.lab.nvml.nvml_stand_in import NvmlStandIn

XID = "3,2,200,-;NVRM: Xid (PCI:0000:11:00): 48, pid=7, DBE (double bit error)\n"


class Watch:
    """A monitor that takes measurements on demand, 20 ms after each other by its clock and the GPUs'."""

    def __init__(self, folder: Path, gpus: NvmlStandIn) -> None:
        self.gpus = gpus
        self.now_s = 1000.0
        gpus.set(time=round(self.now_s * 1e6))
        self.emitted: list[Metric] = []
        self.kmsg = folder / "kmsg"
        self.kmsg.write_text("")
        self.context = MonitorContext(
            self._emit, threading.Event(), Facts(None, {}), LocalProcesses("r"), folder / "monitor.log"
        )
        parameters = IntervalParameters(interval=0.1)
        self.monitor = NvidiaSmiMonitor(parameters, kernel_log=KernelLog(self.kmsg))
        self.monitor.clock = SteadyClock(lambda: self.now_s, lambda: self.now_s)
        self.began_s = self.now_s
        self.monitor.begin(self.context)

    def _emit(self, metrics: Sequence[Metric]) -> None:
        self.emitted += metrics

    def measure(self, times: int = 1, *, slow: bool = False) -> None:
        for _ in range(times):
            self.now_s += 0.02
            self.gpus.set(time=round(self.now_s * 1e6))
            self.monitor.measure(self.context, slow=slow)

    def summary(self) -> MonitorSummary:
        return self.monitor.sum_up(self.began_s, self.now_s)

    def summed_up(self) -> dict[str, float]:
        return {metric.name: metric.value for metric in self.summary().metrics}

    def values(self, name: str) -> list[float]:
        self.monitor._emit(self.context)
        return [metric.value for metric in self.emitted if metric.name == name]


@pytest.fixture
def watch(nvml_stand_in: NvmlStandIn, tmp_path: Path) -> Any:
    watched = Watch(tmp_path, nvml_stand_in)
    yield watched
    watched.monitor.end(watched.context)


def test_readings_are_in_base_units(nvml_stand_in: NvmlStandIn) -> None:
    with NvmlSession() as session:
        assert [gpu.bus_id for gpu in session.gpus] == ["0000:10:00.0", "0000:11:00.0"]
        fast = session.read(session.gpus[1], slow=False)
        slow = session.read(session.gpus[1], slow=True)
    assert fast.gauges == {
        "utilization": 0.97,
        "memory_utilization": 0.4,
        "memory_used": 70_000_000_000,
        "temperature": 61,
        "sm_clock": 1.755e9,
        "power_draw_instant": 410,
    }
    assert slow.gauges["power_limit"] == 500
    assert slow.gauges["pcie_received"] == 2_000_000
    assert slow.gauges["memory_total"] == 85520809984
    assert set(slow.counters) == {"energy", "nvlink_transmitted", "nvlink_received"}


def test_an_older_driver_tells_less(nvml_stand_in: NvmlStandIn) -> None:
    nvml_stand_in.set(old=1)
    with NvmlSession() as session:
        readings = session.read(session.gpus[0], slow=False)
    assert readings.gauges["power_draw_average"] == 400
    assert "energy" not in readings.counters


def test_records_and_summary(watch: Watch) -> None:
    watch.measure(25, slow=True)
    summed = watch.summed_up()
    assert summed["gpu0_utilization_mean"] == pytest.approx(0.97)
    assert summed["gpu1_power_draw_instant_max"] == 410
    assert summed["gpu1_nvlink_received_mean"] == pytest.approx(1_024_000_000)
    assert summed["gpu_energy"] == pytest.approx(0.5 * 810)
    assert len(watch.values("gpu0_utilization")) == 25
    assert len(watch.values("gpu0_power_limit")) == 1  # it did not change
    known = {metric.name: metric for metric in watch.emitted}
    assert known["gpu0_utilization"].metadata == {
        "gpu_index": 0,
        "virtualclient_name": "gpu0_%_utilization",
    }
    assert known["gpu1_memory_total"].metadata["gpu_pci_bus_id"] == "0000:11:00.0"
    assert watch.summary().warnings == ()


def test_the_mean_power_is_energy_by_time_and_not_the_mean_of_instants(
    watch: Watch, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set(watts=550)  # the value of each reading; the energy counter shows 400 W
    watch.measure(25)
    summed = watch.summed_up()
    assert summed["gpu0_power_mean"] == pytest.approx(400)
    assert summed["gpu0_power_draw_instant_max"] == 550
    assert "gpu0_power_draw_instant_mean" not in summed


def test_a_power_far_above_the_limit_is_set_aside(watch: Watch, nvml_stand_in: NvmlStandIn) -> None:
    watch.measure(2, slow=True)
    nvml_stand_in.set(watts=921)
    watch.measure(3)
    nvml_stand_in.set(watts=0)
    watch.measure(2)
    assert watch.summed_up()["gpu0_power_draw_instant_max"] == 400
    assert 921 not in watch.values("gpu0_power_draw_instant")
    assert set(watch.values("gpu0_power_set_aside")) == {921}
    told = "readings of power were set aside, the highest 921 W; its limit is 700 W"
    assert [warning.endswith(told) for warning in watch.summary().warnings] == [True, True]


def test_steps_of_the_energy_counter_between_short_rows_are_kept(
    watch: Watch, nvml_stand_in: NvmlStandIn
) -> None:
    watch.measure(25)  # 20 ms each; the counter makes a step each 100 ms, of five times that energy
    assert watch.summary().warnings == ()
    assert watch.summed_up()["gpu0_power_mean"] == pytest.approx(400)


@pytest.mark.parametrize(("clock", "is_told"), [(1947, False), (1600, True)])
def test_the_power_limit_is_told_by_the_clock_that_it_took(
    watch: Watch,
    nvml_stand_in: NvmlStandIn,
    clock: int,
    is_told: bool,  # noqa: FBT001
) -> None:
    nvml_stand_in.set(events=0x4, clock=clock)
    watch.measure(slow=True)
    watch.measure(2)
    warnings = watch.summary().warnings
    assert [f"at {clock} of 1980 MHz" in warning for warning in warnings] == [True] * is_told


def test_what_is_read_seldom_holds_until_it_is_read_again(watch: Watch) -> None:
    watch.measure(slow=True)
    watch.measure(8)
    (found,) = [metric for metric in watch.summary().metrics if metric.name == "gpu0_memory_temperature_mean"]
    assert found.value == 70
    assert found.metadata["coverage"] > 0.5


@pytest.mark.parametrize(
    ("missed_s", "is_enough", "warning"),
    [
        (0.4, True, ""),
        (4, True, "the GPUs: watched for 10.0 s of 14.0 s (71%): energy and means are of that time alone"),
        (20, False, "the GPUs: watched for 10.0 s of 30.0 s (33%): energy and means are left out"),
    ],
)
def test_energy_and_means_carry_the_share_of_the_case_that_they_are_of(
    watch: Watch,
    missed_s: float,
    is_enough: bool,  # noqa: FBT001
    warning: str,
) -> None:
    history = watch.monitor.history = History()
    for second in range(10):
        names = [f"{gpu} {name}" for gpu in (0, 1) for name in ("utilization", "energy", "temperature")]
        history.add(second, second + 1, dict.fromkeys(names, 400.0))
    found = watch.monitor._with_coverage(-missed_s, 10)
    metrics = {metric.name: metric for metric in found.metrics}
    for name in ("gpu_energy", "gpu0_power_mean", "gpu0_utilization_mean", "gpu_utilization_mean"):
        assert (name in metrics) is is_enough
    seen = 10 / (10 + missed_s)
    assert metrics["nvidiasmi_coverage"].value == pytest.approx(seen)
    assert metrics["gpu0_temperature_max"].metadata["coverage"] == pytest.approx(seen, abs=1e-4)
    if is_enough:
        assert metrics["gpu0_power_mean"].value == 400
        assert metrics["gpu_energy"].value == 8000
        assert metrics["gpu_energy"].metadata["coverage"] == pytest.approx(seen, abs=1e-4)
    assert [text for text in found.warnings if "watched for" in text] == [warning] * bool(warning)


def test_energy_and_means_of_gpus_need_all_of_them(watch: Watch, nvml_stand_in: NvmlStandIn) -> None:
    watch.measure(2)
    nvml_stand_in.set(lost=1)
    watch.measure(12)
    summed = watch.summed_up()
    assert "gpu0_energy" in summed
    assert not {"gpu1_energy", "gpu1_power_mean", "gpu_energy"} & set(summed)


def test_a_gpu_that_is_lost_before_a_case_begins_leaves_no_energy_of_all(
    watch: Watch, nvml_stand_in: NvmlStandIn
) -> None:
    watch.measure(2)
    nvml_stand_in.set(lost=1)
    watch.measure(2)
    watch.began_s = watch.now_s
    watch.measure(3)
    summed = watch.summed_up()
    assert "gpu0_energy" in summed
    assert "gpu_energy" not in summed


def test_energy_is_added_up_where_the_gpu_does_not_count_it(
    nvml_stand_in: NvmlStandIn, tmp_path: Path
) -> None:
    nvml_stand_in.set(old=1)
    watch = Watch(tmp_path, nvml_stand_in)
    watch.measure(4)
    assert watch.summed_up()["gpu0_energy"] == pytest.approx(0.08 * 400)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (0x4, "GPU 0, 1 were held down by the power limit for up to 100% of the time (sw_power_cap): "),
        (0x4, "MHz; its limit is set to 500 W, it was delivered with 700 W (nvidia-smi --power-limit=700)"),
        (0x40 | 0x8, "held down by the hardware, because it is too hot"),
        (0x80 | 0x8, "held down by the power brake"),
        (0x8, "held down by the hardware (hw_slowdown)"),
        (0x20, "held down by the driver, because it or its memory is hot"),
    ],
)  # fmt: skip
def test_throttling_spoils_a_figure(
    watch: Watch, nvml_stand_in: NvmlStandIn, events: int, expected: str
) -> None:
    nvml_stand_in.set(events=events)
    watch.measure(slow=True)
    watch.measure(2)
    (warning,) = watch.summary().warnings
    assert expected in warning


def test_an_idle_or_set_clock_does_not(watch: Watch, nvml_stand_in: NvmlStandIn) -> None:
    nvml_stand_in.set(events=0x1 | 0x2)
    watch.measure(3)
    assert watch.summary().warnings == ()
    assert watch.values("gpu0_clock_event_gpu_idle") == [1]
    nvml_stand_in.set(events=0)
    watch.measure()
    assert watch.values("gpu0_clock_event_gpu_idle") == [1, 0]


def test_nvml_goes_and_comes_back_as_a_gap_not_as_zeros(watch: Watch, nvml_stand_in: NvmlStandIn) -> None:
    watch.measure(2)
    before = len(watch.values("gpu0_utilization"))
    nvml_stand_in.set(gone=1)
    watch.measure(3)
    assert len(watch.values("gpu0_utilization")) == before
    assert "NVML did not answer" in watch.summary().warnings[0]
    nvml_stand_in.set(gone=0)
    watch.measure(12)
    (gap_s,) = watch.values("gpu_not_measured")
    assert gap_s == pytest.approx(0.06)
    assert len(watch.values("gpu0_utilization")) > before
    assert min(watch.values("gpu0_utilization")) == 0.97
    (warning,) = watch.summary().warnings
    assert "NVML did not answer" in warning
    # NVML's counter starts again, and makes two steps of 0.1 s until the end.
    assert watch.summed_up()["gpu0_energy"] == pytest.approx(0.2 * 400)
    log = watch.context.log.read_text()
    assert "NVML does not answer: GPU 0: Driver Not Loaded" in log
    assert log.count("\n") == 2


def test_one_lost_gpu_leaves_the_others(watch: Watch, nvml_stand_in: NvmlStandIn) -> None:
    watch.measure()
    nvml_stand_in.set(lost=1)
    watch.measure(3)
    assert len(watch.values("gpu0_utilization")) == 4
    assert len(watch.values("gpu1_utilization")) < 4
    (warning,) = watch.summary().warnings
    assert warning.startswith("GPU 1 did not answer")
    nvml_stand_in.set(lost=-1)
    watch.measure(2)
    assert len(watch.values("gpu1_not_measured")) == 1


def test_no_driver_at_all(nvml_stand_in: NvmlStandIn, tmp_path: Path) -> None:
    nvml_stand_in.set(gone=1)
    with pytest.raises(NvmlError, match="Driver Not Loaded"):
        NvmlSession()
    watch = Watch(tmp_path, nvml_stand_in)
    watch.measure(3, slow=True)
    assert watch.summary().metrics == ()
    assert "NVML did not answer" in watch.summary().warnings[0]
    watch.monitor.end(watch.context)
    assert [metric.name for metric in watch.emitted] == ["gpu_not_measured"]


def test_errors_are_told_with_the_case_that_ran(watch: Watch, nvml_stand_in: NvmlStandIn) -> None:
    watch.measure(slow=True)
    nvml_stand_in.set(ecc=2)
    with watch.kmsg.open("a") as kmsg:
        kmsg.write(XID)
    watch.measure(2, slow=True)
    assert set(watch.summary().warnings) == {
        "GPU 0: 2 memory errors were not corrected",
        "GPU 1: 2 memory errors were not corrected",
        "GPU 1: Xid 48 (uncorrectable double-bit memory error) of 0000:11:00.0",
    }
    (xid,) = [metric for metric in watch.emitted if metric.name == "gpu1_xid"]
    assert (xid.value, xid.unit) == (1, "count")
    assert (xid.metadata["xid"], xid.metadata["cause"]) == (48, "hardware")
    later = watch.monitor.sum_up(watch.now_s + 0.01, watch.now_s + 1)
    assert later.warnings == ()


def test_virtualclient_s_parameters() -> None:
    given = {"Scenario": "S", "MonitorFrequency": "00:01:00", "MonitorWarmupPeriod": "00:01:00"}
    assert IntervalParameters.model_validate(given).interval == 60
