"""Prints a run's end on the terminal, and sets the exit code."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.core.records import MetricRecord
    from agent.run.session import FinishedRun


def finish(finished: FinishedRun, *, as_json: bool) -> None:
    """Print the result and end with the run's exit code."""
    outcome = finished.outcome
    if not finished.description:
        _tell_without_report(finished, as_json=as_json)
    elif as_json:
        from agent.cli.output import print_json

        print_json({**finished.description, "report": str(finished.report) if finished.report else None})
    else:
        from agent.core.errors import UsageError
        from agent.core.safe_files import append_to
        from agent.core.terminal import safe_console
        from agent.report.terminal import render_result
        from agent.run.session import TERMINAL_LOG
        from agent.store.metric_lines import read_records

        records: Iterable[MetricRecord] = ()
        with suppress(OSError, UsageError):  # the run's folder is gone: its verdict shows it
            records = list(read_records(finished.run_dir / "metrics.jsonl"))
        render_result(finished.description, records, safe_console(), run_dir=finished.run_dir)
        with suppress(OSError), append_to(finished.run_dir / "logs" / TERMINAL_LOG) as log:
            paper = safe_console(file=log, width=120, no_color=True, highlight=False)
            render_result(finished.description, records, paper, run_dir=finished.run_dir)
    raise typer.Exit(outcome.exit_code)


def _tell_without_report(finished: FinishedRun, *, as_json: bool) -> None:
    from agent.cli.output import print_error, print_error_document, say

    if finished.outcome.error and as_json:
        print_error_document(finished.outcome.error)
    if finished.outcome.error:
        print_error(finished.outcome.error)
    for warning in finished.outcome.warnings:
        say(f"warning: {warning}", error=True)
