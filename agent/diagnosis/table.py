"""A diagnosis as rows of text, for a table of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.quantities import plain_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from agent.diagnosis.diagnosis import Defect, Diagnosis

COLUMNS = ("host", "category", "rule", "metric", "value", "baseline", "variance")


def rows(diagnosis: Diagnosis) -> Iterator[tuple[str, ...]]:
    """Yield a row for each defect, then those that it combines; a host without records has one row."""
    for host in diagnosis.hosts:
        if not host.has_records:
            yield (host.host, "", "", "no records", "", "", "")
        for defect in host.defects:
            yield from _rows(host.host, defect, "")
        for one in host.suspicions:
            yield from _rows(host.host, one, "", suspect=True)


def _rows(host: str, defect: Defect, indent: str, *, suspect: bool = False) -> Iterator[tuple[str, ...]]:
    metric = defect.metric if defect.metric is not None else defect.criteria
    unit = defect.unit or ""
    is_missing = defect.metric is not None and defect.value is None
    yield (
        host,
        f"{defect.category} (suspect)" if suspect else defect.category,
        indent + defect.rule,
        metric,
        "missing" if is_missing else "" if defect.value is None else plain_quantity(defect.value, unit),
        "" if defect.baseline is None else plain_quantity(defect.baseline, unit),
        "" if defect.variance is None else f"{defect.variance:+.1%}",
    )
    for one in defect.evidence:
        yield from _rows(host, one, f"{indent}↳ ")


def to_markdown(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as a Markdown table with its warnings and its summary."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows(diagnosis)]
    table = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
    warnings = [f"- {warning}" for warning in diagnosis.warnings]
    return "\n".join([*table, "", *warnings, *([""] if warnings else []), diagnosis.summary()]) + "\n"


def print_defects(diagnosis: Diagnosis, console: Console) -> None:
    """Print the defects as a table, if there are any, and the warnings."""
    from rich.text import Text

    from agent.core.terminal import plain_table

    table = plain_table(*COLUMNS)
    for row in rows(diagnosis):
        table.add_row(*map(Text, row))
    if table.row_count:
        console.print(table)
    for warning in diagnosis.warnings:
        console.print(Text(f"! {warning}", style="yellow"))
