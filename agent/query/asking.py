"""A question in SQL, and its answer row by row."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.query.index import Index, import_duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

_ROWS = 1000
_TABLES = "vcagent query --tables shows tables and columns"
_STATEMENTS = ("SELECT", "EXPLAIN", "MULTI")
"""What only reads; the last is PIVOT."""


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Args:
        columns: the names of its columns, each once.
        types: their types in DuckDB.
        rows: its rows; read as they are asked for, so that a long answer takes no memory.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Iterator[Sequence[Any]]


@contextmanager
def ask(sql: str, run_dirs: Sequence[Path], index: Index) -> Iterator[Answer]:
    """Ask a question about runs.

    Args:
        sql: one statement that reads.
        run_dirs: the folders of the runs, absolute.
        index: the index; brought up to date first.

    Raises:
        UsageError: if DuckDB is missing, or the statement is wrong or does not only read.
        HostError: if the runs cannot be read into the index.
    """
    import_duckdb()
    with _sql_errors():
        _check(sql)
    with index.opened(run_dirs) as connection:
        with _sql_errors():
            connection.execute(sql)
            described = connection.description or []
        yield Answer(
            _distinct([str(column[0]) for column in described]),
            tuple(str(column[1]) for column in described),
            _rows(connection),
        )


def _rows(connection: DuckDBPyConnection) -> Iterator[Sequence[Any]]:
    with _sql_errors():
        while rows := connection.fetchmany(_ROWS):
            yield from rows


def _check(sql: str) -> None:
    import duckdb

    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        raise UsageError(
            f"a question is one statement of SQL, not {len(statements)}",
            remedy="such as: vcagent query 'SELECT * FROM runs'",
        )
    kind = statements[0].type.name
    if kind not in _STATEMENTS:
        raise UsageError(
            f"runs can only be read, and {kind} is not a SELECT",
            remedy="such as: vcagent query 'SELECT * FROM runs'",
        )


@contextmanager
def _sql_errors() -> Iterator[None]:
    """Turn DuckDB's errors into errors with a remedy."""
    import duckdb

    try:
        yield
    except RuntimeError as error:
        if "interrupt" not in str(error).lower():
            raise
        raise KeyboardInterrupt from error  # DuckDB's word for Ctrl-C
    except duckdb.PermissionException as error:
        raise UsageError(
            f"a question reads the tables of runs, no files: {_short(error)}", remedy=_TABLES
        ) from error
    except duckdb.OutOfMemoryException as error:
        raise UsageError(
            f"the answer takes more memory than a question may use: {_short(error)}",
            remedy="filter (WHERE) or count (GROUP BY) more",
        ) from error
    except duckdb.Error as error:
        raise UsageError(f"the question cannot be answered: {_short(error)}", remedy=_TABLES) from error


def _short(error: Exception) -> str:
    return str(error).strip()


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Return the names with a number behind those that are there already."""
    found: list[str] = []
    for name in names:
        number, distinct = 1, name
        while distinct in found:
            number += 1
            distinct = f"{name}_{number}"
        found.append(distinct)
    return tuple(found)
