"""Manage the scratch space: data and models that are kept between runs, with records of complete stages.

A stage's record is written before it starts, with the existing files, and again when it has ended. Data of an
interrupted stage does not count as complete: its files are moved aside, never deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actions.nvidia_harness.expected_files import lacking
from agent.core.counts import count_of
from agent.core.errors import HostError, InterruptedRunError
from agent.core.safe_files import give_to, make_folder, open_file
from agent.facts.base import Fact
from agent.store.journal import now
from agent.store.results import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.component.component import StepContext
    from agent.facts.base import Host
    from agent.facts.users import Account

FOLDERS = ("data", "models", "preprocessed_data")
"""Folders that NVIDIA's code expects below MLPERF_SCRATCH_PATH (README.md, "Setting up the Scratch
Spaces")."""

OWN_FOLDER = ".vcagent"
_ASIDE = "incomplete"
_POLL_S = 0.2

Inventory = dict[str, tuple[int, int]]
"""Files of a folder, by their path below it: size in bytes, modification time in ns."""


@dataclass(frozen=True)
class DataStage:
    """A stage that fills a folder of the scratch space for one benchmark.

    Args:
        target: make's target: ``download_data``, ``download_model``, ``preprocess_data``.
        folder: the folder to fill: one of ``FOLDERS``.
        benchmark: the benchmark.
    """

    target: str
    folder: str
    benchmark: str

    @property
    def name(self) -> str:
        """Name of the stage in the record and the journal."""
        return f"{self.target.replace('_', '-')}-{self.benchmark}"


def inventory(folder: Path) -> Inventory:
    """Return all files of a folder, without following links."""
    found: Inventory = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)  # noqa: PTH118 - perhaps a million files
            status = os.stat(path, follow_symlinks=False)  # noqa: PTH116
            found[os.path.relpath(path, folder)] = (status.st_size, status.st_mtime_ns)
    return found


def new_in(after: Inventory, before: Inventory) -> Inventory:
    """Return the new or changed files."""
    return {path: values for path, values in after.items() if before.get(path) != values}


