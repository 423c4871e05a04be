"""``vcagent report``: write a run's report anew and show its result."""

from __future__ import annotations

import json
from pathlib import Path

from agent.cli.options import AsJson, ResultsDir, Run


def report(
    run: Run = None,
    results_dir: ResultsDir = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Show a run's result, and write its report and rollup anew from what is in its folder."""
    from agent.core.errors import UsageError
    from agent.report import render_result, write_report, write_rollup
    from agent.store.documents import RunDocument
    from agent.store.metric_lines import read_records
    from agent.store.results import ResultsFolder

    folder = ResultsFolder(results_dir).find(run)
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
