"""``vcagent clean``: take back what earlier runs did to this host."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.options import PackageDir, ResultsDir
from agent.cli.output import say

if TYPE_CHECKING:
    from agent.run.undoing import Undoing


def clean(
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...", help="Runs: ids, beginnings of them, folders.", show_default="all"
        ),
    ] = None,
    dependencies: Annotated[
        bool, typer.Option("--dependencies", "-d", help="Take back what dependencies installed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    results_dir: ResultsDir = Path("results"),
    package_dir: PackageDir = None,
) -> None:
    """Undo what the journals of runs say that vcagent did to this host, and nothing else.

    It is shown first. What was changed since is left, and said. To remove runs or packages: vcagent --clean.
    """
    from agent.core.errors import ExitCode, UsageError, VcagentError
    from agent.core.progress import run_progress
    from agent.facts import Facts, LocalHost
    from agent.facts.agent_paths import PACKAGE_DIR
    from agent.run.undoing import carry_out, undoings
    from agent.store.results import ResultsFolder

    if not dependencies:
        raise UsageError(
            "nothing to clean is named",
            remedy="vcagent clean --dependencies; or vcagent --clean=logs,packages,all for runs and packages",
        )
    folder = ResultsFolder(results_dir)
    runs = sorted({folder.find(name) for name in run}, key=lambda path: path.name) if run else folder.runs()
    runs = _believed(runs)
    facts = Facts(LocalHost(), {PACKAGE_DIR.name: package_dir.absolute()} if package_dir else {})
    found = undoings(runs, facts)
    todo = [undoing for undoing in found if undoing.plan.steps]
    _show(found)
    if not todo:
        say("Nothing to take back.")
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError("nobody is here to ask", remedy="add --yes to do what is shown above")
    if not yes and not typer.confirm(f"Take back {len(todo)} steps?"):
        return
    failed = 0
    with run_progress(quiet=False) as progress, _all_locked(todo):
        for undoing in todo:
            try:
                if left := carry_out(undoing, facts, progress):
                    progress.note(f"left {undoing.row.key}: {left}")
            except VcagentError as error:
                failed += 1
                progress.note(f"left {undoing.row.key}: {error}")
    if failed:
        raise typer.Exit(ExitCode.DEPENDENCY_FAILED)


def _believed(runs: list[Path]) -> list[Path]:
    """Return the runs whose journals root may trust: only root could write them."""
    import os

    from agent.core.safe_files import distrust, written_by_root
    from agent.store.results import JOURNAL

    if os.geteuid() != 0:
        return runs
    believed = []
    for run in runs:
        if why := distrust(run):
            say(f"left {run}: {why}")
        elif not written_by_root(run / JOURNAL):
            say(f"left {run}: its journal was not written by root, or others may write to it")
        else:
            believed.append(run)
    return believed


def clean_up(targets: str, results_dir: Path, package_dir: Path | None, *, yes: bool) -> None:
    """Remove files of earlier runs: show names and sizes, ask, then remove.

    Args:
        targets: the value of ``--clean``.
        results_dir: the folder of all runs.
        package_dir: the package folder; None for the default.
        yes: True to skip the question.

    Raises:
        UsageError: if there is no terminal to ask on.
    """
    from agent.core.errors import UsageError
    from agent.run.cleaning import survey

    found = survey(targets, results_dir, package_dir)
    for path, why in found.left:
        say(f"left   {path}: {why}")
    for removal in found.removals:
        size = f"{removal.files} files, {removal.size_bytes / 2**20:.1f} MiB"
        say(f"remove {removal.path}: {size}")
    if not found.removals:
        say("Nothing to remove.")
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError("nobody is here to ask", remedy="add --yes to remove what is shown above")
    mib = sum(removal.size_bytes for removal in found.removals) / 2**20
    if not yes and not typer.confirm(f"Remove these {len(found.removals)} folders, {mib:.1f} MiB?"):
        raise typer.Exit
    found.carry_out()


def _all_locked(todo: list[Undoing]) -> ExitStack:
    """Lock the folders of all these runs, so that none of them continues meanwhile."""
    from agent.store.results import ResultsFolder

    stack = ExitStack()
    for path in sorted({undoing.run_dir.parent for undoing in todo}):
        stack.enter_context(ResultsFolder(path).locked("clean"))
    return stack


def _show(found: list[Undoing]) -> None:
    from rich.table import Table
    from rich.text import Text

    from agent.core.terminal import safe_console

    table = Table("", "run", "step", "what and why", box=None, pad_edge=False, header_style="bold")
    for undoing in found:
        name = f"{undoing.row.type}: {undoing.row.name}"
        if undoing.plan.steps:
            what = "\n".join(f"{step.command} ({step.reason})" for step in undoing.plan.steps)
            table.add_row(Text("undo", "bold"), undoing.run_dir.name, Text(name), Text(what))
        else:
            why = Text(undoing.plan.nothing_to_do)
            table.add_row(Text("leave", "dim"), undoing.run_dir.name, Text(name), why)
    if found:
        safe_console(highlight=False).print(table)
