"""Reads the table that lm-eval prints at its end: a row for each task, filter and metric.

Source: lm_eval/utils.py, make_table(). A row leaves out a name that equals the one above it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Relativity
from parsers.lm_eval.results import FORMAT, TOOL, check_error, direction_of, score_of, unit_of
from parsers.numbers import measured, number
from parsers.terminal import whole_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEAD = re.compile(r"^\|\s*(?:Tasks?|Groups?)\s*\|\s*Version\s*\|.*\|\s*Value\s*\|", re.MULTILINE)
_RULE = re.compile(r"[|\s:-]+")
_RUN = re.compile(r"^(?P<model>[\w.-]+) \((?P<arguments>.*)\), (?:gen_kwargs|limit): ", re.MULTILINE)
_STDERR = "Stderr"
_HIGHER = {"↑": True, "↓": False}


def has_table(text: str) -> bool:
    """Return True if a text contains such a table."""
    return _HEAD.search(text) is not None


def parse_table(text: str, source: str = "") -> ParsedOutput:
    """Return the scores of every row.

    Args:
        text: the output of lm-eval.
        source: the file that the text comes from, for errors.

    Raises:
        ParseError: if a row does not fit the header, a score is not a number, or the table has no score.
    """
    text, cut = whole_lines(text)
    try:
        metrics = tuple(_metrics(text))
    except ParseError as error:
        raise ParseError(error.message, where=source or None, remedy=error.remedy) from error
    if not metrics:
        raise ParseError("lm-eval's table holds no score", where=source or None)
    run = _RUN.search(text)
    return ParsedOutput(
        FORMAT,
        TOOL,
        scenario=run["model"] if run else "",
        metrics=metrics,
        complete=not cut,
        details={"model": run["model"]} if run else {},
        sources=(source,) if source else (),
    )


def _metrics(text: str) -> Iterator[Metric]:
    names: list[str] = []
    above: dict[str, str] = {}
    seen: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if _HEAD.match(line):
            names, above = _header(line), {}
        elif not line.startswith("|"):
            names = []
        elif names and not _RULE.fullmatch(line):
            cells = _cells(line)
            if len(cells) != len(names):
                raise ParseError(
                    f"a row of lm-eval's table has {len(cells)} cells, its header {len(names)}: {line[:80]}"
                )
            row = dict(zip(names, cells, strict=True))
            if not row["Tasks"]:  # belongs to the task above
                row |= {name: above.get(name, "") for name in ("Tasks", "Version") if not row.get(name)}
            above = row
            for metric in _row(row):
                key = (metric.scenario or "", metric.name)
                if seen.setdefault(key, metric.value) != metric.value:
                    raise ParseError(
                        f"{metric.name} of {metric.scenario} occurs twice: the text holds several results",
                        remedy="give each run a file of its own",
                    )
                yield metric


def _row(row: Mapping[str, str]) -> Iterator[Metric]:
    task, name = row["Tasks"].lstrip("- "), row.get("Metric", "")
    if not task or not name:
        raise ParseError("a row of lm-eval's table names no task or metric")
    value = score_of(name, number(row["Value"], f"{name} of {task}"))
    if value is None:
        return
    kind = row.get("Filter", "none")
    metadata: dict[str, Any] = {"task": task, "filter": kind}
    metadata |= {
        key: row[column]
        for key, column in (("few_shot", "n-shot"), ("task_version", "Version"))
        if row.get(column)
    }
    shown = name if kind in {"", "none"} else f"{name}_{kind}"
    higher = _HIGHER.get(row.get("direction", ""))
    yield Metric(
        shown, value, unit_of(name, value), direction_of(name, higher), f"{name} of {task}",
        metadata=metadata, scenario=task,
    )  # fmt: skip
    if (stderr := measured(row.get(_STDERR, ""), f"the standard error of {name} of {task}")) is not None:
        check_error(name, value, stderr)
        yield Metric(
            f"{shown}_stderr", stderr, unit_of(name, value), Relativity.LOWER,
            f"standard error of {name} of {task}", 3, metadata=metadata, scenario=task,
        )  # fmt: skip


def _header(line: str) -> list[str]:
    """Return the columns' names; the columns of the arrow and of the standard error's sign have no name."""
    names, unnamed = _cells(line), iter(("direction", "sign"))
    return ["Tasks", *(name or next(unnamed, "") for name in names[1:])]


def _cells(line: str) -> list[str]:
    cells = [cell.strip() for cell in line.strip().removeprefix("|").split("|")]
    return cells[:-1] if not cells[-1] else cells
