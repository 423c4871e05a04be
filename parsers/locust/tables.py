"""Reads Locust's CSV files (1.0 to 2.47): requests, failures and response times by name; users over time.

The files come from ``--csv PREFIX``, or from the web UI as ``requests_<time>.csv``.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Reason, Relativity, Validity, Verdict
from parsers.numbers import measured, number
from parsers.trees import beginning, files_in, parse_files, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.core.records import MetadataValue

FORMAT = TOOL = "locust"
AGGREGATED = "Aggregated"
"""The name of the row with the totals."""
STATS, HISTORY, FAILURES = "_stats.csv", "_stats_history.csv", "_failures.csv"
LOAD_FILE = "load.json"
"""If this file is in the same folder, the tables belong to a load test, which is read as a whole."""
_COLUMNS = {"Type", "Name", "Request Count", "Failure Count"}
_OWN_EVENTS = {"TTFT", "TPOT"}
"""Types that LocustLoad's users count in addition to their requests."""
_LOWER, _HIGHER, _PLAIN = Relativity.LOWER, Relativity.HIGHER, Relativity.UNDEFINED
_SHOWN_FAILURES = 5
_TIMES = {
    "Average Response Time": ("response_time_mean", 1),
    "Min Response Time": ("response_time_min", 3),
    "Max Response Time": ("response_time_max", 3),
    **{f"{percent}%": (f"response_time_p{percent.replace('.', '_')}", verbosity)
       for percent, verbosity in (("50", 1), ("66", 3), ("75", 3), ("80", 3), ("90", 2), ("95", 2),
                                  ("98", 3), ("99", 1), ("99.9", 3), ("99.99", 3))},
}  # fmt: skip
"""Columns in milliseconds, with the metric's name and verbosity."""

Row = dict[str, str]


def recognise(path: Path) -> bool:
    """Return True if a file is locust's table of requests, or a folder has one outside of a load test."""
    return any(map(_is_of_a_tree, files_in(path))) if path.is_dir() else _is_stats(path)


def parse(path: Path) -> list[ParsedOutput]:
    """Return an output for each row of a table, or of all tables in a folder: each request, and the total.

    Raises:
        ParseError: if there is no table, the only one has no rows, or no request was made.
    """
    return parse_files(path, FORMAT, TOOL, _is_of_a_tree, lambda file: list(_table(file)), always=False)


def requests_counted(path: Path) -> int:
    """Return the number of requests in a table, without its totals and without the users' additional types.

    Raises:
        ParseError: if it is not such a table.
    """
    rows, _ = _rows(path)
    own = (row for row in rows if row.get("Name") != AGGREGATED and row.get("Type") not in _OWN_EVENTS)
    return int(sum(_count(row, "Request Count") for row in own))


def _is_of_a_tree(path: Path) -> bool:
    return path.suffix.lower() == ".csv" and not (path.parent / LOAD_FILE).is_file() and _is_stats(path)


def _is_stats(path: Path) -> bool:
    try:
        header = next(csv.reader(io.StringIO(beginning(path, 1 << 12))), [])
    except csv.Error:
        return False
    return set(header) >= _COLUMNS


def _rows(path: Path) -> tuple[list[Row], bool]:
    """Return the complete rows, and True if no row is incomplete.

    Raises:
        ParseError: if a row has more cells than the header, or the file holds two tables.
    """
    text = text_of(path)
    try:
        lines = [cells for cells in csv.reader(io.StringIO(text, newline=""), strict=False) if cells]
    except csv.Error as error:
        raise ParseError(f"is not a table of locust: {error}", where=str(path)) from error
    header, rows = (lines[0], lines[1:]) if lines else ([], [])
    if header in rows:
        raise ParseError(
            "contains two tables", where=str(path), remedy="keep the table of each run in a file of its own"
        )
    longest = max((len(cells) for cells in rows), default=0)
    if longest > len(header):
        raise ParseError(
            f"a row has {longest} cells, the header {len(header)}",
            where=str(path),
            remedy="see whether the file was changed, or written with a decimal comma",
        )
    whole = [dict(zip(header, cells, strict=True)) for cells in rows if len(cells) == len(header)]
    complete = len(whole) == len(rows) and text.endswith("\n")
    if whole and not text.endswith("\n") and len(rows[-1]) == len(header):
        whole[-1][header[-1]] = ""  # the last cell may be incomplete
    return whole, complete


