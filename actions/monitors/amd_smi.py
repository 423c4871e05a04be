"""Watches AMD GPUs by amdsmi or amd-smi beside the actions, with the records of NvidiaSmiMonitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from actions.monitors.amdgpu_errors import amdgpu_error_of
from actions.monitors.interval import IntervalParameters
from actions.monitors.nvidia_smi import NvidiaSmiMonitor
from agent.component.parameter_types import Seconds  # noqa: TC001 - pydantic reads it
from agent.core.errors import ParseError
from agent.facts import LocalHost
from agent.facts.amdsmi_library import AmdSmiLibrary, load_amdsmi
from agent.facts.nvml_library import CLOCK_EVENTS, GpuReadings, NvmlError, NvmlGpu
from parsers.amd_smi import parse_text
from parsers.amd_smi.documents import read_documents
from parsers.nvidia_smi.readings import READINGS
from parsers.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from actions.monitors.kernel_log import KernelLog
    from agent.component.component import ComponentParameters
    from agent.core.records import Metric
    from agent.facts import Host

TIMEOUT_S = 10.0
"""Time limit in seconds for amd-smi: ``static`` can hang for ever before ROCm 7.14."""
_STATIC = ("amd-smi", "static", "--asic", "--bus", "--driver", "--limit", "--json")
_METRIC = ("amd-smi", "metric", "--json")
_KNOWN = frozenset(reading.name for reading in READINGS)
_HELD_DOWN = 0.5
"""Share of the time since amd-smi's last sample for which a cause must have held the clocks down."""
_EVENTS = {
    "throttle_ppt": "sw_power_cap",
    "throttle_prochot": "hw_thermal_slowdown",
    "throttle_socket_thermal": "sw_thermal_slowdown",
    "throttle_vr_thermal": "sw_thermal_slowdown",
    "throttle_hbm_thermal": "sw_thermal_slowdown",
}
"""AMD's causes, and the clock events of NVML that mean the same for a result."""
_COUNTERS = {
    "energy_consumed": "energy",
    "xgmi_transmitted": "xgmi_transmitted",
    "xgmi_received": "xgmi_received",
}
"""amd-smi's totals since amdgpu was loaded, by the names of the rates that are made of them."""
_BITS = {name: bit for bit, name in CLOCK_EVENTS.items()}


class AmdSmiSensors:
    """Readings of all GPUs by the library amdsmi; where it is not, by one amd-smi process for each look.

    Args:
        host: the door through which amd-smi is run.
        load: loads the library; returns None if there is none.

    Raises:
        NvmlError: if amd-smi does not answer.
    """

    def __init__(self, host: Host | None = None, load: Callable[[], ModuleType | None] = load_amdsmi) -> None:
        self._host = host or LocalHost()
        self._metrics: dict[int, list[Metric]] = {}
        self._library = _open(load)
        static = self._library.static() if self._library else self._output(_STATIC)
        try:
            devices = read_documents(plain(static)).devices
        except ParseError as error:
            raise NvmlError(f"amd-smi static: {error.message}", remedy=error.remedy) from error
        told = {device.index: device for device in devices if device.index is not None}
        if not told:
            raise NvmlError("amd-smi lists no GPU", remedy="check that amdgpu is loaded (vcagent doctor)")
        self.driver = next(iter(told.values())).texts.get("driver_version", "")
        self.gpus = tuple(
            NvmlGpu(
                index,
                name=device.texts.get("name", ""),
                bus_id=device.texts.get("pci.bus_id", "").lower(),
            )
            for index, device in sorted(told.items())
        )
        self._limits_watts = {
            index: device.numbers["power_limit"][0]
            for index, device in told.items()
            if "power_limit" in device.numbers
        }

    def read(self, gpu: NvmlGpu, *, slow: bool) -> GpuReadings:
        """Read a GPU; the first call of a round runs amd-smi for all GPUs.

        Args:
            gpu: one of `gpus`.
            slow: unused: amd-smi reports all values together.

        Raises:
            NvmlError: if amd-smi does not answer, or reports nothing about this GPU.
        """
        del slow
        if gpu == self.gpus[0]:
            self._metrics = {}
            self._metrics = self._look()
        found = self._metrics.get(gpu.index)
        if not found:
            raise NvmlError(
                f"amd-smi reports nothing about GPU {gpu.index}", remedy="see amd-smi metric and dmesg"
            )
        prefix = f"gpu{gpu.index}_"
        values = {metric.name.removeprefix(prefix): metric.value for metric in found}
        if gpu.index in self._limits_watts:
            values["power_limit"] = self._limits_watts[gpu.index]
        return _readings(values)

    def close(self) -> None:
        """Forget the last look, and end the library's session."""
        self._metrics = {}
        if self._library:
            self._library.close()
            self._library = None

    def _look(self) -> dict[int, list[Metric]]:
        try:
            output = parse_text(self._library.metric() if self._library else self._output(_METRIC))
        except ParseError as error:
            raise NvmlError(f"amd-smi metric: {error.message}", remedy=error.remedy) from error
        found: dict[int, list[Metric]] = {}
        for metric in output.metrics:
            found.setdefault(int(metric.metadata["gpu_index"]), []).append(metric)
        return found

    def _output(self, command: tuple[str, ...]) -> str:
        text = self._host.output(command, timeout_s=TIMEOUT_S)
        if text is None:
            raise NvmlError(
                f"{' '.join(command[:2])} fails, hangs or is not installed",
                remedy="install amd-smi-lib of ROCm; run the command by hand to see what it says",
            )
        return text


def _open(load: Callable[[], ModuleType | None]) -> AmdSmiLibrary | None:
    """Open the amdsmi library. Return None if it is missing or fails: amd-smi then reports the reason."""
    api = load()
    try:
        return AmdSmiLibrary(api) if api else None
    except NvmlError:
        return None


def _readings(values: Mapping[str, float]) -> GpuReadings:
    gauges = {name: value for name, value in values.items() if name in _KNOWN}
    if "graphics_clock" in gauges:
        # Cases are judged by NVML's name for the clock of the multiprocessors.
        gauges["sm_clock"] = gauges["graphics_clock"]
    gauges |= {name: values[name] for name in ("pcie_bandwidth",) if name in values}
    counters = {name: values[key] for key, name in _COUNTERS.items() if key in values}
    causes = {name: values[name] for name in _EVENTS if name in values}
    events = {_EVENTS[name] for name, share in causes.items() if share >= _HELD_DOWN}
    return GpuReadings(gauges, counters, sum(_BITS[name] for name in events) if causes else None)


class AmdSmiParameters(IntervalParameters):
    """Parameters of the amd-smi interval."""

    interval: Seconds = Field(
        5.0,
        ge=0.1,
        description="Time between two measurements; without the library each starts an amd-smi process.",
    )


class AmdSmiMonitor(NvidiaSmiMonitor):
    """Emit metrics of AMD GPUs at an interval, until the actions have ended.

    Args:
        parameters: its parameters.
        host: the door through which amd-smi is run.
        kernel_log: the source of errors.
        load: loads the library amdsmi; returns None if there is none.
    """

    Parameters = AmdSmiParameters
    source = "amd-smi"
    remedy = "check cooling and power (amd-smi metric --throttle)"
    errors = "errors of amdgpu"
    error_of = staticmethod(amdgpu_error_of)

    def __init__(
        self,
        parameters: ComponentParameters,
        host: Host | None = None,
        kernel_log: KernelLog | None = None,
        load: Callable[[], ModuleType | None] = load_amdsmi,
    ) -> None:
        super().__init__(parameters, lambda: AmdSmiSensors(host, load), kernel_log)
