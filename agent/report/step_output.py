"""The end of a step's log: what its command printed, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.progress import PROGRESS_EVENT
from agent.core.terminal import printable

if TYPE_CHECKING:
    from pathlib import Path

_READ_BYTES = 64 * 1024
"""Bytes that are read from the end of a log."""


def last_lines(log: Path | None, count: int) -> tuple[str, ...]:
    """Return the last lines of a log, safe to show; the first line says how many others there are.

    Reports of progress are left out.

    Args:
        log: the log; None, or a file that no longer exists, has no lines.
        count: the largest number of the log's lines to return.
    """
    if log is None:
        return ()
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _READ_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ()
    lines = printable(text.replace("\r\n", "\n")).splitlines()
    if is_cut := size > _READ_BYTES:
        lines = lines[1:]
    lines = [line for line in lines if not line.startswith(PROGRESS_EVENT)]
    if is_cut:
        return ("… earlier lines: see the log", *lines[-count:])
    if len(lines) > count:
        return (f"… {len(lines) - count:,} earlier lines: see the log", *lines[-count:])
    return tuple(lines)
