"""``--clean``: removes what earlier runs left, and nothing that vcagent did not make."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from agent.errors import UsageError
from agent.facts import Facts, LocalHost
from agent.facts.agent_paths import PACKAGE_DIR
from agent.names import did_you_mean
from agent.results import ResultsFolder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TARGETS", "clean", "own_package_dir"]

TARGETS = ("logs", "packages", "state", "temp", "all")
PACKAGE_MARKER = ".vcagent-packages"
"""Stands in every package folder that vcagent made; a folder without it is never emptied."""


def clean(targets: str, results_dir: Path, package_dir: Path | None) -> list[Path]:
    """Remove the runs (logs, state, temp) or the packages of earlier runs.

    Args:
        targets: names of TARGETS, separated by commas. A run's logs, journal and temporary files are one
            folder, so ``logs``, ``state`` and ``temp`` each remove the runs.
        results_dir: the folder of all runs; only folders that hold a journal are removed.
        package_dir: the package folder; None for the default.

    Returns:
        What was removed.

    Raises:
        UsageError: for an unknown target, before anything is removed.
        HostError: if a run is going on in the results folder.
    """
    wanted = {name.strip() for name in targets.split(",") if name.strip()}
    for name in sorted(wanted - set(TARGETS)):
        raise UsageError(f"--clean cannot remove {name!r}", remedy=did_you_mean(name, TARGETS))
    removed: list[Path] = []
    if wanted & {"logs", "state", "temp", "all"} and results_dir.is_dir():
        folder = ResultsFolder(results_dir)
        with folder.locked("--clean"):
            for run in folder.runs():
                shutil.rmtree(run)
                removed.append(run)
            latest = folder.path / "latest"
            if latest.is_symlink() and not latest.exists():
                latest.unlink()
    packages = package_dir or Facts(LocalHost())[PACKAGE_DIR]
    if wanted & {"packages", "all"} and (packages / PACKAGE_MARKER).is_file():
        shutil.rmtree(packages)
        removed.append(packages)
    return removed


def own_package_dir(package_dir: Path) -> None:
    """Make the package folder, and mark it as vcagent's unless something else was in it before."""
    package_dir.mkdir(parents=True, exist_ok=True)
    if not any(package_dir.iterdir()):
        (package_dir / PACKAGE_MARKER).write_text("Made by vcagent; --clean=packages removes this folder.\n")
