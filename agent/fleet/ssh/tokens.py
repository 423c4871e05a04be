"""Expands the tokens in values of an SSH configuration (ssh_config(5), TOKENS)."""

from __future__ import annotations

import getpass
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(r"%(.)")


@dataclass(frozen=True)
class Tokens:
    """The values of the tokens for one host; ``%C`` and other unsupported tokens stay as they are.

    Args:
        address: the address that is connected to.
        name: the host name as typed.
        port: its port.
        user: whom to log in as.
    """

    address: str
    name: str
    port: int
    user: str

    def filled(self, text: str) -> str:
        """Return a text with its tokens expanded."""
        values: dict[str, Callable[[], str]] = {
            "%": lambda: "%",
            "h": lambda: self.address,
            "n": lambda: self.name,
            "p": lambda: str(self.port),
            "r": lambda: self.user,
            "u": getpass.getuser,
            "i": lambda: str(os.getuid()),
            "d": lambda: str(Path.home()),
            "l": socket.getfqdn,
            "L": lambda: socket.gethostname().partition(".")[0],
        }
        return _TOKEN.sub(lambda token: values[token[1]]() if token[1] in values else token[0], text)
