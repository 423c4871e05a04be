"""Handles a command's output: masks it into the log, keeps its last part, passes lines on."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING

from agent.core.progress import PROGRESS_EVENT
from agent.core.safe_files import append_to, write_to
from agent.core.secrets import LineMasker, Secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

CAPTURE_LIMIT = 65_536
"""Characters of each stream that are kept in memory; the log has all."""

_LONGEST_CHARACTER = 4
"""Most bytes of a character in UTF-8."""


class Tail:
    """The last part of a text that grows without limit."""

    def __init__(self, limit: int = CAPTURE_LIMIT) -> None:
        self._limit = limit
        self._pieces: deque[str] = deque()
        self._length = 0

    def append(self, text: str) -> None:
        """Append a text; drop everything before the last ``limit`` characters."""
        self._pieces.append(text)
        self._length += len(text)
        while self._length - len(self._pieces[0]) >= self._limit:
            self._length -= len(self._pieces.popleft())

    def text(self) -> str:
        """Return the last ``limit`` characters, or all if fewer."""
        return "".join(self._pieces)[-self._limit :]


class OutputLog:
    """The log of one command, fed by the readers of its two streams; safe to use from both threads.

    Args:
        path: the log; appended to, its folder is made.
        command: the command, masked; the first line.
        secrets: the secrets to mask.
        on_line: called with each line, masked, without its end.
        copies: for ``stdout`` and ``stderr`` a file that receives only this stream, masked; overwritten.
    """

    def __init__(
        self,
        path: Path,
        command: str,
        secrets: Secrets,
        on_line: Callable[[str], None] | None = None,
        copies: Mapping[str, Path] | None = None,
    ) -> None:
        self._file = append_to(path)
        self._copies = {name: write_to(copy) for name, copy in (copies or {}).items()}
        self._lock = threading.Lock()
        self._on_line = on_line
        self._maskers = {name: LineMasker(secrets) for name in ("stdout", "stderr")}
        self._tails = {name: Tail() for name in ("stdout", "stderr")}
        self._both = Tail()
        self._write(header(command))

    def feed(self, stream: str, data: bytes) -> None:
        """Take bytes of ``stdout`` or ``stderr``; empty at its end."""
        masker = self._maskers[stream]
        text = masker.feed(data) if data else masker.close()
        if not text:
            return
        with self._lock:
            self._write(text)
            if (copy := self._copies.get(stream)) and not copy.closed:
                copy.write(text)
            self._tails[stream].append(text)
            self._both.append(text)
            if self._on_line:
                for line in text.splitlines():
                    self._on_line(line)

    def note(self, text: str) -> None:
        """Write a line of the agent's own."""
        with self._lock:
            self._write(f"[{text}]\n")

    def text(self, stream: str) -> str:
        """Return the last part of a stream."""
        with self._lock:
            return self._tails[stream].text()

    def lines(self, count: int) -> tuple[str, ...]:
        """Return the last lines of both streams in order, without reports of progress."""
        with self._lock:
            lines = self._both.text().splitlines()
        return tuple([line for line in lines if not line.startswith(PROGRESS_EVENT)][-count:])

    def close(self, footer: str) -> None:
        """Write the footer and close the log; do nothing if it is closed."""
        with self._lock:
            self._write(f"{footer}\n")
            for file in (self._file, *self._copies.values()):
                file.close()

    def _write(self, text: str) -> None:
        if not self._file.closed:
            self._file.write(text)
            self._file.flush()


def header(command: str) -> str:
    """Return the line before a command's output."""
    return f"$ {command}\n"


def last_output(path: Path, command: str) -> str:
    """Return the last part of a log's output of the command's last run."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - CAPTURE_LIMIT * _LONGEST_CHARACTER)
            file.seek(start)
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    _, found, output = text.rpartition(header(command))
    # A header that stands further up has more output after it than is wanted.
    return output[-CAPTURE_LIMIT:] if found or start else ""
