"""Table of the GPUs' usage in a case: one row for each GPU, from the monitor's summary."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.quantities import Quantity, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.core.records import Metric

_OF_GPU = re.compile(r"gpu(\d+)_(.+)")
_COLUMNS = {
    "Busy": ("utilization_mean",),
    "Memory, highest": ("memory_used_max",),
    "Power": ("power_mean", "power_draw_instant_mean", "power_draw_average_mean"),
    "Power, highest": ("power_draw_instant_max", "power_draw_average_max"),
    "Temperature, highest": ("temperature_max",),
    "SM clock": ("sm_clock_mean",),
    "NVLink, sent": ("nvlink_transmitted_mean",),
    "NVLink, received": ("nvlink_received_mean",),
    "XGMI, sent": ("xgmi_transmitted_mean",),
    "XGMI, received": ("xgmi_received_mean",),
    "Energy": ("energy",),
}
"""Columns with the metrics that fill them. The first metric that exists is shown; most are means."""


@dataclass(frozen=True)
class GpuTable:
    """A table of GPUs.

    Args:
        columns: titles of the columns in which at least one GPU has a number.
        rows: a GPU's index with its cells; a cell is None if the GPU has no number for it.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Quantity | None, ...]], ...]


def gpu_table(usage: Iterable[Metric]) -> GpuTable | None:
    """Return the table of a case's summary; None if no GPU was monitored."""
    by_gpu: dict[int, dict[str, Metric]] = {}
    for metric in usage:
        if found := _OF_GPU.fullmatch(metric.name):
            by_gpu.setdefault(int(found[1]), {})[found[2]] = metric
    cells = {
        title: [_first(by_gpu[gpu], names) for gpu in sorted(by_gpu)] for title, names in _COLUMNS.items()
    }
    columns = tuple(title for title, column in cells.items() if any(column))
    if not columns:
        return None
    rows = zip(sorted(by_gpu), zip(*(_alike(cells[title]) for title in columns), strict=True), strict=True)
    return GpuTable(columns, tuple((str(gpu), row) for gpu, row in rows))


def _first(metrics: dict[str, Metric], names: tuple[str, ...]) -> Metric | None:
    return next((metrics[name] for name in names if name in metrics), None)


def _alike(column: list[Metric | None]) -> list[Quantity | None]:
    """Return the numbers of a column in the same unit, so that GPUs can be compared at a glance."""
    most = max((metric.value for metric in column if metric), key=abs, default=0.0)
    return [quantity(metric.value, metric.unit, like=most) if metric else None for metric in column]
