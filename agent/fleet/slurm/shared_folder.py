"""The folder that the controller shares with the nodes: orders go out, standings come back."""

from __future__ import annotations

import json
import shlex
import shutil
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.core.safe_files import copy_file, make_folder, replace_bytes, replace_text
from agent.fleet.commands import doorstep_input, first_command
from agent.fleet.remote.job import STANDING_SUFFIX, WANTS_SUFFIX
from agent.fleet.remote.standing import Standing
from agent.store.results import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.fleet.bundle import Bundle, Platform


class SharedFolder:
    """The shared folder of one fleet run.

    Args:
        path: the folder, inside the fleet run's folder, on a file system that the nodes share.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = threading.Lock()

    def put_bundle(self, platform: Platform, bundle: Bundle) -> None:
        """Write the bundle for a platform."""
        folder = self.path / "bundles"
        make_folder(folder)
        described = folder / f"{platform}.json"
        with self._lock:  # a node may be unpacking a bundle that another node requested
            if not described.is_file():
                copy_file(bundle.path, described.with_suffix(".tar.gz"))
                write_json(described, {"bytes": bundle.path.stat().st_size, "sha256": bundle.sha256})

    def put_order(self, index: int, python: str, order: Mapping[str, Any]) -> None:
        """Write the order of a task.

        Args:
            index: the number of the task.
            python: the node's Python; empty for the first that is new enough.
            order: the order that ``run_job`` reads; it must not contain secrets.
        """
        file = self._file(index, ".json")
        write_json(file, order)
        replace_bytes(self._file(index, ".doorstep"), doorstep_input({"do": "job", "task": str(file)}))
        script = f"exec {first_command(python)} <{shlex.quote(str(self._file(index, '.doorstep')))}\n"
        replace_text(self._file(index, ".sh"), script)

    def standing(self, index: int) -> Standing | None:
        """Return the latest standing of a task; None if there is none yet."""
        with suppress(OSError):
            return Standing.from_json(self._file(index, STANDING_SUFFIX).read_bytes())
        return None

    def look_again(self) -> None:
        """Refresh the folder's listing: NFS asks its server again when a folder is opened."""
        with suppress(OSError):
            list(self.path.iterdir())

    def wanted(self, index: int) -> dict[str, str]:
        """Return what a task waits for: ``platform`` for a bundle, ``pipe`` for its request."""
        with suppress(OSError):
            wanted: dict[str, str] = json.loads(self._file(index, WANTS_SUFFIX).read_bytes())
            return wanted
        return {}

    def answered(self, index: int) -> None:
        """Record that the task has received what it waited for."""
        self._file(index, WANTS_SUFFIX).unlink(missing_ok=True)

    def said(self, index: int) -> str:
        """Return the last line that a task's script wrote; empty if there is none."""
        with suppress(OSError):
            text = self._file(index, ".log").read_text(encoding="utf-8", errors="replace")
            return (text.strip().splitlines() or [""])[-1].strip()
        return ""

    def clear(self) -> None:
        """Remove the files that only running tasks need."""
        shutil.rmtree(self.path / "bundles", ignore_errors=True)
        for pattern in ("*.doorstep", "*.sh", "*.json", "*.part"):
            for file in self.path.glob(pattern):
                file.unlink(missing_ok=True)

    def _file(self, index: int, suffix: str) -> Path:
        return self.path / f"task-{index}{suffix}"
