"""The sides of a comparison: finds the runs that each name on the command line stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.comparison.measured_run import MeasuredRun, read_measured_run
from agent.core.errors import UsageError
from agent.store.results import RUN_FILE
from agent.store.run_folders import run_folders

if TYPE_CHECKING:
    from pathlib import Path

_SEPARATOR = ","


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Args:
        name: the name that was given.
        runs: its runs, at least one.
        left_out: folders that do not hold a finished run, with the reason.
    """

    name: str
    runs: tuple[MeasuredRun, ...]
    left_out: tuple[str, ...] = ()


def read_side(name: str, results_dir: Path) -> Side:
    """Read the runs of one side.

    Args:
        name: runs separated by commas. Each is the folder of a run, of a fleet run or of many runs, a pattern
            for such folders (``results/base-*``), or the id of a run or its beginning.
        results_dir: the folder in which ids are looked up.

    Raises:
        UsageError: if no such run exists, or none has finished.
    """
    folders: list[Path] = []
    for part in filter(None, name.split(_SEPARATOR)):
        folders += run_folders(part.strip(), results_dir)
    runs, left_out = [], []
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        if not (folder / RUN_FILE).is_file():
            left_out.append(f"{folder.name}: no run.json")
            continue
        run = read_measured_run(folder)
        if run.document.end is None:
            left_out.append(f"{run.name}: did not finish")
        else:
            runs.append(run)
    if not runs:
        raise UsageError(
            f"{name!r} names no run that has finished",
            remedy="name folders or ids of runs; vcagent runs lists them",
            details=tuple(left_out),
        )
    return Side(name, tuple(runs), tuple(left_out))
