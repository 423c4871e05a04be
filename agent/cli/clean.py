"""``vcagent clean``: undo the changes of earlier runs to this host."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli.completion import complete_runs
from agent.cli.options import AsJson, PackageDir, ResultsDir
from agent.cli.output import print_document, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.facts import Facts
    from agent.run.cleaning import Cleaning
    from agent.run.undoing import Undoing
    from agent.store.serving import Serving


def clean(
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Runs: ids, beginnings of them, folders.",
            show_default="all",
            autocompletion=complete_runs,
        ),
    ] = None,
    dependencies: Annotated[
        bool, typer.Option("--dependencies", "-d", help="Remove what dependencies installed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    results_dir: ResultsDir = Path("results"),
    package_dir: PackageDir = None,
    as_json: AsJson = False,
) -> None:
    """Undo the changes to this host that the journals of runs recorded, and nothing else.

    The changes are shown first. A thing that was changed since is left as it is, and reported.
    A server that --keep-serving left running is ended.
    To remove runs or packages, use vcagent --clean.
    """
    from agent.core.errors import ExitCode, UsageError
    from agent.facts import Facts, LocalHost
    from agent.facts.agent_paths import PACKAGE_DIR
    from agent.run.keeping import kept_servers
    from agent.run.undoing import undoings
    from agent.store.results import ResultsFolder

    if not dependencies:
        raise UsageError(
            "nothing to clean is named",
            remedy="vcagent clean --dependencies; or vcagent --clean=logs,packages,all for runs and packages",
        )
    folder = ResultsFolder(results_dir)
    runs = sorted({folder.find(name) for name in run}, key=lambda path: path.name) if run else folder.runs()
    runs, distrusted = _believed(runs)
    facts = Facts(LocalHost(), {PACKAGE_DIR.name: package_dir.absolute()} if package_dir else {})
    found = undoings(runs, facts)
    todo = [undoing for undoing in found if undoing.plan.steps]
    servers = kept_servers(runs)
    if not as_json:
        for path, why in distrusted.items():
            _say("left", f"{path}: {why}")
        _show_servers(servers)
        _show(found)
        if not todo and not servers:
            say("Nothing to undo.")
    if (todo or servers) and not yes and (as_json or not sys.stdin.isatty()):
        raise UsageError("nobody is here to ask", remedy="add --yes to undo the steps")
    if (todo or servers) and not yes and not typer.confirm(_question(len(todo), len(servers))):
        return
    _end(servers)
    left, failed = _take_back(todo, facts, quiet=as_json)
    if as_json:
        from agent.store.command_documents import CleanDocument

        changes = [{"name": str(path), "done": False, "why": why} for path, why in distrusted.items()]
        changes += _ended(servers)
        changes += [_as_dict(undoing, left.get(id(undoing), "")) for undoing in found]
        print_document(CleanDocument, {"changes": changes})
    if failed:
        raise typer.Exit(ExitCode.DEPENDENCY_FAILED)


def _question(steps: int, servers: int) -> str:
    parts = [f"undo {steps} step{'s' * (steps != 1)}"] * bool(steps)
    parts += [f"end {servers} server{'s' * (servers != 1)}"] * bool(servers)
    return f"{' and '.join(parts)}?".capitalize()


def _show_servers(servers: Sequence[tuple[Path, Serving]]) -> None:
    for run, serving in servers:
        _say("end", f"{serving.shown}, the server of {run.name}: {serving.how_to_stop}")


def _end(servers: Sequence[tuple[Path, Serving]]) -> None:
    from agent.run.keeping import end_serving
    from agent.store.results import ResultsFolder

    for run, _ in servers:
        with ResultsFolder(run.parent).locked("clean"):
            end_serving(run)


def _ended(servers: Sequence[tuple[Path, Serving]]) -> list[dict[str, Any]]:
    """Return the rows of servers that were ended, for the JSON document."""
    return [
        {
            "name": f"server: {serving.shown}",
            "run_id": run.name,
            "commands": [serving.how_to_stop],
            "done": True,
        }
        for run, serving in servers
    ]


def _take_back(todo: list[Undoing], facts: Facts, *, quiet: bool) -> tuple[dict[int, str], int]:
    """Undo the steps; return why some changes were left, and the number of failures."""
    from agent.core.errors import VcagentError
    from agent.core.progress import run_progress
    from agent.run.undoing import carry_out

    failed = 0
    left: dict[int, str] = {}
    with run_progress(quiet=quiet or not todo) as progress, _all_locked(todo):
        for undoing in todo:
            try:
                why = carry_out(undoing, facts, progress)
            except VcagentError as error:
                failed += 1
                why = str(error)
            if why:
                left[id(undoing)] = why
                progress.note(f"left {undoing.name}: {why}")
    return left, failed


def _as_dict(undoing: Undoing, left: str) -> dict[str, Any]:
    """Return a change for the JSON document.

    Args:
        undoing: the change.
        left: why it was left after all; empty if it was undone.
    """
    why = left or undoing.plan.nothing_to_do
    return {
        "name": undoing.name,
        "run_id": undoing.run_dir.name,
        "commands": [step.command for step in undoing.plan.steps],
        "done": not why,
        "why": why,
    }


def _believed(runs: list[Path]) -> tuple[list[Path], dict[Path, str]]:
    """Return the runs whose journals root may trust, and why the others cannot be trusted.

    Only root could write the trusted ones.
    """
    import os

    from agent.core.safe_files import distrust, written_by_root
    from agent.store.results import JOURNAL

    if os.geteuid() != 0:
        return runs, {}
    believed, others = [], {}
    for run in runs:
        if why := distrust(run):
            others[run] = why
        elif not written_by_root(run / JOURNAL):
            others[run] = "its journal was not written by root, or others may write to it"
        else:
            believed.append(run)
    return believed, others


def clean_up(
    targets: str, results_dir: Path, package_dir: Path | None, *, yes: bool, as_json: bool = False
) -> None:
    """Remove files of earlier runs: show names and sizes, ask, then remove.

    Args:
        targets: the value of ``--clean``.
        results_dir: the folder of all runs.
        package_dir: the package folder; None for the default.
        yes: True to skip the question.
        as_json: True to print a JSON document instead of lines.

    Raises:
        UsageError: if there is no terminal to ask on.
    """
    from agent.core.counts import count_of
    from agent.core.errors import UsageError
    from agent.run.cleaning import survey

    found = survey(targets, results_dir, package_dir)
    if as_json:
        _clean_up_as_json(found, yes=yes)
        return
    for path, why in found.left:
        _say("left", f"{path}: {why}")
    _show_servers(found.servers)
    for removal in found.removals:
        size = f"{count_of(removal.files, 'file')}, {removal.size_bytes / 2**20:.1f} MiB"
        _say("remove", f"{removal.path}: {size}")
    if not found.removals:
        say("Nothing to remove.")
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError("nobody is here to ask", remedy="add --yes to remove what is shown above")
    mib = sum(removal.size_bytes for removal in found.removals) / 2**20
    if not yes and not typer.confirm(f"Remove these {len(found.removals)} folders, {mib:.1f} MiB?"):
        raise typer.Exit
    for path, why in found.carry_out().items():
        _say("left", f"{path}: {why}")


def _say(what: str, text: str) -> None:
    """Print a line; on a terminal it is wrapped between words, and paths stay whole."""
    from rich.text import Text

    from agent.core.layout import print_entry
    from agent.core.terminal import printable, safe_console

    print_entry(safe_console(highlight=False), Text(f"{what:<7}"), printable(text), indent=7)


def _clean_up_as_json(found: Cleaning, *, yes: bool) -> None:
    from agent.core.errors import UsageError
    from agent.store.command_documents import CleanDocument

    if found.removals and not yes:
        raise UsageError("nobody is here to ask", remedy="add --yes to remove the folders")
    kept = found.carry_out()
    changes: list[dict[str, Any]] = [
        {"name": str(path), "done": False, "why": str(why)} for path, why in (*found.left, *kept.items())
    ]
    changes += _ended(found.servers)
    changes += [
        {"name": str(removal.path), "size_bytes": removal.size_bytes, "done": True}
        for removal in found.removals
        if removal.path not in kept
    ]
    print_document(CleanDocument, {"changes": changes})


def _all_locked(todo: list[Undoing]) -> ExitStack:
    """Lock the folders of all these runs, so that none of them continues meanwhile."""
    from agent.store.results import ResultsFolder

    stack = ExitStack()
    for path in sorted({undoing.run_dir.parent for undoing in todo}):
        stack.enter_context(ResultsFolder(path).locked("clean"))
    return stack


def _show(found: list[Undoing]) -> None:
    """Print each change with its run, and the commands that undo it or why it stays."""
    for undoing in found:
        what = f"{undoing.name} of {undoing.run_dir.name}"
        if not undoing.plan.steps:
            _say("leave", f"{what}: {undoing.plan.nothing_to_do}")
            continue
        _say("undo", what)
        for step in undoing.plan.steps:
            _say("", f"{step.command} ({step.reason})")
