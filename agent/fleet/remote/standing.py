"""The state of a run on this host, read from its journal and locks, whoever runs it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from agent.core.errors import ExitCode
from agent.facts import Facts, LocalHost
from agent.facts.boot import BOOT
from agent.store.results import JOURNAL, LOCK, ResultsFolder

END = "end.json"
OUTPUT = "output.log"
RESULTS = "results"
SUPERVISOR_LOCK = "lock"
_TAIL_BYTES = 4096
_LONGEST_MESSAGE = 300
_RESUMABLE = (ExitCode.REBOOT_PENDING, ExitCode.INTERRUPTED)


class RunState(str, Enum):
    """The state of a run."""

    ABSENT = "absent"
    RUNNING = "running"
    ENDED = "ended"
    DEAD = "dead"
    """The run began and did not end, but no process is working on it."""


@dataclass(frozen=True)
class Standing:
    """The state and progress of a run, for the controller.

    Args:
        state: the state of the run.
        boot: the boot id of the host.
        exit_code: the exit code; None if the run has not ended.
        error: the error, if the run ended before it was created.
        step: the current or latest step.
        done: the number of completed steps.
        message: the last line of its progress output.
    """

    state: RunState
    boot: str
    exit_code: int | None = None
    error: str = ""
    step: str = ""
    done: int = 0
    message: str = ""

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes | str) -> Standing:
        """Create the standing from the text of ``to_json``."""
        values = json.loads(text)
        return cls(**{**values, "state": RunState(values["state"])})


def standing_of(run_dir: Path, boot: str | None = None) -> Standing:
    """Return the standing of a run.

    Args:
        run_dir: the folder of the fleet run on this host.
        boot: the boot id, if it was read before.
    """
    boot = Facts(LocalHost())[BOOT] if boot is None else boot
    if not run_dir.is_dir():
        return Standing(RunState.ABSENT, boot)
    # Check the locks before the journal: a run that ends in between is then reported as running once more.
    running = any(held(lock) for lock in (run_dir / SUPERVISOR_LOCK, run_dir / RESULTS / LOCK))
    journal = _journal(run_dir)
    shown = {
        "step": journal.get("step", ""),
        "done": journal.get("done", 0),
        "message": _last_line(run_dir / OUTPUT),
    }
    if running:
        return Standing(RunState.RUNNING, boot, **shown)
    end: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        end = json.loads((run_dir / END).read_text(encoding="utf-8"))
    # A resumed run has progressed beyond the end that an earlier boot recorded; a run that could not be
    # resumed is not in the journal.
    is_last = end.get("boot") == boot
    written = journal.get("exit_code")
    if written is not None and not (is_last and written in _RESUMABLE):
        return Standing(RunState.ENDED, boot, written, **shown)
    if is_last:
        return Standing(RunState.ENDED, boot, end["exit_code"], end["error"], **shown)
    return Standing(RunState.DEAD, boot, **shown)


def held(lock: Path) -> int | None:
    """Return the process that holds a lock, or None.

    The process has written its id into the file and has the file open. The lock itself is not tried: holding
    it for even a moment could make an agent fail that is about to take it.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        process = int(json.loads(lock.read_text(encoding="utf-8"))["pid"])
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                if descriptor.samefile(lock):
                    return process
    return None


def _journal(run_dir: Path) -> dict[str, Any]:
    runs = ResultsFolder(run_dir / RESULTS).runs()
    if not runs:
        return {}
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"file:{runs[-1] / JOURNAL}?mode=ro", uri=True, timeout=5)) as database,
    ):
        last = database.execute("SELECT component, name FROM steps ORDER BY position DESC LIMIT 1").fetchone()
        done = database.execute("SELECT count(*) FROM steps WHERE status = 'done'").fetchone()
        ended = database.execute("SELECT value FROM run WHERE key = 'exit_code'").fetchone()
        title = database.execute("SELECT value FROM run WHERE key = 'at'").fetchone()
        return {
            "step": json.loads(title[0]) if title else ": ".join(last) if last else "",
            "done": done[0],
            "exit_code": json.loads(ended[0]) if ended else None,
        }
    return {}


def _last_line(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
        return next((line[:_LONGEST_MESSAGE] for line in reversed(lines) if line), "")
    return ""
