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
    from agent.fleet.record import fleet_folder
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
            fleet = FleetDocument()
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
        from agent.cli.output import print_json

        print_json(rows)
        return
    from rich.table import Table

    from agent.core.terminal import safe_console

    table = Table("run", "profile", "start (UTC)", "end", "verdict", "exit code", "hosts")
    for row in rows:
        start, end = ((row[key] or "")[:19].replace("T", " ") for key in ("start", "end"))
        ended = {0: "done", 8: "reboot pending", 9: "interrupted", 10: "some hosts failed"}
        state = row["verdict"] or ended.get(row["exit_code"], "unfinished")
        table.add_row(row["run_id"], row["profile"] or "", start, end[11:], state, str(row["exit_code"] or 0)
                      if row["exit_code"] is not None else "", "" if row["hosts"] is None
                      else f"fleet of {row['hosts'] or '?'}")  # fmt: skip
    console = safe_console()
    none = f"no run in {results_dir} fits" if where else f"there are no runs in {results_dir}"
    console.print(table if rows else none)
    for row in rows:
        if serving := row["serving"]:
            what = serving["model"] or serving["name"]
            console.print(f"{row['run_id']} serves {what} at {serving['url']}; stop it: {serving['stop']}")


def _chosen(folders: list[Path], condition: str, index_dir: Path | None) -> list[Path]:
    """Return the folders of the runs for which a condition on the columns of ``runs`` holds."""
    from agent.cli.query import open_index
    from agent.query.asking import ask

    with ask(f"SELECT folder FROM runs WHERE ({condition}\n)", folders, open_index(index_dir)) as answer:  # noqa: S608 - the tables are only read
        chosen = {folder for (folder,) in answer.rows}
    return [folder for folder in folders if str(folder) in chosen]
