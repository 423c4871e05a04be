"""The agent's own log: one JSON object per line, secrets masked, nothing on the console."""

from __future__ import annotations

import json
import threading
import traceback
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.core.safe_files import append_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

    from agent.core.secrets import Secrets

LEVELS = ("debug", "info", "warning", "error", "critical")
"""Ordered from the least important."""

_VIRTUALCLIENT = {"trace": "debug", "information": "info", "none": "critical"}
_NUMBERS = ("debug", "debug", "info", "warning", "error", "critical", "critical")
"""VirtualClient's levels 0 (Trace) to 6 (None)."""


def parse_level(text: str) -> str:
    """Read ``--log-level``: a name, or one of VirtualClient's names or numbers.

    Raises:
        UsageError: if it is none of these.
    """
    name = text.strip().lower()
    level = (
        _NUMBERS[int(name)]
        if name.isdigit() and int(name) < len(_NUMBERS)
        else _VIRTUALCLIENT.get(name, name)
    )
    if level not in LEVELS:
        raise UsageError(
            f"'{text}' is not a log level", remedy=f"write one of {', '.join(LEVELS)}, or 0 to 5"
        )
    return level


class AgentLog:
    """Writes events to a file as lines of JSON. Events that come after the file was closed are dropped.

    Args:
        file: the open file, which is written line by line.
        secrets: the secrets to mask in each event's message, values and traceback.
        level: the least important events that are kept, one of LEVELS.
    """

    def __init__(self, file: TextIO, secrets: Secrets, level: str) -> None:
        self._file = file
        self._secrets = secrets
        self._kept = LEVELS[LEVELS.index(level) :]
        self._lock = threading.Lock()

    def info(self, event: str, **values: object) -> None:
        """Log a normal event."""
        self._write("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        """Log a failure, or something that the user should know."""
        self._write("warning", event, values)

    def exception(self, event: str, **values: object) -> None:
        """Log a defect of the agent, with the traceback of the current exception."""
        self._write("error", event, {**values, "exception": traceback.format_exc().rstrip()})

    def _write(self, level: str, event: str, values: dict[str, object]) -> None:
        if level not in self._kept:
            return
        moment = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
        entry = self._secrets.mask_value({**values, "event": event, "level": level, "timestamp": moment})
        line = json.dumps(entry, ensure_ascii=False, default=lambda value: self._secrets.mask(str(value)))
        with self._lock:
            if not self._file.closed:
                self._file.write(f"{line}\n")


@contextmanager
def agent_log(path: Path, secrets: Secrets, level: str = "debug") -> Iterator[AgentLog]:
    """Open the log of a run.

    Args:
        path: ``logs/vcagent.jsonl`` of the run; appended to.
        secrets: the secrets to mask.
        level: the least important events that are kept: debug, info, warning, error or critical.
    """
    with append_to(path, errors="backslashreplace", buffering=1) as file:
        yield AgentLog(file, secrets, level)
