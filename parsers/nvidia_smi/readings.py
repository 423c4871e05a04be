"""The numbers that nvidia-smi reports for a GPU: one table of names, units and locations.

Column names are those of ``nvidia-smi --help-query-gpu``; elements those of ``nvidia-smi -q -x``.
VirtualClient's names are those of its NvidiaSmiResultsParser.cs, so that existing dashboards still work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity

if TYPE_CHECKING:
    from collections.abc import Mapping

# nvidia-smi's unit: the base unit, and the factor for nvidia-smi's number
UNITS: dict[str, tuple[str, float]] = {
    "%": ("ratio", 0.01),
    "W": ("watts", 1),
    "C": ("celsius", 1),
    "MHz": ("hertz", 1_000_000),
    "KiB": ("bytes", 1024),
    "MiB": ("bytes", 1024**2),
    "GiB": ("bytes", 1024**3),
    "Mb/s": ("bytes/s", 1000**2 / 8),
    "KB/s": ("bytes/s", 1000),
    "MB/s": ("bytes/s", 1000**2),
    "GB/s": ("bytes/s", 1000**3),
    "us": ("seconds", 1e-6),
    "ms": ("seconds", 1e-3),
}
_ABSENT = {"", "n/a", "[n/a]", "not supported", "[not supported]", "none", "unknown error", "[unknown error]"}
_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z%/]*)", re.ASCII)

LOWER, UNDEFINED = Relativity.LOWER, Relativity.UNDEFINED


@dataclass(frozen=True, slots=True)
class Reading:
    """One number of a GPU.

    Args:
        name: the metric's name, without the GPU.
        columns: the query's columns that have it; the first existing one counts.
        elements: the paths below ``<gpu>`` in XML, drivers 418 to 590; the first existing one counts.
        unit: nvidia-smi's unit if it writes none.
        virtualclient: VirtualClient's name without the GPU, empty if it has none.
        relativity: which direction is better.
    """

    name: str
    columns: tuple[str, ...]
    elements: tuple[str, ...] = ()
    unit: str = "count"
    virtualclient: str = ""
    relativity: Relativity = UNDEFINED


def _ecc(kind: str, when: str, where: str, virtualclient: str, *elements: str) -> Reading:
    column = f"ecc.errors.{kind}.{when}.{where}"
    name = f"ecc_{when}_{where}_{kind}_errors"
    return Reading(name, (column,), elements, "count", virtualclient, LOWER)


_POWER, _MEMORY_POWER = "gpu_power_readings", "gpu_memory_power_readings"

READINGS = (
    Reading("utilization", ("utilization.gpu",), ("utilization/gpu_util",), "%",
            "%_utilization", UNDEFINED),
    Reading("memory_utilization", ("utilization.memory",), ("utilization/memory_util",), "%",
            "%_memory_utilization", UNDEFINED),
    Reading("temperature", ("temperature.gpu",), ("temperature/gpu_temp",), "C",
            "temperature", LOWER),
    Reading("memory_temperature", ("temperature.memory",), ("temperature/memory_temp",), "C",
            "memory_temperature", LOWER),
    Reading("power_draw_average", ("power.draw.average", "power.draw"),
            (f"{_POWER}/average_power_draw", f"{_POWER}/power_draw", "power_readings/power_draw"), "W",
            "power_draw_average", LOWER),
    Reading("graphics_clock", ("clocks.current.graphics", "clocks.gr"), ("clocks/graphics_clock",), "MHz",
            "graphics_clock_speed"),
    Reading("sm_clock", ("clocks.current.sm", "clocks.sm"), ("clocks/sm_clock",), "MHz",
            "streaming_multiprocessor_clock_speed"),
    Reading("video_clock", ("clocks.current.video", "clocks.video"), ("clocks/video_clock",), "MHz",
            "video_clock_speed"),
    Reading("memory_clock", ("clocks.current.memory", "clocks.mem"), ("clocks/mem_clock",), "MHz",
            "memory_clock_speed"),
    Reading("memory_total", ("memory.total",), ("fb_memory_usage/total",), "MiB",
            "memory_total"),
    Reading("memory_free", ("memory.free",), ("fb_memory_usage/free",), "MiB", "memory_free"),
    Reading("memory_used", ("memory.used",), ("fb_memory_usage/used",), "MiB", "memory_used"),
    Reading("power_draw_instant", ("power.draw.instant",), (f"{_POWER}/instant_power_draw",), "W",
            "instant_power_draw", LOWER),
    Reading("pcie_generation", ("pcie.link.gen.gpucurrent", "pcie.link.gen.current"),
            ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",), "generation",
            "pcie_link_gen_current"),
    Reading("pcie_width", ("pcie.link.width.current",),
            ("pci/pci_gpu_link_info/link_widths/current_link_width",), "lanes",
            "pcie_link_width_current"),
    _ecc("corrected", "volatile", "device_memory", "ecc_volatile_device_memory_corrected_errors",
         "ecc_errors/volatile/single_bit/device_memory"),
    _ecc("corrected", "volatile", "dram", "ecc_volatile_dram_corrected_errors",
         "ecc_errors/volatile/dram_correctable"),
    _ecc("corrected", "volatile", "sram", "ecc_volatile_sram_corrected_errors",
         "ecc_errors/volatile/sram_correctable"),
    _ecc("corrected", "volatile", "total", "ecc_total_corrected_volatile_errors",
         "ecc_errors/volatile/single_bit/total"),
    _ecc("corrected", "aggregate", "device_memory", "ecc_aggregate_device_memory_corrected_errors",
         "ecc_errors/aggregate/single_bit/device_memory"),
    _ecc("corrected", "aggregate", "dram", "ecc_aggregate_dram_corrected_errors",
         "ecc_errors/aggregate/dram_correctable"),
    _ecc("corrected", "aggregate", "sram", "ecc_aggregate_sram_corrected_errors",
         "ecc_errors/aggregate/sram_correctable"),
    _ecc("corrected", "aggregate", "total", "ecc_aggregate_total_corrected_errors",
         "ecc_errors/aggregate/single_bit/total"),
    _ecc("uncorrected", "volatile", "device_memory", "ecc_volatile_device_memory_uncorrected_errors",
         "ecc_errors/volatile/double_bit/device_memory"),
    _ecc("uncorrected", "volatile", "dram", "ecc_volatile_dram_uncorrected_errors",
         "ecc_errors/volatile/dram_uncorrectable"),
    _ecc("uncorrected", "volatile", "sram", "ecc_volatile_sram_uncorrected_errors"),
    _ecc("uncorrected", "volatile", "total", "ecc_total_uncorrected_volatile_errors",
         "ecc_errors/volatile/double_bit/total"),
    _ecc("uncorrected", "aggregate", "device_memory", "ecc_aggregate_device_memory_uncorrected_errors",
         "ecc_errors/aggregate/double_bit/device_memory"),
    _ecc("uncorrected", "aggregate", "dram", "ecc_aggregate_dram_uncorrected_errors",
         "ecc_errors/aggregate/dram_uncorrectable"),
    _ecc("uncorrected", "aggregate", "sram", "ecc_aggregate_sram_uncorrected_errors"),
    _ecc("uncorrected", "aggregate", "total", "ecc_aggregate_total_uncorrected_errors",
         "ecc_errors/aggregate/double_bit/total"),
    Reading("power_limit", ("power.limit", "enforced.power.limit"),
            (f"{_POWER}/current_power_limit", f"{_POWER}/power_limit", "power_readings/power_limit"), "W"),
    Reading("memory_power_draw", (), (f"{_MEMORY_POWER}/average_power_draw", f"{_MEMORY_POWER}/power_draw"),
            "W", relativity=LOWER),
    Reading("memory_reserved", ("memory.reserved",), ("fb_memory_usage/reserved",), "MiB"),
    Reading("fan_speed", ("fan.speed",), ("fan_speed",), "%"),
    Reading("max_graphics_clock", ("clocks.max.graphics",), ("max_clocks/graphics_clock",), "MHz"),
    Reading("max_sm_clock", ("clocks.max.sm",), ("max_clocks/sm_clock",), "MHz"),
    Reading("max_memory_clock", ("clocks.max.memory",), ("max_clocks/mem_clock",), "MHz"),
    Reading("encoder_utilization", ("utilization.encoder",), ("utilization/encoder_util",), "%"),
    Reading("decoder_utilization", ("utilization.decoder",), ("utilization/decoder_util",), "%"),
    Reading("pcie_replays", ("pcie.replay_counter",), ("pci/replay_counter",), "count", relativity=LOWER),
    Reading("ecc_volatile_sram_uncorrected_parity_errors", (),
            ("ecc_errors/volatile/sram_uncorrectable_parity",), relativity=LOWER),
    Reading("ecc_aggregate_sram_uncorrected_parity_errors", (),
            ("ecc_errors/aggregate/sram_uncorrectable_parity",), relativity=LOWER),
    Reading("remapped_rows_corrected", ("remapped_rows.correctable",), ("remapped_rows/remapped_row_corr",),
            relativity=LOWER),
    Reading("remapped_rows_uncorrected", ("remapped_rows.uncorrectable",),
            ("remapped_rows/remapped_row_unc",), relativity=LOWER),
)  # fmt: skip


_WHOLE = 100
_COLDEST, _HOTTEST = -60, 200
_MOST_WATTS = 20_000
"""Bounds of a GPU's temperature in degrees Celsius and power in watts, far beyond any GPU."""


