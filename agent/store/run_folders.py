"""Finds the folders of runs that a name on the command line stands for."""

from __future__ import annotations

import os
from pathlib import Path

from agent.core.errors import UsageError
from agent.store.results import RUN_FILE, ResultsFolder

HOSTS = "hosts"
FLEET = "fleet"


def run_folders(name: str, results_dir: Path) -> list[Path]:
    """Return the folders of the runs that a name stands for.

    Args:
        name: the folder of a run, of a fleet run or of many runs, a pattern of such (``results/base-*``), or
            the id of a run or its beginning.
        results_dir: where runs are looked for by id.

    Raises:
        UsageError: if there are none.
    """
    path = Path(name)
    if path.is_dir():
        return _below(path)
    if any(sign in name for sign in "*?["):
        start = Path(path.anchor)
        matches = sorted(match for match in start.glob(str(path.relative_to(start))) if match.is_dir())
        if not matches:
            raise UsageError(f"no folder fits {name!r}", remedy="quote the pattern and see where it looks")
        return [one for match in matches if not match.is_symlink() for one in _below(match)]
    return [ResultsFolder(results_dir).find(name)]


def all_run_folders(results_dir: Path) -> list[Path]:
    """Return the folders of all runs in a results folder, then those of its fleet runs' hosts."""
    found = _children(results_dir)
    for fleet_run in _folders(results_dir / FLEET):
        found += _children(fleet_run / HOSTS)
    return found


def _below(folder: Path) -> list[Path]:
    """Return the runs that a folder is, or holds."""
    from agent.store.documents import FLEET_FILE, FleetDocument

    if (folder / RUN_FILE).is_file():
        return [folder]
    if (folder / FLEET_FILE).is_file():
        return [folder / HOSTS / host.folder for host in FleetDocument.read(folder).hosts if host.folder]
    found = _children(folder)
    if not found:
        raise UsageError(
            f"there are no runs in {folder}", remedy="name the folder of a run, of a fleet run, or of runs"
        )
    return found


def _children(folder: Path) -> list[Path]:
    return [child for child in _folders(folder) if os.path.isfile(f"{child}/{RUN_FILE}")]  # noqa: PTH113 - 10,000 times


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, without links; none if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [folder / name for name in names]
