"""What a run says at its end, on the terminal and to its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from agent.run import FinishedRun

__all__ = ["finish"]


def finish(finished: FinishedRun, *, as_json: bool) -> None:
    """Print the result and end with the run's exit code."""
    if as_json:
        from agent.cli.output import print_json

        print_json({**finished.description, "report": str(finished.report) if finished.report else None})
    else:
        from rich.console import Console

        from agent.report import render_result
        from agent.report.run_folder import read_records

        records = read_records(finished.run_dir / "metrics.jsonl")
        render_result(finished.description, records, Console(), run_dir=finished.run_dir)
    raise typer.Exit(finished.outcome.exit_code)
