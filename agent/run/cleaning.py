"""``--clean``: removes what earlier runs left, and nothing that vcagent did not make."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.core.errors import ContainerError, HostError, UsageError, host_errors
from agent.core.names import did_you_mean
from agent.facts import Facts, LocalHost
from agent.facts.agent_paths import PACKAGE_DIR
from agent.host.containers.records import has_containers
from agent.store.results import ResultsFolder, open_own

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["TARGETS", "check_targets", "clean", "own_package_dir", "package_dir_in_use"]

TARGETS = ("logs", "packages", "state", "temp", "all")
PACKAGE_MARKER = ".vcagent-packages"
"""Stands in every package folder that vcagent made, and is locked while a run uses the folder. A folder
without it is never emptied."""


def check_targets(targets: str) -> set[str]:
    """The names in a list that is separated by commas.

    Raises:
        UsageError: for an unknown one.
    """
    wanted = {name.strip() for name in targets.split(",") if name.strip()}
    for name in sorted(wanted - set(TARGETS)):
        raise UsageError(f"--clean cannot remove {name!r}", remedy=did_you_mean(name, TARGETS))
    return wanted


def clean(targets: str, results_dir: Path, package_dir: Path | None) -> list[Path]:
    """Remove the runs (logs, state, temp) or the packages of earlier runs.

    Args:
        targets: names of TARGETS, separated by commas. A run's logs, journal and temporary files are one
            folder, so ``logs``, ``state`` and ``temp`` each remove the runs.
        results_dir: the folder of all runs; only folders that are runs by their name and content go.
        package_dir: the package folder; None for the default. Emptied only if vcagent made it.

    Returns:
        What was removed.

    Raises:
        UsageError: for an unknown target, before anything is removed.
        HostError: if a run is going on there, or a file cannot be removed.
        ContainerError: if a run left containers that cannot be removed; it is left then.
    """
    wanted = check_targets(targets)
    removed: list[Path] = []
    with host_errors("what is to be cleaned"):
        if wanted & {"logs", "state", "temp", "all"} and results_dir.is_dir():
            folder = ResultsFolder(results_dir)
            with folder.locked("--clean"):
                for run in folder.runs():
                    _remove_containers(run)
                    shutil.rmtree(run)
                    removed.append(run)
                folder.forget_latest()
        packages = package_dir or Facts(LocalHost())[PACKAGE_DIR]
        if wanted & {"packages", "all"} and (packages / PACKAGE_MARKER).is_file():
            with _locked(packages, fcntl.LOCK_EX):
                for entry in sorted(packages.iterdir()):
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                    elif entry.name != PACKAGE_MARKER:
                        entry.unlink()
            removed.append(packages)
    return removed


def _remove_containers(run: Path) -> None:
    """Remove what is left of a run's containers, those to be kept as well: nothing names them later."""
    if not has_containers(run):
        return
    from agent.host.containers.engine import remove_containers

    try:
        remove_containers(run.name, kept_too=True)
    except ContainerError as error:
        if error.problem != "no_engine":  # it was taken from the host, and its containers with it
            raise


def own_package_dir(package_dir: Path) -> None:
    """Make the package folder, and mark it as vcagent's unless something else was in it before."""
    package_dir.mkdir(parents=True, exist_ok=True)
    if not any(package_dir.iterdir()):
        (package_dir / PACKAGE_MARKER).write_text("Made by vcagent; --clean=packages empties this folder.\n")


@contextmanager
def package_dir_in_use(package_dir: Path) -> Iterator[None]:
    """Keep ``--clean`` from a package folder while a run uses it.

    Raises:
        HostError: if it is being cleaned now.
    """
    if not (package_dir / PACKAGE_MARKER).is_file():
        yield
        return
    with _locked(package_dir, fcntl.LOCK_SH):
        yield


@contextmanager
def _locked(package_dir: Path, mode: int) -> Iterator[None]:
    descriptor = open_own(package_dir / PACKAGE_MARKER)
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise HostError(
            f"the packages in {package_dir} are in use by another vcagent", remedy="wait until it has ended"
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)