def is_error(value: str) -> bool:
    """Return True if nvidia-smi got an error from the GPU in place of this value."""
    return value.strip().lower().strip("[]") in {"unknown error", "err!"}


def spoken(value: str) -> str:
    """Return the value as text; empty if nvidia-smi could not read it (N/A, [Not Supported])."""
    value = value.strip()
    return "" if value.lower() in _ABSENT else value


def number_of(value: str, what: str) -> tuple[float, str] | None:
    """Return number and unit of a value such as "81559 MiB", "16x" or "70.9"; None for words.

    Args:
        value: the text that nvidia-smi wrote.
        what: the reading's name, for the error message.

    Raises:
        ParseError: if the digits are not one number with a unit, such as "271,40 W".
    """
    said = spoken(value)
    found = _NUMBER.fullmatch(said)
    if found is not None:
        return float(found[1]), found[2]
    if any(character.isdigit() for character in said):
        raise ParseError(
            f"{what} is {said[:60]!r}, which is not a number with a unit",
            remedy="see whether the file was changed; nvidia-smi writes decimal points",
        )
    return None


def fits(reading: Reading, unit: str) -> bool:
    """Return True if a reading can have this unit: power is not in MiB.

    Args:
        reading: the reading.
        unit: nvidia-smi's unit; empty if it wrote none.
    """
    if reading.unit in UNITS:
        return not unit or UNITS.get(unit, ("",))[0] == UNITS[reading.unit][0]
    return not unit or (unit == "x" and reading.unit == "lanes")


