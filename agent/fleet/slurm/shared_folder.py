"""The folder that the controller shares with the nodes: orders out, standings back."""

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
    """The folder of one fleet run.

    Args:
        path: it lies on a file system that the nodes share, below the fleet run's own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = threading.Lock()

    def put_bundle(self, platform: Platform, bundle: Bundle) -> None:
        """Lay the agent out for nodes of a platform."""
        folder = self.path / "bundles"
        make_folder(folder)
        described = folder / f"{platform}.json"
        with self._lock:  # a node may unpack what another node asked for
            if not described.is_file():
                copy_file(bundle.path, described.with_suffix(".tar.gz"))
                write_json(described, {"bytes": bundle.path.stat().st_size, "sha256": bundle.sha256})

    def put_order(self, index: int, python: str, order: Mapping[str, Any]) -> None:
        """Lay out what a task is to do.

        Args:
            index: the task's number.
            python: the node's Python; empty for the first that is new enough.
            order: as ``run_job`` takes it; nothing secret.
        """
        file = self._file(index, ".json")
        write_json(file, order)
        replace_bytes(self._file(index, ".doorstep"), doorstep_input({"do": "job", "task": str(file)}))
        script = f"exec {first_command(python)} <{shlex.quote(str(self._file(index, '.doorstep')))}\n"
        replace_text(self._file(index, ".sh"), script)

    def standing(self, index: int) -> Standing | None:
        """What a task has told last; None if nothing."""
        with suppress(OSError):
            return Standing.from_json(self._file(index, STANDING_SUFFIX).read_bytes())
        return None

    def look_again(self) -> None:
        """Forget which files are missing: NFS asks its server anew where a folder is opened."""
        with suppress(OSError):
            list(self.path.iterdir())

    def wanted(self, index: int) -> dict[str, str]:
        """What a task waits for: ``platform``, a bundle for that; ``pipe``, its request."""
        with suppress(OSError):
            wanted: dict[str, str] = json.loads(self._file(index, WANTS_SUFFIX).read_bytes())
            return wanted
        return {}

    def answered(self, index: int) -> None:
        """Note that the task has what it waited for."""
        self._file(index, WANTS_SUFFIX).unlink(missing_ok=True)

    def said(self, index: int) -> str:
        """The last line that a task's script wrote; empty if none."""
        with suppress(OSError):
            text = self._file(index, ".log").read_text(encoding="utf-8", errors="replace")
            return (text.strip().splitlines() or [""])[-1].strip()
        return ""

    def clear(self) -> None:
        """Remove what only tasks at work need."""
        shutil.rmtree(self.path / "bundles", ignore_errors=True)
        for pattern in ("*.doorstep", "*.sh", "*.json", "*.part"):
            for file in self.path.glob(pattern):
                file.unlink(missing_ok=True)

    def _file(self, index: int, suffix: str) -> Path:
        return self.path / f"task-{index}{suffix}"
