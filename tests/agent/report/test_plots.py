from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.report.plots import Axis, Band, Line, Mark, histogram, line_plot, nice_ticks

TIME = Axis("Time", "seconds", 0, 600, is_time=True)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0.8, 10.2, [2, 4, 6, 8, 10]), (42, 58, [45, 50, 55]), (3, 3, [3])],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high, 5) == pytest.approx(ticks)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_lie_within_the_axis_and_are_few(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span, 5)
    tolerance = 1e-6 * max(abs(low), span)
    assert len(ticks) <= 6
    assert all(low - tolerance <= tick <= low + span + tolerance for tick in ticks)


def test_an_axis_names_its_unit_and_scales_its_numbers() -> None:
    assert TIME.caption == "Time (min)"
    axis = Axis("TTFT", "seconds", 0, 0.5)
    assert axis.caption == "TTFT (ms)"
    assert [label for _, label in axis.ticks(5)] == ["0", "100", "200", "300", "400", "500"]
    assert Axis("Rate", "tokens/s", 0, 30000).ticks(3)[-1][1] == "30k"


def test_names_are_escaped_and_every_value_can_be_read_by_pointing() -> None:
    svg = line_plot(
        "<&>",
        [Line('GPU "0" <b>', [(0, 1.0), (300, 2.5)]), Line("GPU 1", [(0, 3.0)])],
        TIME,
        Axis("Power", "watts", 0, 4),
        marks=[Mark(60, "<limit>", is_limit=True)],
        bands=[Band(200, 400, "a case")],
    )
    root = ET.fromstring(svg)  # noqa: S314 - made above
    hints = [element.text for element in root.iter("title")]
    assert root.get("aria-label") == "<&>"
    assert 'at 0 min\nGPU "0" <b>: 1\u00a0W\nGPU 1: 3\u00a0W' in hints
    assert 'at 5 min\nduring a case\nGPU "0" <b>: 2.5\u00a0W' in hints
    assert "<limit>: 60\u00a0s" in hints


def test_marks_close_together_stand_in_rows() -> None:
    marks = [Mark(1.0, "p50"), Mark(1.01, "p90"), Mark(9, "p99"), Mark(11, "outside")]
    root = ET.fromstring(histogram("x", [0.5, 0.5], Axis("TTFT", "seconds", 0, 10), "Share", marks=marks))  # noqa: S314
    rows = {text.text: text.get("y") for text in root.iter("text") if text.get("class") == "mark-name"}
    assert set(rows) == {"p50", "p90", "p99"}
    assert rows["p50"] == rows["p99"] != rows["p90"]


@given(st.lists(st.tuples(st.floats(0, 600), st.floats(-1e12, 1e12)), max_size=20))
def test_whatever_is_drawn_lies_on_the_drawing(points: list[tuple[float, float]]) -> None:
    svg = line_plot("x", [Line("", sorted(points))], TIME, Axis("y", "count", -1e6, 1e6))
    for element in ET.fromstring(svg).iter("path"):  # noqa: S314
        numbers = element.get("d", "").strip("MZ").replace("L", " ").replace(",", " ").split()
        assert all(math.isfinite(float(number)) and 0 <= float(number) <= 400 for number in numbers)
