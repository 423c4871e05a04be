"""Follow the kernel log: /dev/kmsg if readable, else the systemd journal."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent.facts import LocalHost

if TYPE_CHECKING:
    from agent.facts import Host

_RECORD = re.compile(r"^\d+,\d+,\d+,[^;]*;", re.MULTILINE)
_JOURNAL = ("journalctl", "--dmesg", "--quiet", "--no-pager", "--show-cursor", "--output=cat")
_CURSOR = "-- cursor: "
JOURNAL_INTERVAL_S = 60.0
"""Minimum interval of journalctl, which costs tens of milliseconds; it also runs when a case ends."""


class KernelLog:
    """Kernel messages after ``open``.

    Args:
        path: the device (Documentation/ABI/testing/dev-kmsg in the kernel's source): one record per read.
        host: runs journalctl.
    """

    def __init__(self, path: Path = Path("/dev/kmsg"), host: Host | None = None) -> None:
        self.path = path
        self._host: Host = host or LocalHost()
        self._file: int | None = None
        self._cursor = ""
        self._asked_s = 0.0

    def open(self) -> str:
        """Move to the end of the log.

        Returns:
            Why the log cannot be read; empty if it can.
        """
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            self._ask_journal("--lines=1")
            return "" if self._cursor else f"{self.path}: {error.strerror}; journalctl tells nothing"
        return ""

    def close(self) -> None:
        """Close the device."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def lines(self, *, now: bool = False) -> list[str]:
        """Return the lines since the last call.

        Args:
            now: True to query even an expensive source.
        """
        if self._file is not None:
            return self._read(self._file)
        if self._cursor and (now or time.monotonic() - self._asked_s >= JOURNAL_INTERVAL_S):
            return self._ask_journal(f"--after-cursor={self._cursor}")
        return []

    @staticmethod
    def _read(file: int) -> list[str]:
        lines: list[str] = []
        while True:
            try:
                data = os.read(file, 1 << 16)
            except BrokenPipeError:  # unread records have been overwritten: the next read continues
                continue
            except OSError:
                return lines
            if not data:
                return lines
            lines += _RECORD.sub("", data.decode("utf-8", "replace")).splitlines()

    def _ask_journal(self, *options: str) -> list[str]:
        self._asked_s = time.monotonic()
        lines = (self._host.output([*_JOURNAL, *options], timeout_s=20) or "").splitlines()
        if lines and lines[-1].startswith(_CURSOR):
            self._cursor = lines.pop().removeprefix(_CURSOR)
        return lines
