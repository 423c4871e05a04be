"""Show the curve of a sweep: its points side by side, and throughput against latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.store.exhibits import Cell, Chart, Column, Exhibits, Point, Row, Series, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from actions.endpoint.point import Measured
    from parsers.endpoint_load.requests import Limits

_COLUMNS = (
    ("requests_per_second", Column("requests/s", "requests/s")),
    ("goodput", Column("goodput", "requests/s")),
    ("slo_attainment", Column("within the limits", "ratio")),
    ("output_tokens_per_second", Column("output", "tokens/s")),
    ("ttft_p50", Column("TTFT p50", "seconds")),
    ("ttft_p99", Column("TTFT p99", "seconds")),
    ("tpot_p50", Column("TPOT p50", "seconds")),
    ("tpot_p99", Column("TPOT p99", "seconds")),
    ("latency_p99", Column("latency p99", "seconds")),
    ("client_cpu", Column("client's CPU", "ratio")),
)
_CURVES = (
    ("ttft", "time to first token", "seconds"),
    ("tpot", "time per output token", "seconds"),
    ("latency", "end-to-end latency", "seconds"),
)


def exhibits(points: Sequence[Measured], limits: Limits) -> Exhibits:
    """Return the table of all points and the charts that have data.

    Args:
        points: the points, concurrencies first, then rates, in ascending order.
        limits: the latency limits.
    """
    has_limits = bool(limits)
    columns = [
        (name, column) for name, column in _COLUMNS if has_limits or name not in {"goodput", "slo_attainment"}
    ]
    rows = tuple(Row(str(point.asked), tuple(_cell(point, name) for name, _ in columns)) for point in points)
    note = "± is the standard error, by block bootstrap over a run's requests, or from run to run"
    table = Table("Points of the sweep", "load", tuple(column for _, column in columns), rows, note)
    charts = [*_goodput(points)] if has_limits else []
    for name, title, unit in _CURVES:
        limit_s = getattr(limits, f"{name}_s")
        chart = Chart(
            f"Throughput against {title}",
            Column("output", "tokens/s"),
            Column(title, unit),
            tuple(_series(points, f"{name}_p50", "median")) + tuple(_series(points, f"{name}_p99", "p99")),
            note="" if limit_s is None else f"the limit is {limit_s:g} s",
        )
        charts.extend([chart] if chart.series else [])
    return Exhibits((table,), tuple(charts))


def _cell(point: Measured, name: str) -> Cell:
    metric = point.metrics.get(name)
    if metric is None:
        return Cell()
    note = point.missed if name == "slo_attainment" else ""
    return Cell(metric.value, _error(point, name), note)


def _error(point: Measured, name: str) -> float | None:
    error = point.metrics[name].metadata.get("standard_error")
    return float(error) if isinstance(error, int | float) else None


def _series(points: Sequence[Measured], name: str, shown: str) -> Iterator[Series]:
    """Yield series of this metric over throughput, one for concurrencies and one for rates."""
    for kind, chosen in (
        ("concurrency", [point for point in points if point.asked.concurrency is not None]),
        ("rate", [point for point in points if point.asked.concurrency is None]),
    ):
        found = tuple(
            Point(
                point.metrics["output_tokens_per_second"].value,
                point.metrics[name].value,
                _error(point, name),
                f"{point.asked.concurrency or point.offered:g}",
            )
            for point in chosen
            if name in point.metrics and "output_tokens_per_second" in point.metrics
        )
        if found:
            yield Series(f"{shown}, by {kind}", found)


def _goodput(points: Sequence[Measured]) -> Iterator[Chart]:
    found = tuple(
        Point(point.offered, point.metrics["goodput"].value, _error(point, "goodput"))
        for point in points
        if point.asked.concurrency is None and "goodput" in point.metrics
    )
    if found:
        offered = Column("offered rate", "requests/s")
        goodput = Column("goodput", "requests/s")
        yield Chart("Goodput against the rate offered", offered, goodput, (Series("goodput", found),))
