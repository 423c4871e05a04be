"""What a run says at its end, on the terminal and to its caller."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from agent.run.session import FinishedRun

__all__ = ["finish"]


def finish(finished: FinishedRun, *, as_json: bool) -> None:
    """Print the result and end with the run's exit code."""
    outcome = finished.outcome
    try:
        if not finished.description:
            _tell_without_report(finished)
        elif as_json:
            from agent.cli.output import print_json

            print_json({**finished.description, "report": str(finished.report) if finished.report else None})
        else:
            from rich.console import Console

            from agent.cli.output import console
            from agent.report import render_result
            from agent.run.session import TERMINAL_LOG
            from agent.store.metric_lines import read_records

            records = read_records(finished.run_dir / "metrics.jsonl")
            render_result(finished.description, records, console(), run_dir=finished.run_dir)
            with (
                suppress(OSError),
                (finished.run_dir / "logs" / TERMINAL_LOG).open("a", encoding="utf-8") as log,
            ):
                paper = Console(file=log, width=120, no_color=True, highlight=False)
                render_result(finished.description, records, paper, run_dir=finished.run_dir)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads the result: it is what it is
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(outcome.exit_code)


def _tell_without_report(finished: FinishedRun) -> None:
    from agent.cli.output import print_error

    if finished.outcome.error:
        print_error(finished.outcome.error)
    for warning in finished.outcome.warnings:
        print(f"warning: {warning}", file=sys.stderr)
