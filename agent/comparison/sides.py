"""The sides of a comparison: which runs each name on the command line stands for."""

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
        name: what it was called.
        runs: its runs, one at least.
        left_out: what was named but is not a finished run, with the reason.
    """

    name: str
    runs: tuple[MeasuredRun, ...]
    left_out: tuple[str, ...] = ()


def read_side(name: str, results_dir: Path) -> Side:
    """Read the runs of one side.

    Args:
        name: runs separated by commas; each the folder of a run, of a fleet run or of many runs, a pattern
            of such (``results/base-*``), or the id of a run or its beginning.
        results_dir: where runs are looked for by id.

    Raises:
        UsageError: if there are no such runs, or none came to its end.
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
            left_out.append(f"{run.name}: did not come to its end")
        else:
            runs.append(run)
    if not runs:
        raise UsageError(
            f"{name!r} names no run that came to its end",
            remedy="name folders or ids of runs; vcagent runs lists them",
            details=tuple(left_out),
        )
    return Side(name, tuple(runs), tuple(left_out))
