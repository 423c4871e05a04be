"""The agent's log of a run, for sinks that send it: in parts of bounded size, with secrets masked."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.sinks.base import writable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.sinks.opening import SinkContext

_PART_BYTES = 256 * 1024


class LogEntry(NamedTuple):
    """A line of the log.

    Args:
        moment: its time.
        level: its level, such as ``info``.
        event: what happened.
        values: everything else on the line.
    """

    moment: datetime
    level: str
    event: str
    values: Mapping[str, Any]


def log_parts(run_dir: Path) -> range:
    """Return the first bytes of the parts of a run's log."""
    log = _log_of(run_dir)
    return range(0, log.stat().st_size if log.is_file() else 0, _PART_BYTES)


def log_entries(context: SinkContext, start: int) -> Iterator[LogEntry]:
    """Yield the lines of a part; lines that cannot be read are left out.

    Args:
        context: the run.
        start: the first byte of the part, from ``log_parts``. A line belongs to the part that it begins in.
    """
    with _log_of(context.run_dir).open("rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()
        while file.tell() < start + _PART_BYTES and (line := file.readline()):
            try:
                values = json.loads(context.mask(line.decode("utf-8", "replace")))
                if b"\\ud" in line.lower():
                    values = json.loads(writable(json.dumps(values, ensure_ascii=False)))
                moment = datetime.fromisoformat(str(values.pop("timestamp")).replace("Z", "+00:00"))
            except (ValueError, KeyError, AttributeError):
                continue
            level, event = str(values.pop("level", "info")), str(values.pop("event", ""))
            yield LogEntry(moment, level, event, values)


def _log_of(run_dir: Path) -> Path:
    return run_dir / "logs" / "vcagent.jsonl"
