"""``--clean``: removes what earlier runs left behind, and only what vcagent made."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.component.component import CASE_OWNER
from agent.core.errors import ContainerError, HostError, UsageError, VcagentError, host_errors
from agent.core.names import did_you_mean
from agent.core.safe_files import make_folder, replace_text, require_trust, written_by_root
from agent.facts import Facts, LocalHost
from agent.facts.agent_paths import PACKAGE_DIR
from agent.host.containers.records import has_containers
from agent.run.keeping import end_serving, kept_servers
from agent.run.undoing import undoings
from agent.store.journal import Journal
from agent.store.results import CONTEXTS_FILE, JOURNAL, METRICS_FILE, NAMED, RUN_FILE, ResultsFolder, open_own
from agent.store.run_folders import FLEET
from agent.store.serving import SERVING_FILE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from agent.store.serving import Serving

TARGETS = ("logs", "packages", "state", "temp", "all")
PACKAGE_MARKER = ".vcagent-packages"
"""File in every package folder that vcagent made; locked while a run uses the folder. ``--clean`` does not
touch a folder without this file."""
_MADE = ".vcagent-made.json"
"""File that lists the subfolders of a package folder that appeared while runs used it."""
_LOCKS = ".locks"

_OF_A_RUN = frozenset(
    {
        JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm", RUN_FILE, METRICS_FILE, "metrics.csv", CONTEXTS_FILE,
        "logs", "rollup", "report.html", "containers", "temp", "system_description.yaml", NAMED, SERVING_FILE,
    }
)  # fmt: skip
"""Names of the files and folders that vcagent writes into a run's folder, besides the folders of cases."""


@dataclass(frozen=True)
class Removal:
    """A path to remove, with the number and the size of the files in it."""

    path: Path
    files: int
    size_bytes: int


@dataclass(frozen=True)
class Cleaning:
    """The plan of ``--clean``.

    Args:
        removals: what is removed.
        left: paths in the same folders that stay, each with the reason.
        results: the folder of all runs.
        packages: the package folder.
        runs: the folders of runs among the removals.
        servers: servers to end, with the folders of their runs: those of the runs that are removed, and
            all if packages are removed, because a server may use them.
    """

    removals: tuple[Removal, ...]
    left: tuple[tuple[Path, str], ...]
    results: Path
    packages: Path
    runs: frozenset[Path]
    servers: tuple[tuple[Path, Serving], ...]

    def carry_out(self) -> dict[Path, str]:
        """Remove everything in ``removals``, the packages first: the journals of the runs know about them.

        Servers that runs left are ended before that.

        Returns:
            The runs that are kept after all, with the reasons: they changed the host since the survey.

        Raises:
            HostError: if a run is going on there, or a file cannot be removed.
            ContainerError: if a run left containers that cannot be removed; that run's folder is kept.
        """
        entries = [removal.path for removal in self.removals if removal.path not in self.runs]
        folder = ResultsFolder(self.results)
        kept: dict[Path, str] = {}
        with host_errors("the files to remove"), ExitStack() as locks:
            if self.runs:
                locks.enter_context(folder.locked("--clean"))
            if entries:
                locks.enter_context(_locked(self.packages, fcntl.LOCK_EX))
            for run, _ in self.servers:
                end_serving(run)
            for path in entries:
                _remove(path)
            for run in sorted(self.runs):
                if why := _why_kept(run, entries):
                    kept[run] = why
                    continue
                _remove_containers(run)
                for name in sorted(_own_names(run)):
                    _remove(run / name)
                with suppress(OSError):  # files of the user keep the folder from being removed
                    run.rmdir()
            if self.runs:
                folder.forget_latest()
        return kept


def check_targets(targets: str) -> set[str]:
    """Return the names in a comma-separated list.

    Raises:
        UsageError: if a name is unknown.
    """
    wanted = {name.strip() for name in targets.split(",") if name.strip()}
    for name in sorted(wanted - set(TARGETS)):
        raise UsageError(f"--clean cannot remove {name!r}", remedy=did_you_mean(name, TARGETS))
    return wanted


