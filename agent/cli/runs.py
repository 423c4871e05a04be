"""``vcagent runs``: the runs in a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agent.cli.options import AsJson, IndexDir, ResultsDir


def runs(
    results_dir: ResultsDir = Path("results"),
    where: Annotated[
        str,
        typer.Option(
            "--where",
            help="Only runs for which this condition in SQL holds, such as \"verdict = 'INVALID'\"; "
            "vcagent query --tables shows the columns of runs.",
            show_default=False,
        ),
    ] = "",
    index_dir: IndexDir = None,
    as_json: AsJson = False,
) -> None:
    """List the runs in the results folder, then its fleet runs, the newest last."""
    from agent.core.errors import UsageError
    from agent.fleet.record import fleet_folder, unwritten
    from agent.store.documents import FleetDocument, RunDocument
    from agent.store.results import ResultsFolder
    from agent.store.serving import still_serving

    rows: list[dict[str, Any]] = []
    folders = ResultsFolder(results_dir).runs()
    if where:
        folders = _chosen(folders, where, index_dir)
    for folder in folders:
        try:
            run = RunDocument.read(folder)
        except UsageError:
            run = RunDocument()
        rows.append(
            {
                "run_id": folder.name,
                "profile": run.profile.name or None,
                "start": run.start,
                "end": run.end,
                "verdict": run.verdict.validity,
                "exit_code": run.exit_code,
                "hosts": None,
                "serving": serving.to_json() if (serving := still_serving(folder)) else None,
                "folder": str(folder),
            }
        )
    for folder in () if where else fleet_folder(results_dir).runs():
        try:
            fleet = FleetDocument.read(folder)
        except UsageError:
            fleet = unwritten(folder)
        rows.append(
            {
                "run_id": folder.name,
                "profile": " + ".join(fleet.profiles) or None,
                "start": fleet.start,
                "end": fleet.end,
                "verdict": None,
                "exit_code": fleet.exit_code,
                "hosts": len(fleet.hosts),
                "serving": None,
                "folder": str(folder),
            }
        )
    if as_json:
        from agent.cli.output import print_document
        from agent.store.command_documents import RunsDocument

        print_document(RunsDocument, {"runs": rows})
        return
    from agent.core.layout import print_columns, print_lines
    from agent.core.terminal import safe_console

    console = safe_console(highlight=False)
    if not rows:
        print_lines(console, f"no run in {results_dir} fits" if where else _no_runs(results_dir))
        return
    cells = [(row["run_id"], _state(row), _age(row["start"]), row["profile"] or "") for row in rows]
    print_columns(console, ("run", "verdict", "age", "profile"), cells)
    for row in rows:
        if serving := row["serving"]:
            what = serving["model"] or serving["name"]
            console.print(
                f"{row['run_id']} serves {what} at {serving['url']}; stop it: {serving['stop']}",
                soft_wrap=True,
            )


def _no_runs(results_dir: Path) -> str:
    return (
        f"there are no runs in {results_dir}\n"
        "  → start one: vcagent --profile PERF-CPU-MLPERF; or name another folder: --results-dir"
    )


def _state(row: dict[str, Any]) -> str:
    """Return the verdict of a run, or how it ended."""
    ended = {0: "done", 8: "reboot pending", 9: "interrupted", 10: "failed"}
    code = row["exit_code"]
    state = "unfinished" if code is None else row["verdict"] or ended.get(code, f"exit code {code}")
    return state if row["hosts"] is None else f"{state}, fleet of {row['hosts'] or '?'}"


def _age(start: str | None) -> str:
    """Return the time since a run began, in one unit; empty if unknown."""
    from datetime import datetime, timezone

    try:
        began = datetime.fromisoformat((start or "").replace("Z", "+00:00"))
        age_s = (datetime.now(timezone.utc) - began).total_seconds()
    except (ValueError, TypeError):
        return ""
    for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60)):
        if age_s >= 2 * seconds:
            return f"{age_s / seconds:.0f} {unit}"
    return f"{max(0, age_s):.0f} s"


def _chosen(folders: list[Path], condition: str, index_dir: Path | None) -> list[Path]:
    """Return the folders of the runs for which a condition on the columns of ``runs`` holds."""
    from agent.cli.query import open_index
    from agent.query.asking import ask

    with ask(f"SELECT folder FROM runs WHERE ({condition}\n)", folders, open_index(index_dir)) as answer:  # noqa: S608 - the tables are only read
        chosen = {folder for (folder,) in answer.rows}
    return [folder for folder in folders if str(folder) in chosen]
