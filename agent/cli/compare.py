"""``vcagent compare``: whether runs differ, and whether they became worse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.completion import complete_all_runs
from agent.cli.options import AsJson, ResultsDir


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C]...",
            help="Sides: runs separated by commas, each an id, a folder of a run, a fleet run or many runs, "
            "or a quoted pattern.",
            autocompletion=complete_all_runs,
        ),
    ],
    threshold: Annotated[
        str, typer.Option("--threshold", help="The smallest change that matters: 3%, 0.03.")
    ] = "2%",
    history: Annotated[
        list[str] | None,
        typer.Option(
            "--history",
            help="Earlier runs with equal settings, named like A and B: they show the noise between runs.",
            show_default=False,
        ),
    ] = None,
    verbosity: Annotated[
        int,
        typer.Option("--verbosity", min=0, max=5, help="Compare metrics up to this verbosity; 1: headlines."),
    ] = 1,
    page: Annotated[
        Path | None, typer.Option("--html", help="Also write a page with plots.", show_default=False)
    ] = None,
    results_dir: ResultsDir = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Compare runs with the first of them: changed, same, or undecided, with confidence intervals.

    The exit code is 7 if a metric became worse by the threshold or more, or a result no longer counts. It is
    0 otherwise, even if a metric is undecided.
    """
    from agent.comparison.comparing import compare as compared
    from agent.comparison.sides import read_side
    from agent.core.errors import ExitCode, UsageError

    if len(sides) < 2:  # noqa: PLR2004
        raise UsageError("one side cannot be compared", remedy="name two or more: vcagent compare A B")
    if len(set(sides)) < len(sides):
        raise UsageError("a side is named twice", remedy="name different runs for each side")
    share = _share(threshold)
    read = [read_side(name, results_dir) for name in sides]
    earlier = [run for name in history or () for run in read_side(name, results_dir).runs]
    comparison = compared(read, threshold=share, history=earlier, most_verbosity=verbosity)
    if page:
        from agent.core.errors import host_errors
        from agent.report.comparison_page import write_comparison_page

        with host_errors(str(page)):
            write_comparison_page(page, comparison, read)
    if as_json:
        from agent.cli.output import print_document
        from agent.store.command_documents import CompareDocument

        print_document(CompareDocument, comparison.to_json())
    else:
        from agent.cli.output import say
        from agent.core.terminal import safe_console
        from agent.report.comparison_table import print_comparison

        print_comparison(comparison, safe_console(highlight=False))
        if page:
            say(f"Page: {page}")
    raise typer.Exit(ExitCode.RESULT_INVALID if comparison.regressions else ExitCode.OK)


def _share(text: str) -> float:
    """Read a threshold.

    Raises:
        UsageError: if it is not a share between 0 and 1.
    """
    from agent.core.errors import UsageError

    number = text.strip()
    try:
        share = float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise UsageError(f"--threshold: {text!r} is not a share", remedy="such as 3% or 0.03")
    return share