def survey(targets: str, results_dir: Path, package_dir: Path | None) -> Cleaning:
    """Find what ``--clean`` would remove, without removing anything.

    Args:
        targets: names of TARGETS, separated by commas. A run's logs, journal and temporary files are one
            folder, so ``logs``, ``state`` and ``temp`` each remove the runs.
        results_dir: the folder of all runs. Only folders with the name and the journal of a run count.
        package_dir: the package folder; None for the default. Only packages that a journal or a marker names
            as made by vcagent count.

    Raises:
        UsageError: if a target is unknown.
        HostError: if root cannot trust a folder, or a folder cannot be read.
    """
    wanted = check_targets(targets)
    packages = (package_dir or Facts(LocalHost())[PACKAGE_DIR]).resolve()
    folder = ResultsFolder(results_dir)
    removals: list[Removal] = []
    left: list[tuple[Path, str]] = []
    of_runs: set[Path] = set()
    with host_errors("the files to remove"):
        if folder.path.is_dir():
            require_trust(folder.path, "results folder", "--results-dir")
        runs = []
        for run in folder.runs():
            if os.geteuid() == 0 and not written_by_root(run / JOURNAL):
                left.append((run, "its journal was not written by root, or others may write to it"))
            else:
                runs.append(run)
        if wanted & {"packages", "all"} and (packages / PACKAGE_MARKER).is_file():
            require_trust(packages, "package folder", "--package-dir")
            _survey_packages(packages, runs, removals, left)
        if wanted & {"logs", "state", "temp", "all"}:
            gone = [removal.path for removal in removals]
            for run in runs:
                if why := _why_kept(run, gone):
                    left.append((run, why))
                    continue
                own = _own_names(run)
                removals.append(_measured([run / name for name in own], run))
                of_runs.add(run)
                left += [
                    (entry, "vcagent did not make it")
                    for entry in sorted(run.iterdir())
                    if entry.name not in own
                ]
            if (fleet := folder.path / FLEET).is_dir():
                left.append((fleet, "fleet runs are removed by hand, after vcagent fleet clean"))
        has_packages = len(removals) > len(of_runs)
        servers = kept_servers(run for run in runs if has_packages or run in of_runs)
    return Cleaning(tuple(removals), tuple(left), folder.path, packages, frozenset(of_runs), tuple(servers))


def _survey_packages(
    packages: Path, runs: Iterable[Path], removals: list[Removal], left: list[tuple[Path, str]]
) -> None:
    made = _made_packages(packages, runs)
    for entry in sorted(packages.iterdir()):
        if (entry.name in made and not entry.is_symlink()) or _leads_to(entry, packages, made):
            removals.append(_measured([entry], entry))
        elif entry.name not in {PACKAGE_MARKER, _MADE}:
            left.append((entry, "no journal and no marker says that vcagent made it"))


def _leads_to(link: Path, packages: Path, made: Collection[str]) -> bool:
    """Return True if a path is a link to something in a package folder that vcagent made."""
    if not link.is_symlink():
        return False
    target = os.path.normpath(packages / link.readlink())
    return any(_within(target, packages / name) for name in made)


def _own_names(run: Path) -> set[str]:
    """Return the names in a run's folder that belong to vcagent: its own files and the folders of cases."""
    return {
        entry.name
        for entry in run.iterdir()
        if entry.name in _OF_A_RUN
        or (entry.name.endswith(".part") and entry.name.removesuffix(".part") in _OF_A_RUN)
        or (entry.is_dir() and not entry.is_symlink() and _holds_cases(entry))
    }


def _holds_cases(folder: Path) -> bool:
    inner = [entry for entry in folder.iterdir() if not entry.is_symlink()]
    return bool(inner) and all(
        _holds_cases(entry) if entry.is_dir() and not (entry / CASE_OWNER).is_file() else entry.is_dir()
        for entry in inner
    )


def _why_kept(run: Path, gone: Collection[Path]) -> str:
    """Return why a run must be kept, or an empty text.

    A run is kept while its changes to the host are still in place: only its journal knows how to undo them.
    """
    try:
        with Journal(run / JOURNAL) as journal:
            noted = {number for number, _, values in journal.undos() if not _is_below(values, gone)}
        if not noted:
            return ""
        standing = [one for one in undoings([run], Facts(LocalHost())) if one.number in noted and one.stands]
    except VcagentError as error:
        return f"its journal cannot be read: {error.message}"
    if not standing:
        return ""
    names = ", ".join(dict.fromkeys(one.name for one in standing))
    return f"its changes are still in place ({names}); first: vcagent clean --dependencies {run.name}"