def _table(path: Path) -> Iterator[ParsedOutput]:
    rows, complete = _rows(path)
    if not rows or not set(rows[0]) >= _COLUMNS:
        raise ParseError(
            "locust's table has no request", where=str(path), remedy="see locust's output: no user made one"
        )
    names = [(row["Type"], row["Name"]) for row in rows]
    if len(set(names)) < len(names):
        raise ParseError("a request has two rows: the file contains several tables", where=str(path))
    complete = complete and rows[-1]["Name"] == AGGREGATED  # locust writes this row last
    failed, most_users, sources, warnings = _beside(path)
    outputs = 0
    for row in rows:
        count, failures = (_count(row, column, path) for column in ("Request Count", "Failure Count"))
        if failures > count:
            raise ParseError(
                f"{failures:.0f} of {count:.0f} requests of {row['Name']!r} failed", where=str(path)
            )
        if not count:
            continue
        outputs += 1
        whole = row["Name"] == AGGREGATED
        own = [entry for entry in failed if whole or _same(entry, row)]
        try:
            metrics = tuple(_metrics(row, count, failures, most_users if whole else None))
        except ParseError as error:
            raise ParseError(error.message, where=str(path), remedy=error.remedy) from error
        yield ParsedOutput(
            format=FORMAT,
            tool_name=TOOL,
            scenario=f"{row['Type']} {row['Name']}".strip(),
            metrics=metrics,
            verdict=_verdict(row, count, failures, own, warnings),
            complete=complete,
            sources=sources,
        )
    if not outputs:
        raise ParseError(
            "locust's table has no request", where=str(path), remedy="see locust's output: no user made one"
        )


def _beside(path: Path) -> tuple[list[Row], float | None, tuple[str, ...], tuple[str, ...]]:
    """Return the failures, the most concurrent users, the files, and the files that could not be read."""
    sources, warnings = [str(path)], []
    failed: list[Row] = []
    most_users: float | None = None
    if path.name.endswith(STATS):
        prefix = path.name.removesuffix(STATS)
        for suffix in (FAILURES, HISTORY):
            file = path.with_name(prefix + suffix)
            if not file.is_file():
                continue
            sources.append(str(file))
            try:
                rows = _rows(file)[0]
                if suffix == FAILURES:
                    failed = rows
                else:  # locust 2.20 may end before any user exists
                    users = (number(row.get("User Count", ""), "User Count") for row in rows)
                    most_users = max((count for count in users if count), default=None)
            except ParseError as error:
                warnings.append(f"{file.name} cannot be read: {error.message}")
    return failed, most_users, tuple(sources), tuple(warnings)


def _same(failure: Mapping[str, str], row: Mapping[str, str]) -> bool:
    return failure.get("Method") == row["Type"] and failure.get("Name") == row["Name"]


def _count(row: Mapping[str, str], column: str, path: Path | None = None) -> float:
    try:
        count = measured(row[column], column)
    except ParseError as error:
        raise ParseError(error.message, where=str(path) if path else None, remedy=error.remedy) from error
    if count is not None and not count.is_integer():
        raise ParseError(
            f"{column} is {row[column]}, which is not a count", where=str(path) if path else None
        )
    return count or 0.0


def _metrics(
    row: Mapping[str, str], count: float, failures: float, most_users: float | None
) -> Iterator[Metric]:
    yield Metric("request_count", count, "count", _PLAIN, "requests, failed ones included", 2)
    yield Metric("request_failures", failures, "count", _LOWER, "failed requests", 2)
    yield Metric("request_failure_ratio", failures / count, "ratio", _LOWER, "failed requests", 1)
    if (rate := measured(row.get("Requests/s", ""), "Requests/s")) is not None:
        yield Metric("requests_per_second", rate, "requests/s", _HIGHER, "over the whole test", 1)
    if most_users is not None:
        yield Metric("users", most_users, "count", _PLAIN, "most users at once", 2)
    for column, (name, verbosity) in _TIMES.items():
        milliseconds = number(row.get(column, ""), column)
        if milliseconds is not None and milliseconds >= 0:
            own: dict[str, MetadataValue] = {"locust_value": milliseconds, "locust_unit": "ms"}
            yield Metric(name, milliseconds / 1e3, "seconds", _LOWER, column, verbosity, metadata=own)


def _verdict(
    row: Mapping[str, str], count: float, failures: float, failed: list[Row], warnings: tuple[str, ...]
) -> Verdict:
    reasons = tuple(_reasons(row, count, failures, failed))
    validity = Validity.FAILED if failures >= count else Validity.INVALID if reasons else Validity.VALID
    return Verdict(validity, reasons, warnings)


def _reasons(row: Mapping[str, str], count: float, failures: float, failed: list[Row]) -> Iterator[Reason]:
    if failures:
        kinds = sorted(failed, key=lambda entry: -_occurrences(entry))
        told = "; ".join(
            f"{entry.get('Occurrences')} of {entry.get('Error')}" for entry in kinds[:_SHOWN_FAILURES]
        )
        message = f"{failures:.0f} of {count:.0f} requests failed" + (f": {told}" if told else "")
        yield Reason(message, "see what the server logged at that time", code="request_failures")
    below = [column for column in _TIMES if (number(row.get(column, ""), column) or 0) < 0]
    if below:
        yield Reason(
            f"{', '.join(below)} is below 0, and was ignored",
            "the clock was stepped during the test: run it again",
            code="below_0",
        )


def _occurrences(entry: Mapping[str, str]) -> float:
    try:
        return number(entry.get("Occurrences", ""), "Occurrences") or 0.0
    except ParseError:
        return 0.0
