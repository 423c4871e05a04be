"""Monitor AMD GPUs with amd-smi while actions run, with the records of NvidiaSmiMonitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field
from typing_extensions import override

from actions.monitors.interval import IntervalParameters
from actions.monitors.nvidia_smi import NvidiaSmiMonitor
from agent.component.parameter_types import Seconds  # noqa: TC001 - pydantic reads it
from agent.core.errors import ParseError
from agent.facts import LocalHost
from agent.facts.nvml_library import CLOCK_EVENTS, GpuReadings, NvmlError, NvmlGpu
from parsers.amd_smi import parse_text
from parsers.amd_smi.documents import read_documents
from parsers.nvidia_smi.readings import READINGS
from parsers.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.component import ComponentParameters, MonitorContext
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
"""Clock events of NVML with the same meaning, by AMD's causes."""
_BITS = {name: bit for bit, name in CLOCK_EVENTS.items()}


class AmdSmiSensors:
    """Readings of all GPUs, with one amd-smi process per round.

    Args:
        host: runs amd-smi.

    Raises:
        NvmlError: if amd-smi does not answer.
    """

    def __init__(self, host: Host | None = None) -> None:
        self._host = host or LocalHost()
        self._metrics: dict[int, list[Metric]] = {}
        try:
            devices = read_documents(plain(self._output(_STATIC))).devices
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
        """Discard the readings of the last round."""
        self._metrics = {}

    def _look(self) -> dict[int, list[Metric]]:
        try:
            output = parse_text(self._output(_METRIC))
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


def _readings(values: Mapping[str, float]) -> GpuReadings:
    gauges = {name: value for name, value in values.items() if name in _KNOWN}
    if "graphics_clock" in gauges:
        # Cases are judged by NVML's name for the clock of the multiprocessors.
        gauges["sm_clock"] = gauges["graphics_clock"]
    counters = {"energy": values["energy_consumed"]} if "energy_consumed" in values else {}
    causes = {name: values[name] for name in _EVENTS if name in values}
    events = {_EVENTS[name] for name, share in causes.items() if share >= _HELD_DOWN}
    return GpuReadings(gauges, counters, sum(_BITS[name] for name in events) if causes else None)


class AmdSmiParameters(IntervalParameters):
    """Parameters of the amd-smi interval."""

    interval: Seconds = Field(
        5.0, ge=0.1, description="Time between two measurements; each starts an amd-smi process."
    )


class AmdSmiMonitor(NvidiaSmiMonitor):
    """Emit metrics of AMD GPUs at an interval, until the actions have ended.

    Args:
        parameters: the parameters of the monitor.
        host: runs amd-smi.
    """

    Parameters = AmdSmiParameters
    source = "amd-smi"
    remedy = "check cooling and power (amd-smi metric --throttle)"

    def __init__(self, parameters: ComponentParameters, host: Host | None = None) -> None:
        super().__init__(parameters, lambda: AmdSmiSensors(host))

    @override
    def watch_errors(self, context: MonitorContext) -> None:
        """Do nothing: Xid errors in the kernel log are NVIDIA's."""
