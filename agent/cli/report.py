"""``vcagent report``: write a run's report again and show its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.completion import complete_all_runs
from agent.cli.options import AsJson, ResultsDir


def report(
    run: Annotated[
        str | None,
        typer.Argument(
            help="The id of a run or fleet run, its beginning, or its folder.",
            show_default="the latest",
            autocompletion=complete_all_runs,
        ),
    ] = None,
    results_dir: ResultsDir = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Show the result of a run or fleet run, and write its report again from its folder."""
    from agent.core.errors import UsageError
    from agent.fleet.record import fleet_folder
    from agent.report.html import write_report
    from agent.report.rollup import write_rollup
    from agent.report.terminal import render_result
    from agent.store.documents import FLEET_FILE, RunDocument
    from agent.store.metric_lines import read_records

    folder = _found(results_dir, run)
    if (folder / FLEET_FILE).is_file() or folder.parent == fleet_folder(results_dir).path:
        _report_fleet(folder, as_json=as_json)
        return
    try:
        description = RunDocument.read(folder).to_json()
    except UsageError as error:
        raise UsageError(
            f"run {folder.name} cannot be shown: {error.message}", remedy=f"vcagent resume {folder.name}"
        ) from error
    rollup = write_rollup(folder)
    page = write_report(folder)
    if as_json:
        from agent.cli.output import print_json

        print_json({**json.loads(rollup.read_text(encoding="utf-8")), "report": str(page)})
        return
    from agent.core.terminal import safe_console

    render_result(description, read_records(folder / "metrics.jsonl"), safe_console(), run_dir=folder)


def _found(results_dir: Path, run: str | None) -> Path:
    """Return the folder of a run, or of a fleet run if there is no run of that name."""
    from agent.core.errors import UsageError
    from agent.fleet.record import fleet_folder
    from agent.store.results import ResultsFolder

    try:
        return ResultsFolder(results_dir).find(run)
    except UsageError:
        fleets = fleet_folder(results_dir)
        names = [path.name for path in fleets.runs()]
        if names and (run is None or any(name.startswith(run) for name in names)):
            return fleets.find(run)
        raise


def _report_fleet(folder: Path, *, as_json: bool) -> None:
    from agent.core.errors import UsageError
    from agent.fleet.outcome import write_outcome
    from agent.fleet.record import FleetRecord, is_worked_on
    from agent.fleet.run import has_begun
    from agent.store.documents import FLEET_FILE
    from agent.store.journal import Journal
    from agent.store.results import JOURNAL

    if is_worked_on(folder):
        raise UsageError(
            f"fleet run {folder.name} is at work", remedy=f"vcagent fleet status {folder.name} shows it"
        )
    if not (folder / FLEET_FILE).is_file() and not has_begun(folder):
        raise UsageError(
            f"fleet run {folder.name} started on no host",
            remedy=f"vcagent fleet resume {folder.name} tries again, and says what is missing",
        )
    with Journal(folder / JOURNAL) as journal:
        description = write_outcome(folder, FleetRecord(journal))
    if as_json:
        from agent.cli.output import print_json

        print_json(description)
        return
    from agent.cli.output import say
    from agent.core.terminal import safe_console
    from agent.fleet.terminal import render_fleet
    from agent.store.results import REPORT_FILE

    render_fleet(description, safe_console())
    say(f"Report: {folder / REPORT_FILE}")
