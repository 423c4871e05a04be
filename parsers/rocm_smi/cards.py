"""Reads rocm-smi's JSON and CSV: both have the same keys, which changed with ROCm 6.0 and 6.1."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from parsers.amd_smi.readings import take
from parsers.nvidia_smi.devices import Device, Seen

if TYPE_CHECKING:
    from collections.abc import Mapping

_CARD = re.compile(r"card(\d{1,4})", re.ASCII)
_JSON = re.compile(r"\"card\d+\"\s*:\s*\{")
_HEADER = re.compile(
    r"^device,(?=.*(?:Temperature|GPU|VRAM|Package Power|clock speed|Fan|Card|PCI))", re.MULTILINE
)
_KEYS = {
    "temperature (sensor edge) (c)": "edge_temperature",
    "temperature (sensor junction) (c)": "hotspot_temperature",
    "temperature (sensor memory) (c)": "memory_temperature",
    "average graphics package power (w)": "power_draw_average",
    "current socket graphics package power (w)": "power_draw_average",
    "max graphics package power (w)": "power_limit",
    "sclk clock speed:": "graphics_clock",
    "mclk clock speed:": "memory_clock",
    "gpu use (%)": "utilization",
    "gpu memory read/write activity (%)": "memory_utilization",
    "gpu memory allocated (vram%)": "memory_allocated",
    "vram total memory (b)": "memory_total",
    "vram total used memory (b)": "memory_used",
    "fan level": "fan_speed",
    "pcie replay count": "pcie_replays",
}
"""A key in lower case, and the reading. "GPU memory use (%)", until ROCm 6.0, is ambiguous."""
_TEXTS = {"card series": "name", "pci bus": "pci.bus_id", "unique id": "uuid"}


def has_json(text: str) -> bool:
    """Return True if a text is rocm-smi's JSON."""
    return _JSON.search(text) is not None


def has_csv(text: str) -> bool:
    """Return True if a text is rocm-smi's CSV."""
    return _HEADER.search(text) is not None


def read_json(text: str) -> Seen:
    """Read the cards in rocm-smi's JSON, which may have warnings before and after it.

    Raises:
        ParseError: if the JSON is incomplete, or a value does not fit its key.
    """
    begin = text.find("{")
    try:
        document, _ = json.JSONDecoder().raw_decode(text, max(begin, 0))
    except (ValueError, RecursionError) as error:
        raise ParseError(
            f"is not JSON, or was cut: {str(error)[:200]}", remedy="run rocm-smi --json again"
        ) from error
    system = document.get("system")
    driver = str(system.get("Driver version", "")) if isinstance(system, dict) else ""
    return Seen(
        [
            _device(name, {key: str(value) for key, value in values.items()}, driver)
            for name, values in document.items()
            if _CARD.fullmatch(name) and isinstance(values, dict)
        ]
    )


def read_csv(text: str) -> Seen:
    """Read the rows of rocm-smi's CSV; an unterminated last row is ignored.

    Raises:
        ParseError: if a row and its header differ in length, or a value does not fit its column.
    """
    seen = Seen(complete=text.endswith("\n"))
    header: list[str] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        if _HEADER.match(line):
            header = line.split(",")
            continue
        cells = line.split(",")
        if not header or not _CARD.fullmatch(cells[0]):
            continue
        if len(cells) != len(header):
            raise ParseError(
                f"the row of {cells[0]} has {len(cells)} cells, its header {len(header)}",
                remedy="see whether the file was changed, or written with a decimal comma",
            )
        seen.devices.append(_device(cells[0], dict(zip(header, cells, strict=True)), ""))
    return seen


def _device(card: str, values: Mapping[str, str], driver: str) -> Device:
    texts = {"driver_version": driver}
    device = Device(int(card.removeprefix("card")), texts)
    for key, value in values.items():
        if text := _TEXTS.get(key.lower()):
            texts[text] = value
        elif reading := _KEYS.get(key.lower()):
            take(device, reading, value if reading not in {"memory_total", "memory_used"} else _bytes(value))
    return device


def _bytes(value: str) -> dict[str, str]:
    return {"value": value, "unit": "B"}
