"""The server that a run left running: noted in the run's folder, and looked at whether it still runs."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from agent.core.safe_files import replace_text

if TYPE_CHECKING:
    from pathlib import Path

SERVING_FILE = "serving.json"


@dataclass(frozen=True)
class Serving:
    """A server that stays when its run has ended.

    Args:
        name: the service's name in the run.
        url: where it answers.
        model: what it serves; empty if unknown.
        pid: its process, which leads a group of its own.
        created_s: when that process began, in seconds since 1970: a number alone may be another's later.
        log: the file that gets its output; of a container the command that shows it.
        container: the name of its container; empty for a process group of the host.
    """

    name: str
    url: str
    model: str
    pid: int
    created_s: float
    log: str
    container: str = ""

    @property
    def how_to_stop(self) -> str:
        """The command that ends it, with all that it started."""
        return f"docker rm --force {self.container}" if self.container else f"kill -- -{self.pid}"

    @property
    def shown(self) -> str:
        """The model, or else the service, with its address."""
        return f"{self.model or self.name} at {self.url}"

    def write(self, run_dir: Path) -> None:
        """Note it in the run's folder."""
        replace_text(run_dir / SERVING_FILE, json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    def to_json(self) -> dict[str, Any]:
        """Return what people and programs need of it."""
        return {"name": self.name, "url": self.url, "model": self.model, "stop": self.how_to_stop}


def still_serving(run_dir: Path) -> Serving | None:
    """Return the server that a run left running; None if there is none, or if it has ended."""
    try:
        serving = Serving(**json.loads((run_dir / SERVING_FILE).read_text(encoding="utf-8")))
        process = psutil.Process(serving.pid)
        runs = process.create_time() == serving.created_s and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, ValueError, TypeError, psutil.Error):
        return None
    return serving if runs else None
