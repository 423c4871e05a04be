"""Lays text out for a terminal's width; in a pipe every entry is one whole line."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

_GAP = "  "


def print_entry(console: Console, lead: Text, text: str, *, indent: int, style: str = "") -> None:
    """Print a text after its lead; further lines are indented. Paths and addresses are never broken.

    Args:
        console: where it is shown.
        lead: the beginning of the first line.
        text: the text.
        indent: columns before further lines.
        style: the text's style.
    """
    for number, paragraph in enumerate(text.splitlines() or [""]):
        first = lead if number == 0 else Text(" " * indent)
        lines = [paragraph]
        if console.is_terminal:
            lines = textwrap.wrap(
                paragraph,
                max(20, console.width),
                initial_indent=" " * first.cell_len,
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [" " * first.cell_len]
            lines[0] = lines[0][first.cell_len :]
        console.print(first.copy().append(lines[0], style=style or None), soft_wrap=True)
        for line in lines[1:]:
            console.print(Text(line, style=style), soft_wrap=True)


def print_lines(console: Console, text: str, *, lead: Text | None = None) -> None:
    """Print lines of text; a line that is wrapped goes on two columns right of its own beginning.

    Args:
        console: where it is shown.
        text: the lines; each may begin with blanks and with an arrow.
        lead: the beginning of the first line.
    """
    for number, line in enumerate(text.splitlines() or [""]):
        start = lead if lead and number == 0 else Text()
        body = line.lstrip(" ")
        blanks = len(line) - len(body)
        print_entry(console, start.copy().append(" " * blanks), body, indent=blanks + 2)


def print_columns(console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns below titles with a rule. A terminal cuts the last column; the others are whole.

    Args:
        console: where it is shown.
        titles: the titles of the columns.
        rows: the cells.
    """
    widths = [max(len(row[place]) for row in (titles, *rows)) for place in range(len(titles))]
    used = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    last = max(len(titles[-1]), console.width - used) if console.is_terminal else len(titles[-1])
    rule = ["─" * width for width in (*widths[:-1], min(widths[-1], last))]
    for number, row in enumerate((titles, rule, *rows)):
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        line = Text(_GAP.join(cells).rstrip(), style="bold" if number == 0 else "")
        if console.is_terminal:
            line.truncate(console.width, overflow="ellipsis")
        console.print(line, soft_wrap=True)
