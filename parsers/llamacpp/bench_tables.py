"""Reads llama-bench's default output: a Markdown table, followed by the build.

Source: tools/llama-bench/llama-bench.cpp (markdown_printer). The table has a column for each option that is
not at its default, under a short name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = re.compile(r"^\| model +\|.*\| +test +\| +t/s +\|[ \t]*$", re.MULTILINE)
_BUILD = re.compile(r"^build: \w+ \(\d+\)[ \t]*$", re.MULTILINE)
_RULE = re.compile(r"[|\s:-]+")
# A blank before the number until 2024: "pp 512".
_TEST = re.compile(
    r"(?:pp ?(?P<prompt>\d{1,9}))?\+?(?:tg ?(?P<generated>\d{1,9}))?(?: @ d(?P<depth>\d{1,9}))?"
)
# The sign may be any of many characters if the terminal's encoding was not UTF-8.
_RATE = re.compile(r"(?P<rate>\S+)(?:\s+(?:\+/-|[^\w\s.,]{1,4}|Â±)\s+(?P<deviation>\S+))?")
_NAMES = {
    "model": "model_type",
    "backend": "backends",
    "threads": "n_threads",
    "ngl": "n_gpu_layers",
    "fa": "flash_attn",
    "sm": "split_mode",
    "mmap": "use_mmap",
}


def is_markdown(text: str) -> bool:
    """Return True if a text contains such a table."""
    return _HEAD.search(text) is not None


def markdown_complete(text: str) -> bool:
    """Return True if the build follows every table, or if the text has no table."""
    tables = [match.end() for match in _HEAD.finditer(text)]
    ends = [*tables[1:], len(text)][: len(tables)]
    return all(_BUILD.search(text, start, end) for start, end in zip(tables, ends, strict=True))


def markdown_rows(text: str) -> Iterator[dict[str, Any]]:
    """Yield the tests of all tables, under the names of llama-bench's other formats.

    Raises:
        ParseError: if a row does not fit its header, or has no test or rate.
    """
    names: list[str] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            names = [name.strip() for name in line.strip().strip("|").split("|")]
        elif not line.startswith("|"):
            names = []
        elif names and (cells := table_cells(line, len(names))):
            yield _row(dict(zip(names, cells, strict=True)))


def table_cells(line: str, most: int) -> list[str]:
    """Return the cells of a table row; empty for the rule below the header.

    Raises:
        ParseError: if the row has more or fewer cells than its header.
    """
    if _RULE.fullmatch(line):
        return []
    cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
    if len(cells) != most or not line.rstrip().endswith("|"):
        raise ParseError(
            f"a row of the table has {len(cells)} cells, its header {most}: {line[:80]}",
            remedy="see whether lines were lost or the file was changed",
        )
    return cells


def _row(cells: dict[str, str]) -> dict[str, Any]:
    test, rate = _TEST.fullmatch(cells["test"]), _RATE.fullmatch(cells["t/s"])
    if test is None or rate is None or not cells["test"]:
        raise ParseError(
            f"a row of llama-bench's table has the test {cells['test']!r} and the rate {cells['t/s']!r}"
        )
    row: dict[str, Any] = {
        _NAMES.get(name, name): cell for name, cell in cells.items() if name not in {"test", "t/s"}
    }
    return row | {
        "n_prompt": test["prompt"] or 0,
        "n_gen": test["generated"] or 0,
        "n_depth": test["depth"] or 0,
        "avg_ts": rate["rate"],
        "stddev_ts": rate["deviation"],
    }
