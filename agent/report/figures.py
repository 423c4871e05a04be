"""Selects the plots of a report: distributions and rates of a case, usage of the host over time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.core.counts import count_of
from agent.core.quantities import format_duration, quantity, words
from agent.report.plots import DISTINCT_LINES, Axis, Band, Line, Mark, histogram, line_plot, point_plot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from markupsafe import Markup

    from agent.report.host_usage import HostUsage, Panel
    from agent.report.samples import Distribution, Interval, SampleStatistics
    from agent.store.exhibits import Chart

PERCENTILES = (50, 90, 95, 99, 99.9)
BINS = 40
LONG_TAIL = 1.6
"""If the largest value is more than this many times the 99th percentile, plots end before it."""
NARROW = 0.6
"""If the smallest value is more than this share of the largest, plots do not begin at 0."""
PANEL_LIMIT = 16

LATENCIES = {"ttft": "Time to first token", "tpot": "Time per output token", "latency": "End-to-end latency"}


@dataclass(frozen=True)
class Figure:
    """A plot with its title, note and legend.

    Args:
        title: the plot's title.
        note: additional information for the reader, such as values outside the plot.
        svg: the plot.
        legend: a class and a name for each line, if there are several.
    """

    title: str
    note: str
    svg: Markup
    legend: tuple[tuple[str, str], ...] = ()


def latency_limits(details: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits of a case by the kind of latency, in seconds.

    Args:
        details: the case's details. ``ttft_limit_s``, ``tpot_limit_s`` and ``latency_limit_s`` are limits of
            any workload. LoadGen's settings are limits in Server's performance runs; those for tokens count
            only if LoadGen measured tokens.
    """
    settings = dict.fromkeys(LATENCIES, "")
    if details.get("scenario") == "Server" and details.get("mode") != "AccuracyOnly":
        by_token = details.get("use_token_latencies") is True
        settings = (
            {"ttft": "ttft_latency_s", "tpot": "tpot_latency_s", "latency": ""}
            if by_token
            else {"ttft": "", "tpot": "", "latency": "target_latency_s"}
        )
    found = {kind: details.get(f"{kind}_limit_s", details.get(name)) for kind, name in settings.items()}
    return {
        kind: float(limit)
        for kind, limit in found.items()
        if isinstance(limit, (int, float)) and not isinstance(limit, bool) and limit > 0
    }


def sample_figures(statistics: SampleStatistics, limits: Mapping[str, float]) -> list[Figure]:
    """Return histograms, then cumulative distributions, then rates over time.

    Args:
        statistics: the content of samples.csv.
        limits: limits in seconds by the kind of latency; see ``latency_limits``.
    """
    known: list[tuple[str, Distribution, float | None]] = []
    for kind, title in LATENCIES.items():
        if distribution := getattr(statistics, kind):
            known.append((title, distribution, limits.get(kind)))
    figures = [_histogram(title, distribution, limit) for title, distribution, limit in known]
    figures += [_cumulative(title, distribution, limit) for title, distribution, limit in known]
    return figures + _rates(statistics)


def host_figures(
    usage: HostUsage, *, start_s: float = -math.inf, end_s: float = math.inf, bands: Sequence[Band] = ()
) -> list[Figure]:
    """Return a plot for each metric that the monitors measured.

    Args:
        usage: the monitors' records.
        start_s: the start of the time span to show, in seconds from the start of the run.
        end_s: the end of the time span.
        bands: the times in which cases ran.
    """
    panels = [_panel(panel, start_s, end_s, bands) for panel in usage.panels()]
    return [figure for figure in panels if figure][:PANEL_LIMIT]


def chart_figure(chart: Chart) -> Figure:
    """Return the plot of a chart that an action asks for."""
    points = [point for series in chart.series for point in series.points]
    tops = [point.y + (point.error or 0) for point in points]
    feet = [point.y - (point.error or 0) for point in points]
    low, high = min(feet, default=0.0), max(tops, default=1.0)
    low = low - (high - low) * 0.15 if low > NARROW * high else min(0.0, low)
    right = max((point.x for point in points), default=1.0) * 1.08
    svg = point_plot(
        chart.title,
        chart.series,
        Axis(chart.x.title, chart.x.unit, 0.0, right or 1),
        Axis(chart.y.title, chart.y.unit, low, high + (high - low) * 0.1 if high > low else low + 1),
        joined=chart.joined,
    )
    named = [(f"s{place % DISTINCT_LINES + 1}", series.name) for place, series in enumerate(chart.series)]
    return Figure(chart.title, chart.note, svg, tuple(named) if len(named) > 1 else ())


def _range(distribution: Distribution, limit: float | None) -> tuple[float, float]:
    high = distribution.maximum_s
    p99 = distribution.percentile(99)
    if p99 > 0 and high > LONG_TAIL * p99:
        high = LONG_TAIL * p99
    if limit is not None and high < limit < 2 * high:
        high = limit * 1.02
    lowest = distribution.minimum_s
    low = lowest - (high - lowest) * 0.05 if lowest > NARROW * high else 0.0
    return (low, high) if high > low else (low * 0.9, high * 1.1 or 1e-9)


