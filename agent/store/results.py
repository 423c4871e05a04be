"""The results folder: a run's folder in it, the latest run, and the current user of the folder."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.errors import HostError, UsageError
from agent.core.names import did_you_mean
from agent.core.safe_files import make_folder, open_file, replace_text
from agent.store.journal import now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

JOURNAL = "journal.sqlite"
RUN_FILE = "run.json"
SUMMARY_FILE = "summary.json"
METRICS_FILE = "metrics.jsonl"
REPORT_FILE = "report.html"
CONTEXTS_FILE = "contexts.jsonl"
LATEST = "latest"
LOCK = ".vcagent.lock"
RUN_ID = re.compile(r"\d{8}T\d{6}Z-[a-z0-9-]+-[0-9a-f]{4}")
NAMED = ".vcagent-run"
"""The file in the folder of a run with a chosen name: its start and its name."""
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LEAST_FREE_BYTES = 64 * 2**20
"""With less free space, a run could not even write its logs."""


def open_own(path: Path) -> int:
    """Open a lock file for reading and writing; create it if missing; never follow a link.

    Raises:
        OSError: if it is a link or not an ordinary file: in a folder that others write to, another account
            may have created it to make root write to another file.
    """
    return open_file(path, os.O_RDWR | os.O_CREAT, 0o600)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file so that a reader finds the old one or the new one, never half of one."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    replace_text(path, text, errors="backslashreplace")


class ResultsFolder:
    """The folder with one folder per run.

    Args:
        path: the folder; created with the first run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    def prepare(self) -> None:
        """Create the folder and check that it is writable.

        Raises:
            HostError: if it cannot be made or written to, or its disk is full.
        """
        try:
            make_folder(self.path)
            probe = self.path / f".write-test-{secrets.token_hex(8)}"
            with os.fdopen(open_file(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(b"vcagent")
            probe.unlink()
            free_bytes = shutil.disk_usage(self.path).free
        except OSError as error:
            raise HostError(
                f"the results folder {self.path} cannot be written to: {error.strerror or error}",
                remedy="choose another with --results-dir, or make it writable for this user",
            ) from error
        if free_bytes < LEAST_FREE_BYTES:
            raise HostError(
                f"only {free_bytes / 2**20:.0f} MiB are free for the results folder {self.path}",
                remedy="free some space, or choose another disk with --results-dir",
            )

    @contextmanager
    def locked(self, run_id: str) -> Iterator[None]:
        """Hold the folder for one run; the lock ends with the process, in any case.

        Raises:
            HostError: if another agent holds it; names that agent.
        """
        with os.fdopen(open_own(self.path / LOCK), "r+", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock.seek(0)
                holder: dict[str, Any] = {}
                with suppress(ValueError):
                    holder = json.load(lock)
                raise HostError(
                    f"another vcagent (process {holder.get('pid', '?')}, run {holder.get('run_id', '?')}, "
                    f"since {holder.get('since', '?')}) is using {self.path}",
                    remedy="wait until it has ended, or give this one its own --results-dir",
                ) from error
            lock.truncate(0)
            json.dump(
                {"pid": os.getpid(), "run_id": run_id, "since": now().isoformat(timespec="seconds")}, lock
            )
            lock.flush()
            yield

    def check_name(self, run_id: str) -> str:
        """Return the requested name of a run if it is valid and free.

        Raises:
            UsageError: if it is not a folder's plain name, or such a run exists.
        """
        if not _RUN_NAME.fullmatch(run_id) or run_id == LATEST:
            raise UsageError(
                f"--run-id: {run_id!r} cannot name a run",
                remedy="begin with a letter or digit; use letters, digits, . _ - and at most 100 of them",
            )
        if self._is_taken(run_id):
            raise UsageError(
                f"--run-id: {self.path / run_id} already exists",
                remedy=f"choose another name, or continue that run: vcagent resume {run_id}",
            )
        return run_id

    def new_run_id(self, profile_name: str, moment: datetime) -> str:
        """Return a free name: sorted by time, with the profile: ``20260401T120000Z-perf-cpu-3fa9``."""
        slug = re.sub(r"[^a-z0-9]+", "-", profile_name.lower()).strip("-")[:40] or "profile"
        while True:
            run_id = f"{moment:%Y%m%dT%H%M%SZ}-{slug}-{secrets.token_hex(2)}"
            if not self._is_taken(run_id):
                return run_id

    def _is_taken(self, run_id: str) -> bool:
        return os.path.lexists(self.path / run_id)

    def create(self, run_id: str) -> Path:
        """Create a run's folder and point ``latest`` to it."""
        run_dir = self.path / run_id
        make_folder(self.path)
        run_dir.mkdir()
        make_folder(run_dir / "logs")
        if not RUN_ID.fullmatch(run_id):
            replace_text(run_dir / NAMED, f"{now():%Y%m%dT%H%M%SZ} {run_id}\n")
        self.point_latest(run_id)
        return run_dir

    def latest_name(self) -> str | None:
        """Return the name of the run that ``latest`` points to, or None."""
        latest = self.path / LATEST
        return latest.readlink().name if latest.is_symlink() else None

    def point_latest(self, run_id: str | None) -> None:
        """Point ``latest`` to a run, or to none."""
        latest = self.path / LATEST
        if not latest.is_symlink() and latest.exists():  # another file of that name is kept
            return
        if run_id is None:
            latest.unlink(missing_ok=True)
            return
        link = self.path / f".{LATEST}-{secrets.token_hex(8)}"
        link.symlink_to(run_id)
        link.replace(latest)

    def forget_latest(self) -> None:
        """Remove ``latest`` if its run no longer exists."""
        latest = self.path / LATEST
        if latest.is_symlink() and not (latest / JOURNAL).is_file():
            latest.unlink()

    def runs(self) -> list[Path]:
        """Return the folders of all runs, oldest first."""
        if not self.path.is_dir():
            return []
        found = [
            (began, path.name, path)
            for path in self.path.iterdir()
            if not path.is_symlink() and (path / JOURNAL).is_file() and (began := _begun(path))
        ]
        return [path for _, _, path in sorted(found)]

    def find(self, run: str | None) -> Path:
        """Return a run's folder by its id, a unique beginning of it, a path, or ``latest``.

        Raises:
            UsageError: if there is no such run.
        """
        runs = {path.name: path for path in self.runs()}
        if run and (Path(run) / JOURNAL).is_file():
            return Path(run).resolve()
        if not runs:
            raise UsageError(
                f"there are no runs in {self.path}", remedy="name the folder of the runs with --results-dir"
            )
        if run in (None, LATEST):
            latest = self.path / LATEST
            return runs.get(latest.resolve().name, list(runs.values())[-1])
        if run in runs:
            return runs[str(run)]
        matches = [path for name, path in runs.items() if name.startswith(str(run))]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UsageError(
                f"{run!r} fits several runs: {', '.join(path.name for path in matches[:10])}",
                remedy="write more of the id, or name the run's folder",
            )
        raise UsageError(f"there is no run {run!r} in {self.path}", remedy=did_you_mean(str(run), runs))


def _begun(run_dir: Path) -> str | None:
    """Return a run's start, as ``20260401T120000Z``, or None for a folder that vcagent did not create.

    A generated name contains the start; a run with a chosen name has a file with it.
    """
    if RUN_ID.fullmatch(run_dir.name):
        return run_dir.name[:16]
    try:
        began, name = (run_dir / NAMED).read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return None
    return began if name == run_dir.name else None
