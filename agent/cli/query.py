"""``vcagent query``: questions in SQL over runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli.options import AsJson, IndexDir, ResultsDir

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.query.asking import Answer
    from agent.query.index import Index

_MOST_ROWS = 1000
"""Rows of a table for people; JSON and CSV have all."""
_MOST_CHARACTERS = 10_000
"""Characters of a cell of such a table."""
_LEAST_CELL = 12
"""Columns of a terminal that a long cell needs, so that its pieces can still be read."""
_GAP = 2


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT of DuckDB's SQL.", show_default=False)
    ] = "",
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Runs: ids, folders of a run, a fleet run or many runs, or quoted patterns.",
            show_default="all in the results folder, and those of its fleet runs",
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    show_tables: Annotated[bool, typer.Option("--tables", help="Show the tables and their columns.")] = False,
    results_dir: ResultsDir = Path("results"),
    index_dir: IndexDir = None,
    as_json: AsJson = False,
) -> None:
    """Ask a question in SQL over any number of runs.

    The tables are runs, cases, metrics, contexts and steps. They are only read.
    """
    from agent.core.errors import UsageError

    if show_tables:
        _show_tables(as_json=as_json)
        return
    if not sql.strip():
        raise UsageError("there is no question", remedy="such as: vcagent query 'SELECT * FROM runs'")
    if as_csv and as_json:
        raise UsageError("--csv and --json exclude each other", remedy="choose one")
    from agent.query.asking import ask
    from agent.store.run_folders import all_run_folders, run_folders

    root = results_dir.resolve()
    found = [one for name in runs for one in run_folders(name, root)] if runs else all_run_folders(root)
    if not found:
        raise UsageError(
            f"there are no runs in {root}", remedy="name the folder of the runs with --results-dir"
        )
    with ask(sql, _absolute(found), open_index(index_dir)) as answer:
        if as_json:
            _print_json(answer)
        elif as_csv:
            _print_csv(answer)
        else:
            _print_table(answer)


def _absolute(found: Iterable[Path]) -> list[Path]:
    """Return absolute folders, each once; the folder that many of them are in is resolved once."""
    places: dict[str, Path] = {}
    folders: dict[Path, None] = {}
    for path in found:
        parent, name = os.path.split(path)
        if parent not in places:
            places[parent] = Path(parent).resolve()
        folders[places[parent] / name] = None
    return list(folders)


def open_index(folder: Path | None) -> Index:
    """Return the index in a folder; without one, in this user's cache."""
    from agent.cli.output import say
    from agent.facts.agent_paths import cache_dir
    from agent.query.index import Index

    own = cache_dir(os.environ, root=os.geteuid() == 0) / "query"
    return Index((folder or own).absolute(), lambda text: say(text, error=True))


def _show_tables(*, as_json: bool) -> None:
    """Print the tables with their columns; as JSON, one object for each column."""
    from agent.query.tables import TABLES

    if as_json:
        from agent.cli.output import print_json

        print_json(
            [
                {"table": name, "column": column.name, "type": column.type, "meaning": column.meaning}
                for name, one in TABLES.items()
                for column in one.columns
            ]
        )
        return
    from agent.core.terminal import plain_table, safe_console

    table = plain_table("table", "column", "type", "what it holds")
    for name, one in TABLES.items():
        table.add_section()
        table.add_row(name, "", "", one.meaning)
        for column in one.columns:
            table.add_row("", column.name, column.type, column.meaning)
    safe_console(highlight=False).print(table)


def _print_table(answer: Answer) -> None:
    """Print the rows below each other; rows that a terminal is too narrow for, value by value."""
    from itertools import islice

    from rich.text import Text

    from agent.cli.output import say
    from agent.core.layout import print_entry
    from agent.core.terminal import plain_table, printable, safe_console

    rows = [[_printable(value) for value in row] for row in islice(answer.rows, _MOST_ROWS)]
    more = next(answer.rows, None) is not None
    console = safe_console(highlight=False)
    names = [printable(name) for name in answer.columns]
    longest = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    least = [max(len(name), min(length, _LEAST_CELL)) for name, length in zip(names, longest, strict=True)]
    if sum(least) + _GAP * (len(names) - 1) <= console.width:
        table = plain_table()
        for name, kind in zip(names, answer.types, strict=True):
            is_number = kind.startswith(("DECIMAL", "DOUBLE", "FLOAT")) or "INT" in kind.partition("[")[0]
            table.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    else:
        width = max(map(len, names))
        for number, row in enumerate(rows, 1):
            console.print(Text(f"row {number:,}", style="bold"))
            for name, cell in zip(names, row, strict=True):
                print_entry(console, Text(f"  {name:<{width}}  "), cell, indent=width + 4)
    if more:
        say(f"these are the first {_MOST_ROWS:,} rows; --csv and --json print all", error=True)


def _printable(value: Any) -> str:
    """Return a value for a table, cut after some screens: --csv and --json print all of it."""
    from agent.core.terminal import printable

    text = _cell(value)
    return printable(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…")


def _print_csv(answer: Answer) -> None:
    import csv
    import io

    from agent.cli.output import say
    from agent.core.terminal import plain_cell

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(plain_cell, answer.columns))
    for row in answer.rows:
        writer.writerow(plain_cell(_text(value)) for value in row)
        say(text.getvalue(), end="")
        text.seek(0)
        text.truncate()
    say(text.getvalue(), end="")


def _print_json(answer: Answer) -> None:
    import json

    from agent.cli.output import say

    start = "[\n"
    for row in answer.rows:
        values = {
            name: _plain(value, kind)
            for name, kind, value in zip(answer.columns, answer.types, row, strict=True)
        }
        say(f"{start}  {json.dumps(values, default=_text)}", end="")
        start = ",\n"
    say("[]" if start == "[\n" else "\n]")


def _plain(value: Any, kind: str) -> Any:
    """Return a value as JSON has it; what JSON cannot hold, such as infinity, is absent."""
    import json
    import math
    from contextlib import suppress
    from decimal import Decimal

    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if kind == "JSON" and isinstance(value, str):
        with suppress(ValueError):
            return json.loads(value)
    if isinstance(value, dict):
        return {str(key): _plain(item, "") for key, item in value.items()}
    return [_plain(item, "") for item in value] if isinstance(value, (list, tuple)) else value


def _text(value: Any) -> str:
    """Return a value as text; times in UTC as in records, nothing for what is absent."""
    import json
    from datetime import datetime

    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo else f"{value.isoformat()}+00:00"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, default=_text) if isinstance(value, (dict, list)) else str(value)


def _cell(value: Any) -> str:
    """Return a value for people."""
    from datetime import datetime

    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"  # noqa: PLR2004 - as many digits
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")[:19]
    return ", ".join(map(_cell, value)) if isinstance(value, list) else _text(value)
