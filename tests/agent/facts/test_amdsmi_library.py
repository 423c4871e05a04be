"""The library amdsmi, by a stand-in with the functions and units of ROCm/amdsmi 7.0.2; no GPU was there."""

from __future__ import annotations

import sys
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from actions.monitors.amd_smi import AmdSmiSensors
from agent.facts.amdsmi_library import load_amdsmi
from agent.facts.nvml_library import NvmlError
from tests.agent.facts.recorded_host import RecordedHost

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class AmdSmiException(Exception):  # noqa: N818 - its name in amdsmi
    """Its root of all errors."""


Clock = Enum("Clock", "GFX MEM VCLK0")
Sensor = Enum("Sensor", "EDGE HOTSPOT VRAM")


class Api:
    """Two MI300X."""

    AmdSmiException = AmdSmiException
    AmdSmiClkType = Clock
    AmdSmiTemperatureType = Sensor
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers: dict[str, Any] = {
            "get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
            "get_gpu_device_bdf": "0000:C1:00.0",
            "get_gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.14.14"},
            "get_power_cap_info": {"power_cap": 750_000_000},
            "get_gpu_activity": {"gfx_activity": 98, "umc_activity": 40, "mm_activity": "N/A"},
            "get_power_info": {
                "socket_power": 600,
                "current_socket_power": 600,
                "average_socket_power": "N/A",
            },
            "get_gpu_vram_usage": {"vram_total": 196592, "vram_used": 1024},
            "get_gpu_total_ecc_count": {
                "correctable_count": 3,
                "uncorrectable_count": 0,
                "deferred_count": 0,
            },
            "get_pcie_info": {
                "pcie_metric": {"pcie_width": 16, "pcie_bandwidth": 80, "pcie_replay_count": 2}
            },
            "get_violation_status": {"per_ppt_pwr": 80, "per_hbm_thrm": "N/A"},
            "get_energy_count": {"energy_accumulator": 1_000_000, "counter_resolution": 15.3},
            "get_link_metrics": {
                "links": [{"read": 10, "write": 20}, {"read": 1, "write": 2}, {"read": "N/A", "write": "N/A"}]
            },
        }

    def amdsmi_init(self) -> None:
        self.calls.append("init")

    def amdsmi_shut_down(self) -> None:
        self.calls.append("shut_down")

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["a", "b"]

    def amdsmi_get_temp_metric(self, _handle: str, sensor: Sensor, _metric: int) -> int:
        if sensor is Sensor.EDGE:  # MI300 has none
            raise AmdSmiException("not supported")
        return 60

    def amdsmi_get_clock_info(self, _handle: str, clock: Clock) -> dict[str, Any]:
        return {"clk": 2100 if clock is Clock.GFX else "N/A", "max_clk": 2100}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("amdsmi_") and name.removeprefix("amdsmi_") in self.answers:
            return lambda _handle: self.answers[name.removeprefix("amdsmi_")]
        raise AttributeError(name)


def test_readings_have_the_names_of_nvml_without_a_process() -> None:
    api: Any = Api()
    sensors = AmdSmiSensors(RecordedHost(), lambda: api)
    assert sensors.driver == "6.14.14"
    assert [(gpu.index, gpu.name, gpu.bus_id) for gpu in sensors.gpus] == [
        (index, "AMD Instinct MI300X", "0000:c1:00.0") for index in (0, 1)
    ]
    readings = sensors.read(sensors.gpus[0], slow=False)
    assert readings.gauges == {
        "utilization": 0.98,
        "memory_utilization": 0.4,
        "temperature": 60,
        "memory_temperature": 60,
        "power_draw_average": 600,
        "power_limit": 750,
        "graphics_clock": 2.1e9,
        "sm_clock": 2.1e9,
        "max_graphics_clock": 2.1e9,
        "max_memory_clock": 2.1e9,
        "memory_total": 196592 * 1024**2,
        "memory_used": 1024**3,
        "pcie_width": 16,
        "pcie_replays": 2,
        "pcie_bandwidth": 10e6,
        "ecc_volatile_total_corrected_errors": 3,
        "ecc_volatile_total_uncorrected_errors": 0,
    }
    assert readings.counters == pytest.approx(
        {"energy": 15.3, "xgmi_received": 11 * 1024, "xgmi_transmitted": 22 * 1024}
    )
    assert readings.clock_events == 0x4
    sensors.close()
    assert api.calls == ["init", "shut_down"]


def test_what_a_version_does_not_have_is_absent() -> None:
    api: Any = Api()
    for name in ("get_link_metrics", "get_violation_status", "get_power_cap_info"):
        del api.answers[name]
    readings = AmdSmiSensors(RecordedHost(), lambda: api).read(
        AmdSmiSensors(RecordedHost(), lambda: api).gpus[0], slow=False
    )
    assert "power_limit" not in readings.gauges
    assert set(readings.counters) == {"energy"}
    assert readings.clock_events is None


def test_the_command_answers_where_the_library_does_not() -> None:
    class NoDriver(Api):
        def amdsmi_init(self) -> None:
            raise AmdSmiException("AMDSMI_STATUS_NOT_INIT")

    api: Any = NoDriver()
    with pytest.raises(NvmlError, match="amd-smi static fails"):
        AmdSmiSensors(RecordedHost(), lambda: api)


@pytest.fixture
def modules() -> Iterator[None]:
    yield
    sys.modules.pop("amdsmi", None)


@pytest.mark.usefixtures("modules")
def test_the_library_of_rocm_is_found(tmp_path: Path) -> None:
    assert load_amdsmi(tmp_path) is None
    broken, whole = (tmp_path / name / "share/amd_smi/amdsmi" for name in ("rocm", "rocm-7.0.2"))
    for folder, text in ((broken, "{}['libamd_smi.so']\n"), (whole, "from .part import amdsmi_init\n")):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(text)
    (whole / "part.py").write_text("def amdsmi_init(): return 7\n")
    module = load_amdsmi(tmp_path)
    assert module
    assert module.amdsmi_init() == 7
    (whole / "part.py").unlink()
    sys.modules.pop("amdsmi.part", None)
    assert load_amdsmi(tmp_path) is None
    assert "amdsmi" not in sys.modules
