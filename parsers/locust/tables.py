"""Locust's CSV files (2.20 to 2.47): requests, failures and response times by name; users over time."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Reason, Relativity, Validity, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.core.records import MetadataValue

__all__ = ["AGGREGATED", "parse", "recognise"]

AGGREGATED = "Aggregated"
"""The name of the row that sums up all others."""
STATS, HISTORY, FAILURES = "_stats.csv", "_stats_history.csv", "_failures.csv"
_COLUMNS = {"Type", "Name", "Request Count", "Failure Count"}
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
"""Columns in milliseconds, by the metric that each becomes, with its verbosity."""


def recognise(path: Path) -> bool:
    """Whether a file is locust's table of requests, or a folder holds one and is not a load test's own."""
    if path.is_dir():
        return not (path / "load.json").is_file() and any(map(_is_stats, path.glob(f"*{STATS}")))
    return path.name.endswith(STATS) and _is_stats(path)


def parse(path: Path) -> list[ParsedOutput]:
    """One output for each row: a request's type and name, and all of them together.

    Raises:
        ParseError: if there is no table, it has no rows, or no request was made.
    """
    files = sorted(path.glob(f"*{STATS}")) if path.is_dir() else [path]
    outputs = [output for file in files if _is_stats(file) for output in _table(file)]
    if not outputs:
        raise ParseError(
            "locust's table has no request", where=str(path), remedy="see locust's output: no user made one"
        )
    return outputs


def _is_stats(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return set(header) >= _COLUMNS


def _rows(path: Path) -> tuple[list[dict[str, str]], bool]:
    """The rows that are whole, and whether none was cut."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        text = file.read()
    reader = csv.DictReader(text.splitlines())
    rows = list(reader)
    whole = [row for row in rows if None not in row.values() and None not in row]
    return whole, len(whole) == len(rows) and text.endswith("\n")


def _table(path: Path) -> Iterator[ParsedOutput]:
    rows, complete = _rows(path)
    complete = complete and bool(rows) and rows[-1]["Name"] == AGGREGATED  # locust writes that row last
    prefix = path.name.removesuffix(STATS)
    failures = path.with_name(prefix + FAILURES)
    history = path.with_name(prefix + HISTORY)
    failed = _rows(failures)[0] if failures.is_file() else []
    most_users = _most_users(history) if history.is_file() else None
    sources = tuple(str(file) for file in (path, failures, history) if file.is_file())
    for row in rows:
        count = _number(row["Request Count"])
        if not count:
            continue
        whole = row["Name"] == AGGREGATED
        own = [entry for entry in failed if whole or _same(entry, row)]
        users = most_users if whole else None
        yield ParsedOutput(
            format="locust",
            tool_name="locust",
            scenario=f"{row['Type']} {row['Name']}".strip(),
            metrics=tuple(_metrics(row, count, users)),
            verdict=_verdict(row, count, own),
            complete=complete,
            sources=sources,
        )


def _same(failure: Mapping[str, str], row: Mapping[str, str]) -> bool:
    return failure.get("Method") == row["Type"] and failure.get("Name") == row["Name"]


def _metrics(row: Mapping[str, str], count: float, most_users: float | None) -> Iterator[Metric]:
    failures = _number(row["Failure Count"]) or 0.0
    yield Metric("request_count", count, "count", _PLAIN, "requests, failed ones included", 2)
    yield Metric("request_failures", failures, "count", _LOWER, "failed requests", 2)
    yield Metric("request_failure_ratio", failures / count, "ratio", _LOWER, "failed requests", 1)
    if (rate := _number(row.get("Requests/s", ""))) is not None:
        yield Metric("requests_per_second", rate, "requests/s", _HIGHER, "over the whole test", 1)
    if most_users is not None:
        yield Metric("users", most_users, "count", _PLAIN, "most users at once", 2)
    for column, (name, verbosity) in _TIMES.items():
        if (milliseconds := _number(row.get(column, ""))) is not None:
            own: dict[str, MetadataValue] = {"locust_value": milliseconds, "locust_unit": "ms"}
            yield Metric(name, milliseconds / 1e3, "seconds", _LOWER, column, verbosity, metadata=own)


def _verdict(row: Mapping[str, str], count: float, failed: list[dict[str, str]]) -> Verdict:
    failures = _number(row["Failure Count"]) or 0.0
    if not failures:
        return Verdict(Validity.VALID)
    kinds = sorted(failed, key=lambda entry: -(_number(entry.get("Occurrences", "")) or 0))
    told = "; ".join(f"{entry['Occurrences']} of {entry['Error']}" for entry in kinds[:_SHOWN_FAILURES])
    message = f"{failures:.0f} of {count:.0f} requests failed" + (f": {told}" if told else "")
    return Verdict(
        Validity.FAILED if failures >= count else Validity.INVALID,
        (Reason(message, "see what the server logged at that time", code="request_failures"),),
    )


def _most_users(history: Path) -> float | None:
    """The most users at once; None where the file ends before any (2.20's writer may die)."""
    users = (_number(row.get("User Count", "")) for row in _rows(history)[0])
    return max((count for count in users if count), default=None)


def _number(text: str) -> float | None:
    """A finite number; None for ``N/A`` and what else is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
