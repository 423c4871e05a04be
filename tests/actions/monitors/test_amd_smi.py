"""AmdSmiMonitor with amd-smi's answers, in the format of the outputs in tests/parsers/amd_smi."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from actions.monitors.amd_smi import AmdSmiMonitor, AmdSmiParameters, AmdSmiSensors
from actions.monitors.kernel_log import KernelLog
from actions.monitors.steady_clock import SteadyClock
from agent.component.component import MonitorContext
from agent.facts import Facts
from agent.facts.nvml_library import NvmlError
from agent.host.processes import LocalProcesses
from tests.agent.facts.recorded_host import RecordedHost
from tests.agent.facts.test_amdsmi_library import Api

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agent.core.records import Metric


def static(gpu: int) -> dict[str, Any]:
    return {
        "gpu": gpu,
        "asic": {"market_name": "AMD Instinct MI300X"},
        "bus": {"bdf": f"0000:0{gpu}:00.0"},
        "driver": {"name": "amdgpu", "version": "6.14.14"},
        "limit": {"ppt0": {"socket_power_limit": {"value": 750, "unit": "W"}}},
    }


def metric(gpu: int, *, joules: float = 1000.0, ppt: int = 0, watts: int = 600) -> dict[str, Any]:
    return {
        "gpu": gpu,
        "usage": {"gfx_activity": {"value": 98, "unit": "%"}},
        "power": {"socket_power": {"value": watts, "unit": "W"}},
        "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 60, "unit": "C"}},
        "mem_usage": {"used_vram": {"value": 1024, "unit": "MB"}},
        "energy": {"total_energy_consumption": {"value": joules, "unit": "J"}},
        "throttle": {"ppt_violation_activity": {"value": ppt, "unit": "%"}},
    }


class Host(RecordedHost):
    """amd-smi on a host with two GPUs; its answers can be changed."""

    def __init__(self) -> None:
        super().__init__(outputs={})
        object.__setattr__(
            self, "outputs", {"amd-smi static": json.dumps({"gpu_data": [static(0), static(1)]})}
        )
        self.answer(metric(0), metric(1))

    def answer(self, *gpus: dict[str, Any]) -> None:
        self.outputs["amd-smi metric"] = json.dumps({"gpu_data": gpus})  # type: ignore[index]


def no_library() -> None:
    """Answer as a host without ROCm's amdsmi."""


class Watch:
    """A monitor that takes measurements on demand, 10 ms after each other by its clock."""

    def __init__(self, folder: Path, load: Callable[[], Any] = no_library) -> None:
        self.host, self.emitted = Host(), list[Any]()
        self.log = folder / "monitor.log"
        self.context = MonitorContext(
            self._emit, threading.Event(), Facts(None, {}), LocalProcesses("r"), self.log
        )
        self.kmsg = folder / "kmsg"
        self.kmsg.write_text("")
        self.monitor = AmdSmiMonitor(AmdSmiParameters(), self.host, KernelLog(self.kmsg), load)
        self.now_s = self.began_s = 1000.0
        self.monitor.clock = SteadyClock(lambda: self.now_s, lambda: self.now_s)
        self.monitor.begin(self.context)

    def _emit(self, metrics: Sequence[Metric]) -> None:
        self.emitted += metrics

    def measure(self) -> None:
        self.now_s += 0.01
        self.monitor.measure(self.context, slow=True)


@pytest.fixture
def watch(tmp_path: Path) -> Any:
    watched = Watch(tmp_path)
    yield watched
    watched.monitor.end(watched.context)


def test_readings_have_the_names_of_nvml() -> None:
    sensors = AmdSmiSensors(Host(), no_library)
    assert sensors.driver == "6.14.14"
    assert [(gpu.index, gpu.name, gpu.bus_id) for gpu in sensors.gpus] == [
        (0, "AMD Instinct MI300X", "0000:00:00.0"),
        (1, "AMD Instinct MI300X", "0000:01:00.0"),
    ]
    readings = sensors.read(sensors.gpus[0], slow=False)
    assert readings.gauges == {
        "utilization": 0.98,
        "power_draw_average": 600,
        "power_limit": 750,
        "temperature": 60,
        "graphics_clock": 2.1e9,
        "sm_clock": 2.1e9,
        "memory_used": 1024**3,
    }
    assert readings.counters == {"energy": 1000}
    assert readings.clock_events == 0


def test_a_power_limit_that_holds_the_clocks_down_is_a_clock_event() -> None:
    host = Host()
    host.answer(metric(0, ppt=80), metric(1, ppt=10))
    sensors = AmdSmiSensors(host, no_library)
    assert [sensors.read(gpu, slow=False).clock_events for gpu in sensors.gpus] == [0x4, 0]