def _note(distribution: Distribution, high: float, limit: float | None) -> str:
    parts = [count_of(distribution.count, "sample")]
    if not distribution.exact:
        parts.append(f"percentiles from {len(distribution.values_s):,} chosen at random")
    if distribution.maximum_s > high:
        parts.append(
            f"{quantity(1 - distribution.share_at_most(high), 'ratio')} lie beyond, up to "
            f"{quantity(distribution.maximum_s, 'seconds')}"
        )
    if limit is not None:
        over = 1 - distribution.share_at_most(limit)
        parts.append(f"{quantity(over, 'ratio')} over the limit of {quantity(limit, 'seconds')}")
    return " · ".join(parts)


def _limit_mark(limit: float | None) -> list[Mark]:
    return [] if limit is None else [Mark(limit, "limit", is_limit=True)]


def _histogram(title: str, distribution: Distribution, limit: float | None) -> Figure:
    low, high = _range(distribution, limit)
    marks = [
        Mark(distribution.percentile(percent), f"p{percent}")
        for percent in (50, 90, 99)
        if distribution.bears(percent)
    ]
    svg = histogram(
        f"Histogram: {title}",
        distribution.histogram(low, high, BINS),
        Axis(title, "seconds", low, high),
        "Share of samples",
        marks=[*marks, *_limit_mark(limit)],
    )
    return Figure(title, _note(distribution, high, limit), svg)


def _cumulative(title: str, distribution: Distribution, limit: float | None) -> Figure:
    low, high = _range(distribution, limit)
    steps = 100
    places = [low + (high - low) * step / steps for step in range(steps + 1)]
    svg = line_plot(
        f"Cumulative distribution: {title}",
        [Line("", [(place, distribution.share_at_most(place)) for place in places])],
        Axis(title, "seconds", low, high),
        Axis("Samples at or below", "ratio", 0, 1),
        marks=[
            *([Mark(distribution.percentile(99), "p99")] if distribution.bears(99) else ()),
            *_limit_mark(limit),
        ],
    )
    return Figure(f"{title}, cumulative", "", svg)


def _rates(statistics: SampleStatistics) -> list[Figure]:
    intervals = statistics.intervals
    if len(intervals) < 2:  # noqa: PLR2004 - a line needs two points
        return []
    width = f"means over {format_duration(intervals[0].end_s - intervals[0].start_s)}"
    figures = [_rate("Samples completed", "samples/s", intervals, lambda part: part.samples_per_s, width)]
    if statistics.has_tokens:
        note = f"{width}; counted when a sample completes"
        figures.append(_rate("Output tokens", "tokens/s", intervals, lambda part: part.tokens_per_s, note))
    in_flight = "issued, not yet completed"
    figures.append(_rate("Samples in flight", "count", intervals, lambda part: part.in_flight, in_flight))
    return figures


def _rate(
    title: str, unit: str, intervals: Sequence[Interval], value: Callable[[Interval], float], note: str
) -> Figure:
    points = [((interval.start_s + interval.end_s) / 2, value(interval)) for interval in intervals]
    high = max(height for _, height in points)
    svg = line_plot(
        f"{title} over time",
        [Line("", points)],
        Axis("Time", "seconds", 0, intervals[-1].end_s, is_time=True),
        Axis(title, unit, 0, high * 1.08 or 1),
    )
    return Figure(f"{title} over time", note, svg)


def _panel(panel: Panel, start_s: float, end_s: float, bands: Sequence[Band]) -> Figure | None:
    lines = [Line(name, series.points(start_s, end_s)) for name, series in panel.series.items()]
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    values = [value for line in lines for _, value in line.points]
    moments = [at for line in lines for at, _ in line.points]
    first, last = max(min(moments), start_s), min(max(moments), end_s)
    high = 1.0 if panel.unit == "ratio" and max(values) <= 1 else max(values) * 1.08
    title = words(panel.name)
    svg = line_plot(
        f"{title} over time",
        lines,
        Axis("Time since the run began", "seconds", first, last if last > first else first + 1, is_time=True),
        Axis(title, panel.unit, min(0.0, *values), high or 1),
        bands=[band for band in bands if band.end > first and band.start < last],
    )
    mean, most = sum(values) / len(values), max(values)
    note = f"mean {quantity(mean, panel.unit, like=most)}, highest {quantity(most, panel.unit)}"
    if len(lines) > DISTINCT_LINES:
        return Figure(title, f"{len(lines)} devices · {note}", svg)
    legend = [(f"s{number}", line.name or "host") for number, line in enumerate(lines, start=1)]
    return Figure(title, note, svg, tuple(legend) if len(lines) > 1 else ())
