"""Rows of llama-bench and llama-batched-bench whose numbers do not follow from each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import ParseError

HERE = Path(__file__).parent
JSON, CSV = "logs/b11434-bench.json", "logs/b11434-bench.csv"
MARKDOWN, SQL = "pasted/bench-markdown.txt", "pasted/bench.sql"
LINES, TABLE = "logs/b11434-batched-bench.log", "logs/b11434-batched-bench-table.log"

CHANGES: dict[str, tuple[str, str, str]] = {
    "a digit of the rate lost": (JSON, r"118\.438571", "18.438571"),
    "a digit of the time lost": (JSON, "137309688", "13730968"),
    "a repetition of another run": (JSON, r"133\.493", "33.493"),
    "a deviation of another run": (JSON, r"21\.290868", "2129.0868"),
    "tokens times ten": (JSON, '"n_prompt": 16', '"n_prompt": 160'),
    "no tokens": (JSON, '"n_prompt": 16', '"n_prompt": 0'),
    "CSV: a digit of the rate lost": (CSV, r"43\.863131", "4.863131"),
    "CSV: columns swapped": (CSV, "avg_ts,stddev_ts", "stddev_ts,avg_ts"),
    "CSV: times ten": (CSV, '"43.863131"', '"438.63131"'),
    "Markdown: a deviation above any": (MARKDOWN, r"12\.31", "91212.31"),
    "SQL: columns swapped": (SQL, r"avg_ts, stddev_ts\) VALUES", "stddev_ts, avg_ts) VALUES"),
    "batched: a digit of the rate lost": (LINES, r"78\.231194", "8.231194"),
    "batched: rates of two columns swapped": (LINES, '"speed_tg": 18.194471', '"speed_tg": 47.128799'),
    "batched: a total of another row": (LINES, '"t": 0.424369', '"t": 0.859594'),
    "batched: another number of sequences": (LINES, '"pl": 1,', '"pl": 4,'),
    "table: a digit of the rate lost": (TABLE, r" 46\.28 ", " 6.28 "),
    "table: a digit of the time lost": (TABLE, r" 0\.633 ", " 0.063 "),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_row_that_contradicts_itself_is_refused(tmp_path: Path, name: str) -> None:
    file, pattern, replacement = CHANGES[name]
    text, count = re.subn(pattern, replacement, (HERE / file).read_text(), count=1)
    assert count == 1
    path = tmp_path / Path(file).name
    path.write_text(text)
    with pytest.raises(ParseError, match=r" is [\d.e+]+, but .*(other numbers|tokens|rate)"):
        parse_path(path)


@pytest.mark.parametrize("file", [JSON, CSV, MARKDOWN, SQL, LINES, TABLE])
def test_a_row_as_it_was_written_is_read(file: str) -> None:
    (output,) = parse_path(HERE / file)
    assert output.metrics