def impossible(reading: Reading, number: float) -> tuple[str, str] | None:
    """Return why a reading cannot have this value, and the code of the reason; None if it can.

    Args:
        reading: the reading.
        number: the tool's number, in the reading's unit.
    """
    if number < 0 and reading.unit != "C":
        return "below 0", "below_0"
    # A fan may turn faster than it is rated.
    if reading.unit == "%" and reading.name != "fan_speed" and number > _WHOLE:
        return "above 100 %", "above_100"
    if (reading.unit == "C" and not _COLDEST <= number <= _HOTTEST) or (
        reading.unit == "W" and number > _MOST_WATTS
    ):
        return "beyond any GPU", "beyond_any"
    return None


def unit_of(header: str) -> tuple[str, str]:
    """Return name and unit of a column: "memory.total [MiB]" is memory.total in MiB."""
    name, _, unit = header.strip().partition("[")
    return name.strip(), unit.rstrip("] ").strip()


def metric(
    reading: Reading,
    gpu: str,
    tool_value: float,
    tool_unit: str,
    metadata: Mapping[str, str | int | float | bool],
) -> Metric:
    """Return a reading of one GPU as a metric in its base unit.

    Args:
        reading: the reading.
        gpu: the GPU's index, or its bus id if the index is unknown.
        tool_value: nvidia-smi's number.
        tool_unit: the unit of that number, if nvidia-smi wrote one.
        metadata: identity of the GPU.
    """
    tool_unit = reading.unit if tool_unit in {"", "x"} else tool_unit
    unit, factor = UNITS.get(tool_unit, (tool_unit, 1.0))
    own: dict[str, str | float] = {"tool_value": tool_value, "tool_unit": tool_unit} if factor != 1 else {}
    alias = {"virtualclient_name": f"gpu{gpu}_{reading.virtualclient}"} if reading.virtualclient else {}
    return Metric(
        name=f"gpu{gpu}_{reading.name}",
        # 1 / 0.01 is a whole number but 0.01 is not exact: 3 % must give exactly 0.03
        value=tool_value / round(1 / factor) if factor < 1 else tool_value * factor,
        unit=unit,
        relativity=reading.relativity,
        description=f"GPU {gpu}: {reading.name.replace('_', ' ')}",
        verbosity=1
        if reading.name in {"utilization", "power_draw_average", "memory_used", "temperature"}
        else 2,
        metadata={**metadata, **alias, **own},
    )
