"""Plots as inline SVG: lines and histograms with ticks, units, marks and hover texts, without scripts.

The page's style sheet sets the colours by class, so that one plot works in light and dark mode and in print.
Every plot has the width of a phone: the page puts several next to each other instead of shrinking one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from agent.core.quantities import Scale, format_number, quantity, scale_for, time_scale
from agent.report.svg import element, path_data, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from markupsafe import Markup

    from agent.store.exhibits import Point, Series

WIDTH, HEIGHT = 380, 216
LEFT, RIGHT, BOTTOM, TOP = 46, 12, 38, 22
MARK_ROW = 12
CHARACTER_WIDTH = 7
DISTINCT_LINES = 8
"""Number of colours in the palette; if a plot has more lines, all are drawn alike."""
GAP = 4


@dataclass(frozen=True)
class Axis:
    """One axis of a plot.

    Args:
        title: the quantity along the axis.
        unit: the base unit of its values; empty for a plain number.
        low: the value at which the axis begins.
        high: the value at which the axis ends.
        is_time: whether the axis shows the time of the run, as seconds, minutes or hours.
    """

    title: str
    unit: str
    low: float
    high: float
    is_time: bool = False

    @property
    def scale(self) -> Scale:
        """The unit in which the axis shows its numbers."""
        return time_scale(self.high - self.low) if self.is_time else scale_for(self.unit, self.high)

    @property
    def caption(self) -> str:
        """The title with the unit."""
        return f"{self.title} ({self.scale.unit})" if self.scale.unit else self.title

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """Return values in the base unit, each with its label."""
        factor = self.scale.factor
        return [
            (tick / factor, _tick_label(tick))
            for tick in nice_ticks(self.low * factor, self.high * factor, count)
        ]


@dataclass(frozen=True)
class Line:
    """Points in order of x; the name is empty if the plot has only one line."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """A value on the x axis that is marked by a line: a percentile, or a limit."""

    value: float
    name: str
    is_limit: bool = False


@dataclass(frozen=True)
class Band:
    """A part of the x axis: the time during which a case ran."""

    start: float
    end: float
    name: str


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about ``count`` round numbers from ``low`` to ``high``, in steps of 1, 2 or 5 times 10^n."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12 - math.floor(math.log10(step))) for place in range(first, last + 1)]


def line_plot(
    label: str,
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    marks: Sequence[Mark] = (),
    bands: Sequence[Band] = (),
) -> Markup:
    """Draw values along x; a single line is filled down to the axis.

    Args:
        label: the plot's content, for screen readers.
        lines: the lines to draw; for several, the page adds a legend.
        x: the horizontal axis.
        y: the vertical axis.
        marks: vertical lines.
        bands: shaded parts of the x axis.
    """
    frame = _Frame(x, y, len(_mark_rows(marks, x)))
    parts = [frame.band(band) for band in bands]
    parts += frame.grid()
    for number, line in enumerate(lines):
        series = f"s{number + 1}" if len(lines) <= DISTINCT_LINES else "s1 many"
        for points in unbroken(line.points) if x.is_time else [line.points]:
            path = path_data([(frame.x(at), frame.y(value)) for at, value in points])
            if len(lines) == 1 and points:
                right, left = frame.x(points[-1][0]), frame.x(points[0][0])
                foot = f"L{right:.1f},{frame.floor}L{left:.1f},{frame.floor}Z"
                parts.append(element("path", d=path + foot, class_="area s1"))
            parts.append(element("path", d=path, class_=f"line {series}"))
    return frame.drawing(label, [*parts, *frame.marks(marks), *_line_hovers(frame, lines, bands)])


def point_plot(label: str, series: Sequence[Series], x: Axis, y: Axis, *, joined: bool) -> Markup:
    """Draw a dot for each of a few points, with its error and its name; the page adds a legend.

    Args:
        label: the plot's content, for screen readers.
        series: the points; each series has one colour.
        x: the horizontal axis.
        y: the vertical axis.
        joined: whether a line goes through the points of a series.
    """
    frame = _Frame(x, y, 0)
    parts, dots = frame.grid(), []
    for number, entry in enumerate(series):
        colour = f"s{number % DISTINCT_LINES + 1}"
        places = [(frame.x(point.x), frame.y(point.y)) for point in entry.points]
        if joined and places:
            parts.append(element("path", d=path_data(places), class_=f"line {colour}"))
        for point, (left, level) in zip(entry.points, places, strict=True):
            if point.error is not None:
                low, high = frame.y(point.y - point.error), frame.y(point.y + point.error)
                parts.append(element("line", x1=left, x2=left, y1=low, y2=high, class_=f"error {colour}"))
            hint = element("title", _hint(entry.name, point, x, y))
            dots.append(element("circle", hint, cx=left, cy=level, r=4, class_=f"dot {colour}"))
            if point.name:
                beyond = left + 7 + len(point.name) * CHARACTER_WIDTH > WIDTH
                place, anchor = (left - 7, "end") if beyond else (left + 7, None)
                dots.append(text(point.name, place, level - 6, class_="mark-name", anchor=anchor))
    return frame.drawing(label, [*parts, *dots])


def _hint(series: str, point: Point, x: Axis, y: Axis) -> str:
    name = " ".join(dict.fromkeys(filter(None, (series, point.name))))
    error = "" if point.error is None else f" ± {quantity(point.error, y.unit, like=point.y)}"
    return f"{name}\n{x.title}: {quantity(point.x, x.unit)}\n{y.title}: {quantity(point.y, y.unit)}{error}"


def unbroken(points: Sequence[tuple[float, float]]) -> list[Sequence[tuple[float, float]]]:
    """Return the parts of a line over time, split at gaps where nothing was measured.

    A gap is a step that is more than ``GAP`` times the median step.
    """
    steps = [after[0] - before[0] for before, after in pairwise(points)]
    if not steps:
        return [points]
    limit = GAP * sorted(steps)[len(steps) // 2]
    cuts = [place for place, step in enumerate(steps, start=1) if step > limit]
    return [points[start:end] for start, end in pairwise([0, *cuts, len(points)])]


def histogram(
    label: str, shares: Sequence[float], x: Axis, y_title: str, *, marks: Sequence[Mark] = ()
) -> Markup:
    """Draw bars of equal width along the x axis.

    Args:
        label: the plot's content, for screen readers.
        shares: the share, 0 to 1, in each part of the axis.
        x: the horizontal axis; the bars divide it evenly.
        y_title: the quantity that is counted.
        marks: vertical lines.
    """
    frame = _Frame(x, Axis(y_title, "ratio", 0, max(shares) * 1.05 or 1), len(_mark_rows(marks, x)))
    width = (x.high - x.low) / len(shares)
    bars, hovers = [], []
    for number, share in enumerate(shares):
        start, end = x.low + number * width, x.low + (number + 1) * width
        left, span = frame.x(start), frame.x(end) - frame.x(start)
        top = frame.y(share)
        bars.append(
            element("rect", x=left + 0.5, y=top, width=span - 1, height=frame.floor - top, class_="bar s1")
        )
        hint = f"{quantity(start, x.unit)} to {quantity(end, x.unit)}: {quantity(share, 'ratio')} of samples"
        hovers.append(frame.hover(left, span, hint))
    return frame.drawing(label, [*frame.grid(), *bars, *frame.marks(marks), *hovers])


class _Frame:
    """The positions of values on the drawing, and the parts around the plot."""

    def __init__(self, x: Axis, y: Axis, mark_rows: int) -> None:
        self.x_axis, self.y_axis = x, y
        self.top = TOP + MARK_ROW * mark_rows
        self.floor = HEIGHT - BOTTOM

    def x(self, value: float) -> float:
        return LEFT + _share(value, self.x_axis) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self.floor - _share(value, self.y_axis) * (self.floor - self.top)

    def grid(self) -> list[Markup]:
        parts = [text(self.y_axis.caption, 2, 11, class_="axis-title")]
        for value, label in self.y_axis.ticks(4):
            level = self.y(value)
            parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=level, y2=level, class_="grid"))
            parts.append(text(label, LEFT - 6, level + 3.5, class_="tick", anchor="end"))
        for value, label in self.x_axis.ticks(5):
            place = self.x(value)
            parts.append(element("line", x1=place, x2=place, y1=self.floor, y2=self.floor + 4, class_="axis"))
            parts.append(text(label, place, self.floor + 15, class_="tick", anchor="middle"))
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=self.floor, y2=self.floor, class_="axis"))
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(text(self.x_axis.caption, middle, HEIGHT - 5, class_="axis-title", anchor="middle"))
        return parts

    def marks(self, marks: Sequence[Mark]) -> list[Markup]:
        parts = []
        for row, names in enumerate(_mark_rows(marks, self.x_axis)):
            level = TOP + MARK_ROW * row + 6
            for mark in names:
                place, kind = self.x(mark.value), "limit" if mark.is_limit else "mark"
                hint = element("title", f"{mark.name}: {quantity(mark.value, self.x_axis.unit)}")
                parts.append(
                    element("line", hint, x1=place, x2=place, y1=self.top - 3, y2=self.floor, class_=kind)
                )
                middle = min(place, WIDTH - len(mark.name) * CHARACTER_WIDTH / 2)
                parts.append(text(mark.name, middle, level, class_=f"{kind}-name", anchor="middle"))
        return parts

    def band(self, band: Band) -> Markup:
        left, right = self.x(band.start), self.x(band.end)
        height = self.floor - self.top
        return element("rect", x=left, y=self.top, width=max(right - left, 1), height=height, class_="band")

    def hover(self, left: float, width: float, hint: str) -> Markup:
        height = self.floor - self.top
        return element(
            "rect", element("title", hint), x=left, y=self.top, width=width, height=height, class_="hover"
        )

    def drawing(self, label: str, parts: Iterable[Markup]) -> Markup:
        return element(
            "svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label, class_="plot"
        )


def _share(value: float, axis: Axis) -> float:
    span = axis.high - axis.low
    return min(max((value - axis.low) / span, 0), 1) if span > 0 else 0


def _mark_rows(marks: Sequence[Mark], x: Axis) -> list[list[Mark]]:
    """Return the marks within the axis, in as few rows as possible without overlapping names."""
    rows: list[list[Mark]] = []
    ends: list[float] = []
    plot_width = WIDTH - LEFT - RIGHT
    for mark in sorted(
        (mark for mark in marks if x.low <= mark.value <= x.high), key=lambda mark: mark.value
    ):
        middle, half = _share(mark.value, x) * plot_width, len(mark.name) * CHARACTER_WIDTH / 2
        row = next((number for number, end in enumerate(ends) if end <= middle - half), len(rows))
        if row == len(rows):
            rows.append([])
            ends.append(0)
        rows[row].append(mark)
        ends[row] = middle + half + 3
    return rows


def _line_hovers(frame: _Frame, lines: Sequence[Line], bands: Sequence[Band]) -> list[Markup]:
    """Return a strip around each x that shows the lines' values and the cases that ran."""
    values: dict[float, list[str]] = defaultdict(list)
    for line in lines:
        for at, value in line.points:
            shown = str(quantity(value, frame.y_axis.unit))
            values[at].append(f"{line.name}: {shown}" if line.name else shown)
    places = sorted(values)
    edges = [(before + after) / 2 for before, after in pairwise(places)]
    hovers = []
    for at, start, end in zip(places, [*places[:1], *edges], [*edges, *places[-1:]], strict=True):
        moment = f"at {format_number(at * frame.x_axis.scale.factor, 3)} {frame.x_axis.scale.unit}"
        during = [f"during {band.name}" for band in bands if band.start <= at <= band.end]
        left, right = frame.x(start), frame.x(end)
        hovers.append(frame.hover(left, max(right - left, 2), "\n".join([moment, *during, *values[at]])))
    return hovers


def _tick_label(value: float) -> str:
    for least, factor, letter in ((1e9, 1e-9, "G"), (1e6, 1e-6, "M"), (1e4, 1e-3, "k")):
        if abs(value) >= least:
            return f"{format_number(value * factor)}{letter}"
    return format_number(value)
