"""Values that a shell completes: profiles, scenarios, runs and facts. An error completes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer  # noqa: TC002 - typer reads the annotations when it runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.store.results import ResultsFolder


def complete_profiles(incomplete: str) -> list[str]:
    """Return the installed profiles that begin with a text; the shell itself completes files."""
    from agent.profile.finding import installed

    names = [file.rpartition(".")[0] for file in installed()]
    return [name for name in names if name.startswith(incomplete)]


def complete_scenarios(incomplete: str) -> list[str]:
    """Return the scenarios of the named profiles; those before the last comma are kept."""
    before, comma, last = incomplete.rpartition(",")
    sign = "-" if last.startswith("-") else ""
    beginning = last.removeprefix("-")
    return [
        f"{before}{comma}{sign}{name}"
        for name in _scenarios()
        if name.startswith(beginning) and name not in before.split(",")
    ]


def _scenarios() -> list[str]:
    """Return the scenarios of the profiles in the shell's words; click does not have them yet."""
    from agent.core.errors import VcagentError
    from agent.core.names import canonical
    from agent.profile.finding import find, installed
    from agent.profile.structure import read_profile

    found: list[str] = []
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    known = {file.rpartition(".")[0].lower() for file in installed()}
    for reference in words.replace("=", " ").split():
        is_file = reference.lower().endswith((".yaml", ".yml", ".json")) and "://" not in reference
        if reference.lower() not in known and not is_file:
            continue
        try:
            profile = read_profile(find(reference))
        except VcagentError:
            continue
        for element in profile.elements():
            texts = {canonical(name): str(value) for name, value in element.parameters.items()}
            name = texts.get("scenario", "")
            if name and not {"{", "$"} & set(name):
                found.append(name)
    return list(dict.fromkeys(found))


def complete_runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of runs, the newest first."""
    from agent.store.results import ResultsFolder

    return list(_names(ResultsFolder(_results_dir(ctx)), incomplete))


def complete_all_runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of runs, then of fleet runs, the newest first."""
    return [*complete_runs(ctx, incomplete), *complete_fleet_runs(ctx, incomplete)]


def complete_fleet_runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of fleet runs, the newest first."""
    from agent.fleet.record import fleet_folder

    return list(_names(fleet_folder(_results_dir(ctx)), incomplete))


def complete_facts(incomplete: str) -> list[str]:
    """Return the facts that begin with a text."""
    from agent.facts import known_facts

    return [name for name in known_facts() if name.startswith(incomplete)]


def _names(folder: ResultsFolder, incomplete: str) -> Iterator[str]:
    for run in reversed(list(folder.runs())):
        if run.name.startswith(incomplete):
            yield run.name


def _results_dir(ctx: typer.Context) -> Path:
    return Path(ctx.params.get("results_dir") or "results")
