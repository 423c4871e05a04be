"""Usage of the host over time, from the monitors' records: one panel per metric, one series per device."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.report.time_series import TimeSeries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from agent.core.records import MetadataValue, MetricRecord

_DEVICE_IN_NAME = re.compile(r"(?<![a-z])(gpu|cpu|core|nic|disk|device)[_-]?(\d+)(?=[_.-]|$)", re.IGNORECASE)
_GPU_VERBOSITY = 2
_DEVICE_KEYS = ("gpu_index", "gpu", "device", "index", "interface", "disk", "mount", "core")
_ORDER = (
    re.compile(r"gpu.*util"),
    re.compile(r"gpu.*mem"),
    re.compile(r"gpu.*power"),
    re.compile(r"gpu.*temp"),
    re.compile(r"gpu"),
    re.compile(r"cpu.*util|cpu"),
    re.compile(r"mem"),
)


@dataclass(frozen=True)
class Panel:
    """One metric of the host over time.

    Args:
        name: the metric's name without its device, in words.
        unit: its base unit.
        description: the monitor's description of the metric.
        series: one series for each device; the name is empty if the metric belongs to the whole host.
    """

    name: str
    unit: str
    description: str
    series: Mapping[str, TimeSeries]


class HostUsage:
    """Collects the monitors' records one by one in panels of bounded size.

    Args:
        start: the start of the run, from which seconds are counted; the first record's time if unknown.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self.start = start
        self._panels: dict[tuple[str, str], tuple[str, dict[str, TimeSeries]]] = {}

    def add(self, record: MetricRecord) -> None:
        """Add a monitor's record; of the many metrics of GPUs, only the most important are kept."""
        self.start = self.start or record.timestamp
        name, device = _name_and_device(record.metric, record.metadata)
        if name.startswith("gpu") and record.verbosity > _GPU_VERBOSITY:
            return
        _, series = self._panels.setdefault((name, record.unit), (record.description, {}))
        series.setdefault(device, TimeSeries()).add(self.seconds(record.timestamp), record.value)

    def seconds(self, moment: datetime) -> float:
        """Return a time as seconds from the start."""
        return (moment - self.start).total_seconds() if self.start else 0.0

    def panels(self) -> Iterator[Panel]:
        """Return the panels, GPUs first."""
        for (name, unit), (description, series) in sorted(self._panels.items(), key=_place):
            by_device = {device: series[device] for device in sorted(series, key=_natural)}
            yield Panel(name.replace("_", " "), unit, description, by_device)


def _name_and_device(metric: str, metadata: Mapping[str, MetadataValue]) -> tuple[str, str]:
    if match := _DEVICE_IN_NAME.search(metric):
        kind = match[1]
        return metric[: match.start()] + kind + metric[match.end() :], f"{kind.upper()} {match[2]}"
    for key in _DEVICE_KEYS:
        if key in metadata:
            value = str(metadata[key])
            kind = "GPU " if key.startswith("gpu") or "gpu" in metric.lower() else ""
            return metric, f"{kind}{value}" if value.isdigit() else value
    return metric, ""


def _place(item: tuple[tuple[str, str], object]) -> tuple[int, str]:
    name = item[0][0].lower()
    return next((place for place, pattern in enumerate(_ORDER) if pattern.search(name)), len(_ORDER)), name


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
