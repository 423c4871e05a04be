"""Reads amd-smi's JSON of ROCm 6 (a list of GPUs) and ROCm 7 (``{"gpu_data": [...]}``).

amd-smi may write several documents one after the other, with warnings before, between and after them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from parsers.amd_smi.readings import CAUSES, take_first
from parsers.json_text import DECODER
from parsers.nvidia_smi.devices import Device, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN = re.compile(r"^[ \t]*(?=[\[{]\s*(?:[\[{\"]|\Z))", re.MULTILINE)
_GPU = re.compile(r"\"gpu\"\s*:\s*\d")
_BLOCK = re.compile(
    r"\"(?:usage|power|clock|temperature|mem_usage|ecc|energy|pcie|throttle|asic|vram|limit|driver)\""
    r"\s*:\s*\{|\"(?:gfx_activity|socket_power)\"\s*:"
)
_OTHERS = re.compile(r"\"(?:process_list|process_info|links)\"\s*:")
_MOST_GPUS = 10_000


def has_documents(text: str) -> bool:
    """Return True if a text is the JSON of ``amd-smi metric`` or ``amd-smi static``."""
    return bool(
        _BEGIN.search(text) and _GPU.search(text) and _BLOCK.search(text) and not _OTHERS.search(text)
    )


def _documents(text: str) -> tuple[list[Any], bool]:
    """Return the JSON documents of a text, and True if the last one is complete.

    Raises:
        ParseError: if not even the first document is complete.
    """
    found: list[Any] = []
    place = 0
    while begin := _BEGIN.search(text, place):
        try:
            document, place = DECODER.raw_decode(text, begin.end())
        except (ValueError, RecursionError) as error:
            if not found:
                raise ParseError(
                    f"is not JSON, or was cut: {str(error)[:200]}", remedy="run amd-smi again"
                ) from error
            return found, False
        found.append(document)
    return found, True


def _gpu_entries(text: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the GPU entries of amd-smi's JSON in either form, and True if the text is complete.

    Raises:
        ParseError: if the text holds no complete document, or an entry does not name its GPU.
    """
    found, complete = _documents(text)
    entries = [entry for document in found for entry in _entries(document)]
    for entry in entries:
        gpu = entry.get("gpu")
        if isinstance(gpu, bool) or not isinstance(gpu, int) or not 0 <= gpu < _MOST_GPUS:
            raise ParseError(
                f"an entry does not name its GPU: {str(gpu)[:60]}", remedy="see whether the file was changed"
            )
    return entries, complete


def read_documents(text: str) -> Seen:
    """Read the GPUs of ``amd-smi metric --json`` and ``amd-smi static --json``.

    Raises:
        ParseError: if the text holds no complete document, or a value does not fit its key.
    """
    entries, complete = _gpu_entries(text)
    return Seen([_device(entry) for entry in entries], complete)


def _entries(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        document = document.get("gpu_data", [document])
    yield from (entry for entry in document if isinstance(entry, dict)) if isinstance(document, list) else ()


def _device(entry: dict[str, Any]) -> Device:
    device = Device(entry["gpu"], _texts_of(entry))
    usage, power = _block(entry, "usage"), _block(entry, "power")
    take_first(device, "utilization", usage.get("gfx_activity"))
    take_first(device, "memory_utilization", usage.get("umc_activity"))
    # Before ROCm 7, one of the last two is valid. The GPU decides which one.
    names = ("socket_power", "current_socket_power", "average_socket_power")
    take_first(device, "power_draw_average", *(power.get(name) for name in names))
    temperature = _block(entry, "temperature")
    for name, key in (("edge", "edge"), ("hotspot", "hotspot"), ("memory", "mem")):
        take_first(device, f"{name}_temperature", temperature.get(key))
    _clocks(device, _block(entry, "clock"))
    memory = _block(entry, "mem_usage")
    vram = _block(entry, "vram")
    take_first(device, "memory_total", memory.get("total_vram"), vram.get("size"), entry.get("vram_size"))
    take_first(device, "memory_used", memory.get("used_vram"))
    take_first(device, "memory_free", memory.get("free_vram"))
    take_first(device, "fan_speed", _block(entry, "fan").get("usage"))
    take_first(device, "pcie_width", _block(entry, "pcie").get("width"))
    take_first(device, "pcie_replays", _block(entry, "pcie").get("replay_count"))
    take_first(device, "pcie_bandwidth", _block(entry, "pcie").get("bandwidth"))
    # The library tells these, not the command.
    take_first(device, "xgmi_received", _block(entry, "xgmi").get("read"))
    take_first(device, "xgmi_transmitted", _block(entry, "xgmi").get("write"))
    take_first(device, "energy_consumed", _block(entry, "energy").get("total_energy_consumption"))
    limit = _block(entry, "limit")
    take_first(
        device,
        "power_limit",
        _block(limit, "ppt0").get("socket_power_limit"),
        limit.get("socket_power"),
    )
    throttle = _block(entry, "throttle")
    for cause in CAUSES:
        take_first(device, f"throttle_{cause}", throttle.get(f"{cause}_violation_activity"))
    _errors(device, entry)
    return device


def _clocks(device: Device, clocks: dict[str, Any]) -> None:
    for name, key in (("graphics", "gfx_0"), ("memory", "mem_0"), ("video", "vclk_0")):
        clock = _block(clocks, key)
        take_first(device, f"{name}_clock", clock.get("clk"))
        if name != "video":
            take_first(device, f"max_{name}_clock", clock.get("max_clk"))


def _errors(device: Device, entry: dict[str, Any]) -> None:
    total, memory = _block(entry, "ecc"), _block(_block(entry, "ecc_blocks"), "UMC")
    for kind, key in (("corrected", "correctable"), ("uncorrected", "uncorrectable")):
        take_first(device, f"ecc_volatile_total_{kind}_errors", total.get(f"total_{key}_count"))
        take_first(device, f"ecc_volatile_dram_{kind}_errors", memory.get(f"{key}_count"))
    take_first(device, "ecc_volatile_total_deferred_errors", total.get("total_deferred_count"))


def _texts_of(entry: dict[str, Any]) -> dict[str, str]:
    """Return the name, bus id, driver version and partition modes of an entry, if amd-smi reports them."""
    asic, bus, driver = (_block(entry, name) for name in ("asic", "bus", "driver"))
    # ROCm 6.4.2 renamed this block.
    partition = _block(entry, "accelerator_partition") or _block(entry, "partition")
    texts = {
        "name": asic.get("market_name"),
        "pci.bus_id": bus.get("bdf"),
        "driver_version": driver.get("version") or entry.get("driver_version"),
        "compute_partition": partition.get("accelerator_partition") or partition.get("compute_partition"),
        "memory_partition": partition.get("memory_partition"),
    }
    return {
        name: value
        for name, value in texts.items()
        if isinstance(value, str) and value and value.upper() != "N/A"
    }


def _block(entry: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a block of an entry; empty if it is absent or N/A."""
    block = entry.get(name)
    return block if isinstance(block, dict) else {}
