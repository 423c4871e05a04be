"""The GPUs in nvidia-smi's output, whichever of its forms that has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from parsers.nvidia_smi.readings import READINGS, Reading, fits, number_of, spoken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.core.records import Reason

BY_NAME = {reading.name: reading for reading in READINGS}
_CELSIUS = "C"


@dataclass(slots=True)
class Device:
    """What one row, element or section says of a GPU.

    Args:
        index: the GPU's index; None where nvidia-smi did not tell it.
        texts: everything nvidia-smi says, by the query's column names.
        numbers: number and unit by the reading's name.
        mig_devices: UUIDs of MIG devices.
        impossible: readings that were left out, since they cannot be true.
    """

    index: int | None
    texts: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, tuple[float, str]] = field(default_factory=dict)
    mig_devices: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Identity within the output: the index, else the bus id, else the UUID; never the place of a row."""
        known = self.texts.get("pci.bus_id") or self.texts.get("uuid", "")
        return str(self.index) if self.index is not None else re.sub(r"\W+", "_", f"_{known}")

    def take(self, reading: Reading, value: str, unit: str = "") -> bool:
        """Take a value of a reading; return False if it is none.

        Args:
            reading: what it is.
            value: what nvidia-smi wrote.
            unit: the unit that stands elsewhere, such as in a column's header.

        Raises:
            ParseError: if it is not a number, or its unit is not one of the reading.
        """
        found = number_of(value, reading.name)
        if found is None:
            return False
        number, own = found
        if not fits(reading, own or unit) or not fits(reading, unit):
            raise ParseError(f"{reading.name} is {spoken(value)[:60]!r}, which is not in {reading.unit}")
        if number < 0 and reading.unit != _CELSIUS:
            self.impossible.append(f"{reading.name} of GPU {self.label.strip('_')} is {spoken(value)[:60]}")
            return True
        self.numbers[reading.name] = (number, own or unit)
        return True


@dataclass(slots=True)
class Seen:
    """What an output holds.

    Args:
        devices: its GPUs in order; one that was read several times is there several times.
        complete: False where it was cut.
        said: why a GPU could not be read, in nvidia-smi's words, with what to do.
        warnings: what is to be known of it.
    """

    devices: list[Device] = field(default_factory=list)
    complete: bool = True
    said: list[Reason] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def even(devices: Iterable[Device]) -> bool:
    """Whether every GPU was read as often as the others: where one was not, the last round is cut."""
    times: dict[str, int] = {}
    for device in devices:
        times[device.label] = times.get(device.label, 0) + 1
    return len(set(times.values())) <= 1
