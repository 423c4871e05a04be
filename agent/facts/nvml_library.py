"""NVML, NVIDIA's management library: the only module that uses nvidia-ml-py.

Units and meanings are those of NVIDIA's NVML API reference (docs.nvidia.com/deploy/nvml-api) and of nvml.h.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent.core.errors import HostError
from agent.facts.gpus import pci_bus_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

CLOCK_EVENTS: Mapping[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Reasons for the current clocks: the bits of nvmlClocksEventReasons (throttle reasons until 535)."""

_NOT_SUPPORTED = frozenset({3, 4, 13, 25, 26})
"""Permanent errors: not supported, no permission, no such function, other structure version, deprecated."""
_GONE = frozenset({1, 2, 9, 15, 16, 18})
"""Temporary errors: uninitialised, stale handle, no driver, GPU lost, reset required, another driver."""
_INVALID_ARGUMENT = 2

_ALL_LINKS = 0xFFFFFFFF
_VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_WIDE = frozenset({2, 3, 4})
_SM_CLOCK, _MEMORY_CLOCK, _VIDEO_CLOCK, _GRAPHICS_CLOCK = 1, 2, 3, 0


class NvmlError(HostError):
    """NVML, or one GPU, does not answer."""


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU of a session.

    Args:
        index: its index in NVML's order, which is nvidia-smi's.
        name: its name.
        uuid: its UUID.
        bus_id: its PCI address, in sysfs' form.
        default_power_limit_watts: the factory power limit; None if unknown.
        max_sm_clock_hertz: the highest clock of its multiprocessors; None if unknown.
    """

    index: int
    name: str = ""
    uuid: str = ""
    bus_id: str = ""
    default_power_limit_watts: float | None = None
    max_sm_clock_hertz: float | None = None


@dataclass(frozen=True)
class GpuReadings:
    """Readings of one GPU at one moment, in base units; an unknown value is absent.

    Args:
        gauges: states, under the names of ``parsers.nvidia_smi``.
        counters: totals since the driver was loaded: ``energy`` in joules; ``nvlink_transmitted``,
            ``nvlink_received``, ``pcie_transmitted`` and ``pcie_received`` in bytes.
        clock_events: the bits of ``CLOCK_EVENTS``.
    """

    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    clock_events: int | None = None


@dataclass(frozen=True)
class _Field:
    """A field of nvmlDeviceGetFieldValues: one call reads many of them."""

    number: int
    name: str
    factor: float = 1.0
    scope: int = 0
    counter: bool = False
    wide: bool = False
    """True if only a 64-bit value is useful: a 32-bit value wraps within a second."""


_FAST_FIELDS = (
    _Field(186, "power_draw_instant", 1e-3),
    _Field(83, "energy", 1e-3, counter=True),
    _Field(138, "nvlink_transmitted", 1024, _ALL_LINKS, counter=True),
    _Field(139, "nvlink_received", 1024, _ALL_LINKS, counter=True),
    _Field(197, "pcie_transmitted", counter=True, wide=True),
    _Field(198, "pcie_received", counter=True, wide=True),
)
_SLOW_FIELDS = (
    _Field(3, "ecc_volatile_total_corrected_errors"),
    _Field(4, "ecc_volatile_total_uncorrected_errors"),
    _Field(5, "ecc_aggregate_total_corrected_errors"),
    _Field(6, "ecc_aggregate_total_uncorrected_errors"),
    _Field(82, "memory_temperature"),
    _Field(94, "pcie_replays"),
    _Field(142, "remapped_rows_corrected"),
    _Field(143, "remapped_rows_uncorrected"),
    _Field(38, "nvlink_crc_errors"),
    _Field(52, "nvlink_replay_errors"),
    _Field(59, "nvlink_recovery_errors"),
)


def _utilisation(nvml: Any, handle: Any) -> dict[str, float]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"utilization": rates.gpu / 100, "memory_utilization": rates.memory / 100}


def _memory(nvml: Any, handle: Any) -> dict[str, float]:
    # Version 2 does not count the driver's reserved memory as used; neither does nvidia-smi.
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {"memory_used": memory.used}


def _memory_size(nvml: Any, handle: Any) -> dict[str, float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {"memory_total": memory.total, "memory_free": memory.free}


def _temperature(nvml: Any, handle: Any) -> dict[str, float]:
    return {"temperature": nvml.nvmlDeviceGetTemperature(handle, 0)}


def _clock(name: str, kind: int) -> Callable[[Any, Any], dict[str, float]]:
    return lambda nvml, handle: {name: nvml.nvmlDeviceGetClockInfo(handle, kind) * 1e6}


def _power(nvml: Any, handle: Any) -> dict[str, float]:
    return {"power_draw_average": nvml.nvmlDeviceGetPowerUsage(handle) / 1000}


def _power_limit(nvml: Any, handle: Any) -> dict[str, float]:
    return {"power_limit": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000}


def _pcie_link(nvml: Any, handle: Any) -> dict[str, float]:
    return {
        "pcie_generation": nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "pcie_width": nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
    }


def _pcie_rates(nvml: Any, handle: Any) -> dict[str, float]:
    """Return the PCIe rates; each call measures and blocks for 20 ms, and its number is in KB/s."""
    return {
        "pcie_transmitted": nvml.nvmlDeviceGetPcieThroughput(handle, 0) * 1000.0,
        "pcie_received": nvml.nvmlDeviceGetPcieThroughput(handle, 1) * 1000.0,
    }


_FAST = (_utilisation, _memory, _temperature, _clock("sm_clock", _SM_CLOCK))
_SLOW = (
    _memory_size,
    _clock("graphics_clock", _GRAPHICS_CLOCK),
    _clock("memory_clock", _MEMORY_CLOCK),
    _clock("video_clock", _VIDEO_CLOCK),
    _power,
    _power_limit,
    _pcie_link,
)


class NvmlSession:
    """A session with NVML, from its initialisation to its end; not for several threads at once.

    Args:
        pynvml: the module of nvidia-ml-py.

    Raises:
        NvmlError: if there is no driver, or it does not answer.
    """

    def __init__(self, pynvml: Any = None) -> None:
        self._nvml = pynvml or import_module("pynvml")
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise NvmlError(str(error), remedy="see nvidia-smi and dmesg") from error
        self._cannot: set[tuple[int, object]] = set()
        self._fields: dict[tuple[int, bool], tuple[list[_Field], Callable[[Any, Any], Any]]] = {}
        """Readings of each GPU, fast and slow, with the calls for them; unsupported ones are left out."""
        try:
            self.driver = _text(self._nvml.nvmlSystemGetDriverVersion())
            self._handles = [
                self._nvml.nvmlDeviceGetHandleByIndex(index)
                for index in range(self._nvml.nvmlDeviceGetCount())
            ]
            self.gpus = tuple(self._gpu(index, handle) for index, handle in enumerate(self._handles))
        except self._nvml.NVMLError as error:
            self.close()
            raise NvmlError(str(error), remedy="see nvidia-smi and dmesg") from error

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def close(self) -> None:
        """Shut NVML down; ignore an NVML that no longer exists."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return

    def read(self, gpu: NvmlGpu, *, slow: bool) -> GpuReadings:
        """Read a GPU.

        Args:
            gpu: the GPU.
            slow: True to read also values that change rarely or take long.

        Raises:
            NvmlError: if it does not answer, or has no readings.
        """
        handle = self._handles[gpu.index]
        gauges: dict[str, float] = {}
        counters: dict[str, float] = {}
        self._read_fields(gpu, gauges, counters, slow=slow)
        asks = _FAST + _SLOW if slow else _FAST
        for ask in asks:
            gauges.update(self._ask(gpu, ask, handle) or {})
        if not slow and "power_draw_instant" not in gauges:
            gauges.update(self._ask(gpu, _power, handle) or {})
        if slow and "pcie_received" not in counters:
            gauges.update(self._ask(gpu, _pcie_rates, handle) or {})
        events = self._ask(gpu, self._clock_events, handle)
        if not gauges and not counters:
            raise NvmlError(f"GPU {gpu.index} has no readings")
        return GpuReadings(gauges, counters, events["bits"] if events else None)

    def _gpu(self, index: int, handle: Any) -> NvmlGpu:
        default_limit = self._ask(
            NvmlGpu(index), lambda nvml, one: nvml.nvmlDeviceGetPowerManagementDefaultLimit(one), handle
        )
        max_clock = self._ask(
            NvmlGpu(index), lambda nvml, one: nvml.nvmlDeviceGetMaxClockInfo(one, _SM_CLOCK), handle
        )
        bus_id = self._ask(NvmlGpu(index), lambda nvml, one: nvml.nvmlDeviceGetPciInfo(one).busId, handle)
        uuid = self._ask(NvmlGpu(index), lambda nvml, one: nvml.nvmlDeviceGetUUID(one), handle)
        return NvmlGpu(
            index=index,
            name=_text(self._nvml.nvmlDeviceGetName(handle)),
            uuid=_text(uuid or ""),
            bus_id=pci_bus_id(_text(bus_id)) if bus_id else "",
            default_power_limit_watts=default_limit / 1000 if default_limit else None,
            max_sm_clock_hertz=max_clock * 1e6 if max_clock else None,
        )

    @staticmethod
    def _clock_events(nvml: Any, handle: Any) -> dict[str, int]:
        try:
            return {"bits": nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)}
        except nvml.NVMLError_FunctionNotFound:
            return {"bits": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)}

    def _ask(self, gpu: NvmlGpu, ask: Callable[[Any, Any], Any], handle: Any) -> Any:
        """Return the result of a call, or None if the GPU does not support it, now or ever."""
        if (gpu.index, ask) in self._cannot:
            return None
        try:
            return ask(self._nvml, handle)
        except self._nvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code in _GONE:
                raise NvmlError(f"GPU {gpu.index}: {error}") from error
            if code in _NOT_SUPPORTED:
                self._cannot.add((gpu.index, ask))
            return None

    def _read_fields(
        self, gpu: NvmlGpu, gauges: dict[str, float], counters: dict[str, float], *, slow: bool
    ) -> None:
        if (gpu.index, slow) not in self._fields:
            self._fields[gpu.index, slow] = self._fields_to_read(gpu, slow=slow)
        fields, ask = self._fields[gpu.index, slow]
        values = fields and self._ask(gpu, ask, self._handles[gpu.index])
        for one, value in zip(fields, values or (), strict=False):
            if value.nvmlReturn:
                if value.nvmlReturn in _NOT_SUPPORTED or value.nvmlReturn == _INVALID_ARGUMENT:
                    self._leave_out(gpu, one)
                elif value.nvmlReturn in _GONE:
                    raise NvmlError(f"GPU {gpu.index}: {self._nvml.NVMLError(value.nvmlReturn)}")
            elif one.wide and value.valueType not in _WIDE:
                self._leave_out(gpu, one)
            else:
                number = getattr(value.value, _VALUE_TYPES[value.valueType])
                (counters if one.counter else gauges)[one.name] = number * one.factor

    def _fields_to_read(self, gpu: NvmlGpu, *, slow: bool) -> tuple[list[_Field], Callable[[Any, Any], Any]]:
        fields = _FAST_FIELDS + _SLOW_FIELDS if slow else _FAST_FIELDS
        known = [one for one in fields if (gpu.index, one) not in self._cannot]
        wanted = [(one.number, one.scope) for one in known]
        return known, lambda nvml, handle: nvml.nvmlDeviceGetFieldValues(handle, wanted)

    def _leave_out(self, gpu: NvmlGpu, one: _Field) -> None:
        self._cannot.add((gpu.index, one))
        self._fields.clear()


def _text(value: str | bytes) -> str:
    """Return a text; before nvidia-ml-py 12 texts were bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
