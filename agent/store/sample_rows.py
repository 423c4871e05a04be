"""samples.csv: one row for each sample of a case."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, NamedTuple

from agent.core.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAMPLES_FILE = "samples.csv"
_REQUIRED = ("issued_s", "completed_s")


class Sample(NamedTuple):
    """One sample; times in seconds since the start, None if it did not reach that point."""

    issued_s: float
    first_token_s: float | None
    completed_s: float | None
    tokens: int


def _number(text: str | None) -> float | None:
    if text is None or not text.strip():
        return None
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _sample(row: dict[str, str | None]) -> Sample:
    """Read a row; raise ValueError if it is not valid."""
    issued_s = _number(row["issued_s"])
    first_s = _number(row.get("first_token_s"))
    completed_s = _number(row["completed_s"])
    tokens = _number(row.get("output_tokens")) or 0
    if issued_s is None or tokens < 0:
        raise ValueError("a sample without the time of its issue, or with negative tokens")
    times = [issued_s, *(moment for moment in (first_s, completed_s) if moment is not None)]
    if times != sorted(times):
        raise ValueError("a sample that ends before it begins")
    return Sample(issued_s, first_s, completed_s, int(tokens))


def read_rows(path: Path) -> Iterator[Sample | None]:
    """Yield each row of the file, or None for a row that cannot be read.

    Raises:
        ParseError: if a column that every such file has is missing.
    """
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        if missing := [name for name in _REQUIRED if name not in (reader.fieldnames or ())]:
            raise ParseError(f"{path.name} has no column {' and no column '.join(missing)}", where=str(path))
        for row in reader:
            try:
                yield _sample(row)
            except (ValueError, TypeError):
                yield None
