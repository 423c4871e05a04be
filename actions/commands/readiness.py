"""Check whether a server is ready: it answers at a URL, a port is open, or it has written a line."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import regex

_REPLY_TIMEOUT_S = 5.0
_SILENCE_S = 0.5
_MATCHING_S = 5.0
_LEAST_ERROR = 400


def is_open(host: str, port: int, *, published: bool = False) -> bool:
    """Return True if a server is listening on a TCP port.

    Args:
        host: the address.
        port: the port.
        published: True if Docker publishes the port: Docker's proxy accepts a connection before the server is
            ready, and drops it at once.
    """
    try:
        with socket.create_connection((host, port), timeout=_REPLY_TIMEOUT_S) as connection:
            if not published:
                return True
            connection.settimeout(_SILENCE_S)
            return bool(connection.recv(1))
    except TimeoutError:
        return published  # the server keeps the connection and waits for a request
    except OSError:
        return False


def answers(url: str) -> bool:
    """Return True if a GET of a URL returns a status below 400; never uses a proxy."""
    address = urlsplit(url)
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=_REPLY_TIMEOUT_S)
    path = f"{address.path or '/'}{'?' if address.query else ''}{address.query}"
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        reply = connection.getresponse()
        reply.read()
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()
    return reply.status < _LEAST_ERROR


class OutputLines:
    """Search the lines that a command adds to its log.

    Args:
        log: the log.
        pattern: the regular expression that a line must match.
    """

    def __init__(self, log: Path, pattern: regex.Pattern[str]) -> None:
        self._log = log
        self._pattern = pattern
        self._position = log.stat().st_size if log.exists() else 0

    def found(self) -> bool:
        """Return True if a line written since the last call matches."""
        with self._log.open("rb") as file:
            file.seek(self._position)
            read = file.read()
        whole = read[: read.rfind(b"\n") + 1]
        self._position += len(whole)
        return any(self._fits(line) for line in _lines(whole))

    def _fits(self, line: str) -> bool:
        # The log also shows the command line, which may contain the words of the pattern.
        return not line.startswith("$ ") and bool(self._pattern.search(line, timeout=_MATCHING_S))


def _lines(text: bytes) -> Iterable[str]:
    return text.decode(errors="replace").splitlines()
