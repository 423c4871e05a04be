"""The GPUs in nvidia-smi's output, in any of its formats."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from parsers.nvidia_smi.readings import (
    READINGS,
    UNITS,
    Reading,
    fits,
    impossible,
    is_error,
    number_of,
    spoken,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.core.records import Reason

BY_NAME = {reading.name: reading for reading in READINGS}


@dataclass(slots=True)
class Device:
    """Content of one row, element or section about a GPU.

    Args:
        index: the GPU's index; None if nvidia-smi did not report it.
        texts: all of nvidia-smi's texts, by the query's column names.
        numbers: number and unit by reading name.
        mig_devices: UUIDs of MIG devices.
        impossible: readings that were ignored because they cannot be true, and the code of the reason.
        unread: names of readings for which nvidia-smi got an error from the GPU.
    """

    index: int | None
    texts: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, tuple[float, str]] = field(default_factory=dict)
    mig_devices: list[str] = field(default_factory=list)
    impossible: list[tuple[str, str]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Identity within the output: the index, else the bus id, else the UUID; never the row's position."""
        known = self.texts.get("pci.bus_id") or self.texts.get("uuid", "")
        return str(self.index) if self.index is not None else re.sub(r"\W+", "_", f"_{known}")

    def take(self, reading: Reading, value: str, unit: str = "") -> bool:
        """Take a value of a reading; return False if it is not a value.

        Args:
            reading: the reading.
            value: the text that nvidia-smi wrote.
            unit: the unit, if it is given elsewhere, such as in a column's header.

        Raises:
            ParseError: if it is not a number, or its unit does not fit the reading.
        """
        found = number_of(value, reading.name)
        if found is None:
            if is_error(value):
                self.unread.append(reading.name)
            return False
        number, own = found
        if not fits(reading, own or unit) or not fits(reading, unit):
            raise ParseError(f"{reading.name} is {spoken(value)[:60]!r}, which is not in {reading.unit}")
        if beyond := impossible(reading, number):
            text, code = beyond
            which = f"{reading.name} of GPU {self.label.strip('_')}"
            self.impossible.append((f"{which} is {spoken(value)[:60]}, which is {text}", code))
            return True
        self.numbers[reading.name] = (number, own or unit)
        return True

    def check_memory(self) -> None:
        """Ignore used and free memory of more than the total."""
        total = self._bytes("memory_total")
        for name in ("memory_used", "memory_free"):
            number = self._bytes(name)
            if total is not None and number is not None and number > total:
                which = f"{name} of GPU {self.label.strip('_')}"
                self.impossible.append((f"{which} is more than its total memory", "above_total"))
                del self.numbers[name]

    def _bytes(self, name: str) -> float | None:
        number, unit = self.numbers.get(name, (None, ""))
        factor = UNITS.get(unit or BY_NAME[name].unit, ("", 1.0))[1]
        return None if number is None else number * factor


@dataclass(slots=True)
class Seen:
    """Content of an output.

    Args:
        devices: its GPUs in order; a GPU that was read several times occurs several times.
        complete: False if the output was cut off.
        said: reasons why a GPU could not be read, in nvidia-smi's words, with a remedy.
        warnings: warnings about the output.
    """

    devices: list[Device] = field(default_factory=list)
    complete: bool = True
    said: list[Reason] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check(devices: Iterable[Device]) -> None:
    """Check that each label belongs to one GPU, and that its memory fits.

    Raises:
        ParseError: if an index belongs to two GPUs, as in the joined outputs of two hosts.
    """
    known: dict[tuple[str, str], str] = {}
    for device in devices:
        device.check_memory()
        for name in ("uuid", "pci.bus_id"):
            value = device.texts.get(name)
            if value and known.setdefault((device.label, name), value) != value:
                raise ParseError(
                    f"GPU {device.label.strip('_')} is two GPUs: {known[device.label, name]} and {value}",
                    remedy="give the output of each host a file of its own",
                )


def even(devices: Iterable[Device]) -> bool:
    """Return True if all GPUs were read equally often; otherwise the last round is incomplete."""
    times: dict[str, int] = {}
    for device in devices:
        times[device.label] = times.get(device.label, 0) + 1
    return len(set(times.values())) <= 1