def _paths_in(values: Any) -> Iterator[str]:
    if isinstance(values, str) and values.startswith("/"):
        yield values
    elif isinstance(values, dict):
        for name, value in values.items():
            if name != "uri":  # a source, not a file of the host
                yield from _paths_in(value)
    elif isinstance(values, list):
        for value in values:
            yield from _paths_in(value)


def _is_below(values: Any, folders: Collection[Path]) -> bool:
    """Return True if all paths in a step's undo values lie within folders that are removed."""
    paths = list(_paths_in(values))
    return bool(paths) and all(any(_within(path, folder) for folder in folders) for path in paths)


def _within(path: str, folder: Path) -> bool:
    return path == str(folder) or path.startswith(f"{folder}/")


def _measured(paths: Iterable[Path], named: Path) -> Removal:
    files = size = 0
    for path in paths:
        for where, _, names in () if path.is_symlink() else os.walk(path):
            for name in names:
                with suppress(OSError):
                    size += os.lstat(os.path.join(where, name)).st_size  # noqa: PTH118 - many files
                files += 1
        if path.is_symlink() or not path.is_dir():
            files, size = files + 1, size + path.lstat().st_size
    return Removal(named, files, size)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_containers(run: Path) -> None:
    """Remove a run's remaining containers, also those with ``keep``: nothing would name them later."""
    if not has_containers(run):
        return
    from agent.host.containers.engine import remove_containers

    try:
        remove_containers(run.name, kept_too=True)
    except ContainerError as error:
        if error.problem != "no_engine":  # the engine was removed from the host, and its containers with it
            raise


def own_package_dir(package_dir: Path) -> None:
    """Make the package folder. If it is empty, mark it as made by vcagent."""
    make_folder(package_dir)
    if not any(package_dir.iterdir()):
        replace_text(
            package_dir / PACKAGE_MARKER, "Made by vcagent; --clean=packages removes what runs made.\n"
        )


def _noted(package_dir: Path) -> dict[str, list[str]]:
    """Return the folders that runs made in a package folder, and those that existed when a run began."""
    with suppress(OSError, ValueError):
        values = json.loads((package_dir / _MADE).read_text(encoding="utf-8"))
        if isinstance(values, dict) and all(isinstance(names, list) for names in values.values()):
            return values
    return {}


def _note(package_dir: Path, *, begun: bool) -> None:
    """Note the folders that have appeared since a run began, also if that run was killed."""
    noted = _noted(package_dir)
    present = [entry.name for entry in package_dir.iterdir() if entry.is_dir() and not entry.is_symlink()]
    before = noted.get("before", present)
    made = {*noted.get("made", []), *(set(present) - set(before))} & set(present)
    values = {"made": sorted(made), **({"before": sorted(present)} if begun else {})}
    with suppress(OSError):  # --clean keeps what could not be noted
        replace_text(package_dir / _MADE, json.dumps(values) + "\n")


def _made_packages(package_dir: Path, runs: Iterable[Path]) -> set[str]:
    """Return the names in a package folder that markers and journals describe as made by vcagent."""
    trusted = os.geteuid() != 0 or written_by_root(package_dir / _MADE)
    names = {_LOCKS, *(_noted(package_dir).get("made", []) if trusted else ())}
    for run in runs:
        with suppress(VcagentError), Journal(run / JOURNAL) as journal:
            for _, _, values in journal.undos():
                for path in _paths_in(values):
                    if _within(path, package_dir):
                        names.add(path.removeprefix(f"{package_dir}/").partition("/")[0])
    return names


@contextmanager
def package_dir_in_use(package_dir: Path) -> Iterator[None]:
    """Keep ``--clean`` away from a package folder while a run uses it, and note folders that appear in it.

    Raises:
        HostError: if the folder is being cleaned now.
    """
    if not (package_dir / PACKAGE_MARKER).is_file():
        yield
        return
    with _locked(package_dir, fcntl.LOCK_SH):
        _note(package_dir, begun=True)
        try:
            yield
        finally:
            _note(package_dir, begun=False)


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
