"""``vcagent telemetry``: what the sinks of runs have received, and delivery of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli.completion import complete_runs
from agent.cli.options import AsJson, ResultsDir, Sinks

if TYPE_CHECKING:
    from agent.store.journal import Journal

app = typer.Typer(
    no_args_is_help=True, help="Show what the sinks of runs have received, and deliver the rest."
)

Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN",
        help="Run ids, beginnings of ids, or folders; all runs by default.",
        show_default=False,
        autocompletion=complete_runs,
    ),
]


@app.command()
def status(
    run: Runs = [],  # noqa: B006 - typer copies it
    results_dir: ResultsDir = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Show for each run and sink the delivered, waiting and refused records, and refused files with why."""
    rows = [row for folder in _folders(results_dir, run) for row in _standing(folder)]
    if as_json:
        from agent.cli.output import print_document
        from agent.store.command_documents import TelemetryStatusDocument

        print_document(TelemetryStatusDocument, {"sinks": rows})
        return
    from rich.text import Text

    from agent.core.layout import print_entry
    from agent.core.terminal import printable, safe_console

    console = safe_console(highlight=False)
    if not rows:
        print_entry(console, Text(), f"no run in {results_dir} has a sink besides its own files", indent=0)
    for row in rows:
        print_entry(console, Text(f"{row['run_id']}  ", "bold"), printable(row["sink"]), indent=2)
        last = (row["last_success"] or "")[:19].replace("T", " ")
        counts = ", ".join(f"{row[name]:,} {name}" for name in ("delivered", "waiting", "refused"))
        lines = [counts + (f"; last success {last} UTC" if last else "")]
        lines += [f"last error: {row['error']}"] if row["error"] else []
        lines += [f"refused: {piece}: {reason}" for piece, reason in row["refused_pieces"].items()]
        for line in lines:
            print_entry(console, Text("  "), printable(line), indent=4)


@app.command()
def flush(
    run: Runs = [],  # noqa: B006 - typer copies it
    results_dir: ResultsDir = Path("results"),
    sink: Sinks = None,
    wait: Annotated[float, typer.Option(help="Seconds to keep trying each sink.", min=0)] = 30,
    refused: Annotated[
        bool, typer.Option("--refused", help="Also send again the records and files that a sink refused.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Send everything again, for a destination that lost records.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Deliver to the sinks of ended runs everything that they do not have yet.

    Without --sink these are the sinks that each run was started with; with it, also others.
    """
    from agent.core.errors import ExitCode, VcagentError

    folders = _folders(results_dir, run)
    rows = []
    for folder in folders:
        try:
            rows += _flushed(folder, tuple(sink or ()), wait, refused=refused, again=again)
        except VcagentError as error:
            if run or sink or len(folders) == 1:
                raise
            why = f"{error.message} ({error.remedy})" if error.remedy else error.message
            rows.append(_undelivered(folder, why))
    if as_json:
        from agent.cli.output import print_document
        from agent.store.command_documents import TelemetryFlushDocument

        print_document(TelemetryFlushDocument, {"sinks": rows})
    else:
        from agent.core.terminal import safe_console

        for row in rows:
            ended = f"not delivered: {row['error']}" if row["error"] else "all is delivered"
            more = f"; {row['refused']} records are refused" if row["refused"] else ""
            pieces = "".join(f"\n  refused: {name}: {why}" for name, why in row["refused_pieces"].items())
            safe_console().print(f"{row['run_id']}  {row['sink']}: {ended}{more}{pieces}", markup=False)
        if not rows:
            safe_console().print("no run has a sink besides its own files")
    if any(row["error"] for row in rows):
        raise typer.Exit(ExitCode.ACTION_FAILED)


def _folders(results_dir: Path, runs: list[str]) -> list[Path]:
    from agent.core.errors import UsageError
    from agent.store.results import ResultsFolder

    if not runs and not results_dir.is_dir() and results_dir != Path("results"):
        raise UsageError(
            f"there is no folder {str(results_dir)[:200]}",
            remedy="name the folder of the runs with --results-dir",
        )
    folder = ResultsFolder(results_dir)
    return [folder.find(run) for run in runs] if runs else list(folder.runs())


def _own(name: str) -> bool:
    return name in ("metrics.jsonl", "metrics.csv")


def _standing(folder: Path) -> list[dict[str, Any]]:
    from agent.store.journal import Journal
    from agent.store.results import JOURNAL

    if not (folder / JOURNAL).is_file():
        return []
    with Journal(folder / JOURNAL) as journal:
        last = journal.last_record_id()
        return [
            {
                "run_id": folder.name,
                "sink": one.name,
                "delivered": one.record_id - one.refused,
                "waiting": last - one.record_id,
                "refused": one.refused,
                "refused_pieces": journal.refused_pieces(one.name),
                "failures": one.failures,
                "error": one.error or None,
                "last_failure": one.failed,
                "last_success": one.delivered,
            }
            for one in journal.deliveries()
            if not _own(one.name)
        ]


def _undelivered(folder: Path, why: str) -> dict[str, Any]:
    """Return the row of a run none of whose sinks can be opened."""
    return {"run_id": folder.name, "sink": "its sinks", "error": why, "refused": 0, "refused_pieces": {}}


def _flushed(
    folder: Path, sinks: tuple[str, ...], wait_s: float, *, refused: bool, again: bool
) -> list[dict[str, Any]]:
    import os

    from agent.core.safe_files import require_trust
    from agent.core.secrets import Secrets
    from agent.sinks import SinkContext, add_sink_secrets, open_sinks
    from agent.sinks import flush as bring
    from agent.store.journal import Journal
    from agent.store.results import JOURNAL, ResultsFolder

    if not (folder / JOURNAL).is_file():
        return []
    require_trust(folder, "run folder", "--results-dir")  # its journal names files and addresses to write to
    secrets = Secrets(environment=os.environ)
    mask = secrets.mask
    with ResultsFolder(folder.parent).locked(folder.name), Journal(folder / JOURNAL) as journal:
        asked = sinks or _asked(journal)
        add_sink_secrets(secrets, asked)
        working_dir = Path("" if sinks else journal.recall("sink_working_dir", "")).absolute()
        host = journal.recall("sink_host", {})
        context = SinkContext(folder, folder.name, host, journal.context, mask, working_dir)
        opened = open_sinks(asked, context)
        for sink in opened if again else ():
            journal.forget_sink(sink.name)
        errors = {
            sink.name: bring(journal, sink, wait_s=wait_s, refused=refused, mask=mask) for sink in opened
        }
        counts = {one.name: one.refused for one in journal.deliveries()}
        pieces = {name: journal.refused_pieces(name) for name in errors}
    return [
        {
            "run_id": folder.name,
            "sink": name,
            "error": error or None,
            "refused": counts.get(name, 0),
            "refused_pieces": pieces[name],
        }
        for name, error in errors.items()
    ]


def _asked(journal: Journal) -> tuple[str, ...]:
    """Return the sinks that a run was started with.

    Raises:
        UsageError: if the settings of one held a secret, which was not kept.
    """
    from agent.core.errors import UsageError
    from agent.core.secrets import MASK

    asked = tuple(journal.recall("sinks", ()))
    for text in asked:
        if MASK in text:
            name = text.partition(":")[0]
            raise UsageError(
                f"the settings of the sink {name} held a secret, which was not kept",
                remedy=f"give them again: --sink '{name}:…'; a run that is started with "
                f"--sink '{name}:${{VARIABLE}}' keeps the variable's name",
            )
    return asked