@dataclass(frozen=True)
class Scratch:
    """The scratch space.

    Args:
        path: MLPERF_SCRATCH_PATH.
    """

    path: Path

    def record_path(self, stage: DataStage) -> Path:
        """Return the path of a stage's record."""
        return self.path / OWN_FOLDER / f"{stage.name}.json"

    def make(self, account: Account, *, as_root: bool) -> None:
        """Create missing folders, owned by the account."""
        own = self.path / OWN_FOLDER
        for folder in (self.path, *(self.path / name for name in FOLDERS), own, own / _ASIDE):
            if not folder.is_dir():
                make_folder(folder)
                if as_root:
                    give_to(folder, account.uid, account.gid)

    @contextmanager
    def locked(self, context: StepContext, account: Account, *, as_root: bool) -> Iterator[None]:
        """Hold the scratch space for one stage; wait for another agent's stage.

        Args:
            context: the context of the step.
            account: the account that works there.
            as_root: True if the agent is root: the account still owns the lock, since it may run
                without sudo next time.

        Raises:
            HostError: if the account cannot write to the lock.
            InterruptedRunError: if the run was asked to stop meanwhile.
        """
        with os.fdopen(self._lock(account, as_root=as_root), "r+", encoding="utf-8") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    context.progress.update(f"waiting for another agent that prepares {self.path}")
                    if context.stop.wait(_POLL_S):
                        raise InterruptedRunError(
                            f"asked to stop while another agent used {self.path}"
                        ) from None
            yield

    def _lock(self, account: Account, *, as_root: bool) -> int:
        path = self.path / OWN_FOLDER / "lock"
        try:
            descriptor = open_file(path, os.O_RDWR | os.O_CREAT, 0o600, owner=account.uid)
        except PermissionError as error:
            raise HostError(
                f"{account.name} cannot write to {path}: another account has used this scratch space",
                remedy=f"chown {account.name} {path}, as root, or give another folder as ScratchPath",
            ) from error
        status = os.fstat(descriptor)
        if as_root and status.st_uid == 0 and status.st_nlink == 1:
            os.fchown(descriptor, account.uid, account.gid)
        return descriptor

    def why_due(self, stage: DataStage, mlperf_round: str) -> str:
        """Explain why a stage must run; return an empty string if its data is complete."""
        record = self._record(stage)
        if not record:
            return "this stage never ran"
        if record.get("state") != "complete":
            return "it was begun before but did not end"
        if record.get("round") != mlperf_round:
            return f"it was run by the code of {record.get('round')}"
        return _missing(self.path / stage.folder, record.get("files", {})) or self.lacking(stage) or ""

    def lacking(self, stage: DataStage) -> str | None:
        """Describe missing files of a stage; empty if none are missing, None if unknown."""
        return lacking(self.path / stage.folder, stage.benchmark, stage.target)

    def begin(self, stage: DataStage, mlperf_round: str) -> str:
        """Record that a stage begins; first move files of an interrupted attempt aside.

        Returns:
            A description of the moved files; empty for none.
        """
        moved, former = self._set_aside(stage), self._record(stage)
        record = {
            "stage": stage.name,
            "round": mlperf_round,
            "state": "begun",
            "begun": now().isoformat(timespec="seconds"),
            "before": inventory(self.path / stage.folder),
            # Files of a complete attempt still belong to the stage if this attempt finds them.
            "earlier": former.get("files" if former.get("state") == "complete" else "earlier", {}),
        }
        write_json(self.record_path(stage), record)
        return moved

    def end(self, stage: DataStage, *, complete: bool) -> Mapping[str, Any]:
        """Record that a stage has ended; return the record with files, sizes and time."""
        record = self._record(stage)
        found = inventory(self.path / stage.folder)
        made = new_in(found, _read_inventory(record.pop("before", {})))
        if complete:
            earlier = _read_inventory(record.pop("earlier", {}))
            made |= {path: values for path, values in earlier.items() if found.get(path) == values}
        record |= {
            "state": "complete" if complete else "failed",
            "ended": now().isoformat(timespec="seconds"),
            "count": len(made),
            "bytes": sum(size for size, _ in made.values()),
            "files": made,
        }
        write_json(self.record_path(stage), record)
        return record

    def _record(self, stage: DataStage) -> dict[str, Any]:
        try:
            record = json.loads(self.record_path(stage).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def _set_aside(self, stage: DataStage) -> str:
        record, folder = self._record(stage), self.path / stage.folder
        found = inventory(folder)
        if record.get("state") == "begun":  # killed: any file that appeared since may be incomplete
            doubtful = new_in(found, _read_inventory(record.get("before", {})))
        elif record.get("state") == "failed" or (record.get("state") == "complete" and self.lacking(stage)):
            # Files added by hand since then are not the stage's. NVIDIA's scripts accept an incomplete
            # download as complete.
            doubtful = _unchanged(found, record)
        else:
            return ""
        if not doubtful:
            return ""
        target = self.path / OWN_FOLDER / _ASIDE / f"{stage.name}-{now():%Y%m%dT%H%M%S}"
        for path in doubtful:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder / path, target / path)
            _remove_empty((folder / path).parent, folder)
        return f"moved {count_of(len(doubtful), 'file')} of an interrupted {stage.target} to {target}"


def bytes_made(record_path: Path) -> Fact[int | None]:
    """Return the fact of the bytes that a stage has made; None unless its record says that it is complete."""

    def read(host: Host) -> int | None:
        try:
            record = json.loads(host.text(str(record_path)) or "{}")
        except ValueError:
            return None
        return record.get("bytes") if isinstance(record, dict) and record.get("state") == "complete" else None

    return Fact(f"bytes_made[{record_path}]", str(record_path), read)


def _read_inventory(files: Mapping[str, Any]) -> Inventory:
    """Return an inventory from a record."""
    return {path: (size, changed) for path, (size, changed) in files.items()}


def _unchanged(found: Inventory, record: Mapping[str, Any]) -> Inventory:
    """Return the files that are unchanged since the stage made them."""
    made = _read_inventory(record.get("files", {}))
    return {path: values for path, values in found.items() if made.get(path) == values}


def _remove_empty(folder: Path, top: Path) -> None:
    """Remove a folder and its parents up to ``top`` if empty: ``mv`` would otherwise move files into it."""
    while folder != top and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _missing(folder: Path, files: Mapping[str, Any]) -> str:
    for path, (size, _) in files.items():
        try:
            found = (folder / path).stat(follow_symlinks=False).st_size
        except OSError:
            return f"{folder / path} is gone"
        if found != size:
            return f"{folder / path} has {found} bytes instead of the original {size}"
    return ""
