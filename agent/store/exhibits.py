"""exhibits.json: tables and charts that an action adds to a case, for page, terminal and JSON.

The action decides which values to compare; the report decides the layout. Values are in base units.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from agent.core.quantities import quantity, with_error
from agent.store.results import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EXHIBITS_FILE = "exhibits.json"


@dataclass(frozen=True)
class Column:
    """A column: its title, and the base unit of its cells."""

    title: str
    unit: str


@dataclass(frozen=True)
class Cell:
    """A value, its standard error, and a note; all absent for an empty cell.

    Args:
        value: in the column's unit.
        error: its standard error, or its standard deviation over repetitions, in the same unit.
        note: such as ``within the noise``.
    """

    value: float | None = None
    error: float | None = None
    note: str = ""

    def text(self, unit: str) -> str:
        """Return the cell for people: ``51.7 ± 3.7 %``; its note if it has no value.

        Args:
            unit: its column's base unit.
        """
        if self.value is None:
            return self.note
        if self.error is None:
            return str(quantity(self.value, unit))
        return with_error(self.value, self.error, unit)


@dataclass(frozen=True)
class Row:
    """A row's subject, and a cell for each column."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A comparison; ``head`` is the title of the rows' subjects."""

    title: str
    head: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True)
class Point:
    """A point on a chart; ``error`` is y's standard error, ``name`` is its label."""

    x: float
    y: float
    error: float | None = None
    name: str = ""


@dataclass(frozen=True)
class Series:
    """Points that belong together."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Chart:
    """Series of points; joined by lines if x has an order."""

    title: str
    x: Column
    y: Column
    series: tuple[Series, ...]
    joined: bool = True
    note: str = ""


@dataclass(frozen=True)
class Exhibits:
    """Tables and charts of a case besides its metrics."""

    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    problem: str = field(default="", compare=False)


def write_exhibits(case_dir: Path, exhibits: Exhibits) -> Path:
    """Write them beside the case's raw logs.

    Raises:
        ValueError: if a number is not finite.
    """
    values = {"tables": list(map(asdict, exhibits.tables)), "charts": list(map(asdict, exhibits.charts))}
    json.dumps(values, allow_nan=False)
    path = case_dir / EXHIBITS_FILE
    write_json(path, values)
    return path


def read_exhibits(case_dir: Path | None) -> Exhibits:
    """Return a case's exhibits: empty if it has no such file, with a problem if the file cannot be read."""
    path = case_dir / EXHIBITS_FILE if case_dir else None
    if path is None or not path.is_file():
        return Exhibits()
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        tables = tuple(map(_table, values["tables"]))
        charts = tuple(map(_chart, values["charts"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Exhibits(problem=f"{EXHIBITS_FILE} cannot be read: {error}")
    return Exhibits(tables, charts)


def _table(values: Mapping[str, Any]) -> Table:
    columns = tuple(Column(**column) for column in values["columns"])
    rows = tuple(Row(str(row["name"]), tuple(map(_cell, row["cells"]))) for row in values["rows"])
    if any(len(row.cells) != len(columns) for row in rows):
        raise ValueError("a row has more or fewer cells than there are columns")
    return Table(values["title"], values["head"], columns, rows, values.get("note", ""))


def _cell(values: Mapping[str, Any]) -> Cell:
    _check(values.get("value"), values.get("error"))
    return Cell(**values)


def _chart(values: Mapping[str, Any]) -> Chart:
    series = tuple(Series(entry["name"], tuple(map(_point, entry["points"]))) for entry in values["series"])
    x, y = Column(**values["x"]), Column(**values["y"])
    return Chart(values["title"], x, y, series, bool(values["joined"]), values.get("note", ""))


def _point(values: Mapping[str, Any]) -> Point:
    _check(values["x"], values["y"], values.get("error"))
    return Point(**values)


def _check(*numbers: object) -> None:
    for number in numbers:
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number)
        ):
            raise ValueError(f"{number!r} is not a number")
