"""The scratch space: data, models and preprocessed data, kept between runs; a record tells what is complete.

The record of a stage is written before it starts, with what was there, and again when it has ended. Data
whose stage was cut is not taken for whole: what the stage had made is moved aside, never deleted.
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
"""What NVIDIA's code expects below MLPERF_SCRATCH_PATH (README.md, "Setting up the Scratch Spaces")."""

OWN_FOLDER = ".vcagent"
_ASIDE = "incomplete"
_POLL_S = 0.2

Inventory = dict[str, tuple[int, int]]
"""Files of a folder, by their path below it: size in bytes, time of change in ns."""


@dataclass(frozen=True)
class DataStage:
    """A stage that fills a folder of the scratch space for one benchmark.

    Args:
        target: make's target: ``download_data``, ``download_model``, ``preprocess_data``.
        folder: what it fills: one of ``FOLDERS``.
        benchmark: for which benchmark.
    """

    target: str
    folder: str
    benchmark: str

    @property
    def name(self) -> str:
        """Its name in the record and the journal."""
        return f"{self.target.replace('_', '-')}-{self.benchmark}"


def inventory(folder: Path) -> Inventory:
    """All files of a folder; links are not followed."""
    found: Inventory = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)  # noqa: PTH118 - there may be a million
            status = os.stat(path, follow_symlinks=False)  # noqa: PTH116
            found[os.path.relpath(path, folder)] = (status.st_size, status.st_mtime_ns)
    return found


def new_in(after: Inventory, before: Inventory) -> Inventory:
    """The files that are new or changed."""
    return {path: values for path, values in after.items() if before.get(path) != values}


@dataclass(frozen=True)
class Scratch:
    """The scratch space.

    Args:
        path: MLPERF_SCRATCH_PATH.
    """

    path: Path

    def record_path(self, stage: DataStage) -> Path:
        """Where the record of a stage is."""
        return self.path / OWN_FOLDER / f"{stage.name}.json"

    def make(self, account: Account, *, as_root: bool) -> None:
        """Make the folders that are missing; those are the account's."""
        own = self.path / OWN_FOLDER
        for folder in (self.path, *(self.path / name for name in FOLDERS), own, own / _ASIDE):
            if not folder.is_dir():
                make_folder(folder)
                if as_root:
                    give_to(folder, account.uid, account.gid)

    @contextmanager
    def locked(self, context: StepContext, account: Account, *, as_root: bool) -> Iterator[None]:
        """Hold the scratch space for one stage; another agent's stage is waited for.

        Args:
            context: the step's.
            account: whose account works there.
            as_root: whether the agent is root: the lock is the account's all the same, which may come
                without sudo next time.

        Raises:
            HostError: if the account may not write to the lock.
            InterruptedRunError: if the run was told to stop meanwhile.
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
                            f"told to stop while another agent used {self.path}"
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
        """Why a stage must run; empty where what it made is there, whole."""
        record = self._record(stage)
        if not record:
            return "nothing is recorded of it yet"
        if record.get("state") != "complete":
            return "it was begun before and did not end"
        if record.get("round") != mlperf_round:
            return f"it was done by the code of {record.get('round')}"
        return _missing(self.path / stage.folder, record.get("files", {})) or self.lacking(stage) or ""

    def lacking(self, stage: DataStage) -> str | None:
        """What a stage must have made and is not there; empty where all is, None where nobody knows."""
        return lacking(self.path / stage.folder, stage.benchmark, stage.target)

    def begin(self, stage: DataStage, mlperf_round: str) -> str:
        """Note that a stage begins; what a cut attempt had made is moved aside first.

        Returns:
            What was moved, for people; empty for nothing.
        """
        moved, former = self._set_aside(stage), self._record(stage)
        record = {
            "stage": stage.name,
            "round": mlperf_round,
            "state": "begun",
            "begun": now().isoformat(timespec="seconds"),
            "before": inventory(self.path / stage.folder),
            # What a whole attempt had made is part of it still where this one finds it there.
            "earlier": former.get("files" if former.get("state") == "complete" else "earlier", {}),
        }
        write_json(self.record_path(stage), record)
        return moved

    def end(self, stage: DataStage, *, complete: bool) -> Mapping[str, Any]:
        """Note that a stage has ended; returns the record: what, how much, when."""
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
        if record.get("state") == "begun":  # killed: whatever appeared since may be half of something
            doubtful = new_in(found, _read_inventory(record.get("before", {})))
        elif record.get("state") == "failed" or (record.get("state") == "complete" and self.lacking(stage)):
            # What was put there by hand since is not its work. NVIDIA's scripts take half of a download that
            # they find for a whole one.
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
        return f"{len(doubtful)} files that a cut {stage.target} had left were moved to {target}"


def bytes_made(record_path: Path) -> Fact[int | None]:
    """The bytes that a stage has made; None where its record does not say that it is complete."""

    def read(host: Host) -> int | None:
        try:
            record = json.loads(host.text(str(record_path)) or "{}")
        except ValueError:
            return None
        return record.get("bytes") if isinstance(record, dict) and record.get("state") == "complete" else None

    return Fact(f"bytes_made[{record_path}]", str(record_path), read)


def _read_inventory(files: Mapping[str, Any]) -> Inventory:
    """An inventory as a record has it."""
    return {path: (size, changed) for path, (size, changed) in files.items()}


def _unchanged(found: Inventory, record: Mapping[str, Any]) -> Inventory:
    """What is as a stage had made it."""
    made = _read_inventory(record.get("files", {}))
    return {path: values for path, values in found.items() if made.get(path) == values}


def _remove_empty(folder: Path, top: Path) -> None:
    """Remove a folder below another that nothing is left in: ``mv`` would move into it what is to be it."""
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
            return f"{folder / path} has {found} bytes, not {size} as when it was made"
    return ""