def test_records_and_summary(watch: Watch) -> None:
    watch.host.answer(metric(0, joules=1000.25, ppt=100), metric(1, joules=1000.25))
    watch.measure()
    summary = watch.monitor.sum_up(watch.began_s, watch.now_s)
    summed = {item.name: item.value for item in summary.metrics}
    assert summed["gpu0_utilization_max"] == pytest.approx(0.98)
    assert {"gpu0_power_draw_average", "gpu1_temperature", "gpu0_clock_event_sw_power_cap"} <= {
        item.name for item in watch.emitted
    }


def test_one_process_reads_all_gpus() -> None:
    asked: list[str] = []

    class Counting(Host):
        def output(self, command: Sequence[str], **options: Any) -> str | None:
            asked.append(command[1])
            return super().output(command, **options)

    sensors = AmdSmiSensors(Counting(), no_library)
    for _ in range(3):
        for gpu in sensors.gpus:
            sensors.read(gpu, slow=False)
    assert asked == ["static", "metric", "metric", "metric"]


def test_an_amd_smi_that_fails_is_a_gap_and_no_zero(watch: Watch) -> None:
    del watch.host.outputs["amd-smi metric"]  # type: ignore[attr-defined]
    watch.measure()
    assert "amd-smi does not answer: amd-smi metric fails" in watch.log.read_text()
    watch.host.answer(metric(0), metric(1))
    watch.measure()
    watch.measure()
    assert "amd-smi answers again" in watch.log.read_text()
    gaps = [item for item in watch.emitted if item.name == "gpu_not_measured"]
    assert len(gaps) == 1


def test_a_gpu_that_is_missing_is_silent_alone() -> None:
    host = Host()
    host.answer(metric(0))
    sensors = AmdSmiSensors(host, no_library)
    assert sensors.read(sensors.gpus[0], slow=False).gauges
    with pytest.raises(NvmlError, match="nothing about GPU 1"):
        sensors.read(sensors.gpus[1], slow=False)


@pytest.mark.parametrize(
    ("text", "what"),
    [("[]", "lists no GPU"), ('{"gpu_data": [{"gpu": 0', "was cut"), (None, "hangs or is not installed")],
)
def test_an_amd_smi_that_is_of_no_use_is_told_with_a_remedy(text: str | None, what: str) -> None:
    outputs = {} if text is None else {"amd-smi static": text}
    with pytest.raises(NvmlError, match=what) as refusal:
        AmdSmiSensors(RecordedHost(outputs=outputs))
    assert refusal.value.remedy


def test_errors_of_amdgpu_are_told_with_the_case_that_ran(watch: Watch) -> None:
    with watch.kmsg.open("a") as kmsg:
        kmsg.write("3,2,200,-;amdgpu 0000:01:00.0: amdgpu: GPU reset begin!\n")
        kmsg.write(
            "3,3,201,-;[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=5\n"
        )
    watch.measure()
    summary = watch.monitor.sum_up(watch.began_s, watch.now_s)
    assert (
        "GPU 1: amdgpu reset (GPU is reset, which ends all programs on it) of 0000:01:00.0"
        in summary.warnings
    )
    errors = {item.name: item for item in watch.emitted if item.name.endswith("kernel_error")}
    assert set(errors) == {"gpu1_kernel_error", "gpu_kernel_error"}
    assert errors["gpu1_kernel_error"].metadata["gpu_index"] == 1
    assert "pci_bus_id" not in errors["gpu_kernel_error"].metadata


def test_data_over_xgmi_and_pcie_are_rates(tmp_path: Path) -> None:
    api = Api()
    watch = Watch(tmp_path, lambda: api)
    api.answers["get_link_metrics"] = {"links": [{"read": 1_000_000, "write": 2_000_000}]}
    watch.measure()  # the counters were read before and after the first 5 ms
    summary = watch.monitor.sum_up(watch.began_s, watch.began_s + 0.005)
    watch.monitor.end(watch.context)
    emitted = {item.name: item for item in watch.emitted}
    assert emitted["gpu0_xgmi_transmitted"].value > emitted["gpu0_xgmi_received"].value > 0
    assert emitted["gpu0_xgmi_received"].unit == "bytes/s"
    assert emitted["gpu1_pcie_bandwidth"].value == 10e6
    assert {"gpu0_xgmi_transmitted_mean", "gpu0_pcie_bandwidth_mean"} <= {
        item.name for item in summary.metrics
    }
