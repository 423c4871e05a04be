"""An action's own tables and charts: on the page, in the terminal, in JSON."""

from __future__ import annotations

import json
import math
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from agent.report.figures import chart_figure
from agent.report.html import write_report
from agent.report.rollup import write_rollup
from agent.report.terminal import render_result
from agent.store.exhibits import (
    Cell,
    Chart,
    Column,
    Exhibits,
    Point,
    Row,
    Series,
    Table,
    read_exhibits,
    write_exhibits,
)
from agent.store.metric_lines import read_records

if TYPE_CHECKING:
    from pathlib import Path

TABLE = Table(
    "Side by side",
    "Variant",
    (Column("Size", "bytes"), Column("Right answers", "ratio")),
    (
        Row("F16", (Cell(2**28), Cell(0.517, 0.037))),
        Row("Q4 <b>", (Cell(2**26), Cell(0.5, 0.037, "within the noise"))),
    ),
    "One <note>.",
)
CHART = Chart(
    "Quality against speed",
    Column("Speed", "tokens/s"),
    Column("Right answers", "ratio"),
    (Series("F16", (Point(10, 0.517, 0.037, "F16"),)), Series("Q4 <b>", (Point(30, 0.5, 0.037, "Q4 <b>"),))),
    joined=False,
)


ONE = {"title": "x", "head": "y", "columns": []}
COLUMN = {"title": "z", "unit": "bytes"}
ROW_OF_TEXT = {"name": "z", "cells": [{"value": "1"}]}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "comparison" / "m"
    folder.mkdir(parents=True)
    write_exhibits(folder, Exhibits((TABLE,), (CHART,)))
    case = {
        "scenario": "m/comparison",
        "tool_name": "vcagent",
        "case_dir": "comparison/m",
        "validity": "VALID",
    }
    run = {"run_id": "r", "cases": [case], "verdict": {"validity": "VALID"}, "profile": {"name": "P"}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    return tmp_path / "run"


def test_what_is_written_is_read_again(run_dir: Path) -> None:
    assert read_exhibits(run_dir / "comparison" / "m") == Exhibits((TABLE,), (CHART,))
    assert read_exhibits(run_dir) == Exhibits()
    assert read_exhibits(None) == Exhibits()


def test_the_page_shows_them_escaped(run_dir: Path) -> None:
    page = write_report(run_dir).read_text()
    assert '<th scope="col">Q4 &lt;b&gt;</th>' in page
    assert "51.7\u00a0±\u00a03.7\u00a0%" in page
    assert "within the noise" in page
    assert "One &lt;note&gt;." in page
    assert ">Side by side</a>" in page, "in the list of cases, in the place of numbers"
    assert page.count("<circle") == 2
    assert "<b>" not in page.split('class="numbers"')[1].split("</table>")[0]


def test_the_terminal_shows_them(run_dir: Path) -> None:
    console = Console(file=StringIO(), width=100)
    run = json.loads((run_dir / "run.json").read_text())
    render_result(run, read_records(run_dir / "metrics.jsonl"), console, run_dir=run_dir)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "Side by side" in text
    assert "256\u00a0MiB" in text
    assert "within the noise" in text


def test_json_has_the_tables(run_dir: Path) -> None:
    (case,) = json.loads(write_rollup(run_dir).read_text())["cases"]
    assert case["tables"][0]["rows"][0]["cells"][1] == {"value": 0.517, "error": 0.037, "note": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"tables": [{"title": "x"}], "charts": []}',
        '{"tables": [], "charts": [{"title": "x", "x": {}, "y": {}, "series": [], "joined": 1}]}',
        json.dumps({"tables": [{**ONE, "rows": [{"name": "z", "cells": [{}]}]}], "charts": []}),
        json.dumps({"tables": [{**ONE, "columns": [COLUMN], "rows": [ROW_OF_TEXT]}], "charts": []}),
    ],
)
def test_a_broken_file_is_told_on_the_page(text: str, run_dir: Path) -> None:
    (run_dir / "comparison" / "m" / "exhibits.json").write_text(text)
    assert "exhibits.json cannot be read" in write_report(run_dir).read_text()


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    table = Table("x", "y", (Column("z", "bytes"),), (Row("w", (Cell(math.nan),)),))
    with pytest.raises(ValueError, match=r"not JSON compliant|Out of range"):
        write_exhibits(tmp_path, Exhibits((table,)))


@pytest.mark.parametrize(
    "points", [(), (Point(1, 5),), (Point(1, 5), Point(2, 5)), (Point(0, 0),), (Point(1, -2), Point(8, 3))]
)
def test_every_chart_can_be_drawn(points: tuple[Point, ...]) -> None:
    chart = Chart("c", Column("x", "count"), Column("y", "seconds"), (Series("s", points),))
    drawn = str(chart_figure(chart).svg)
    assert drawn.count("<circle") == len(points)
    assert "nan" not in drawn
