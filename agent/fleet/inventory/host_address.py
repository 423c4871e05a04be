"""Parses ``user@host:port``."""

from __future__ import annotations

import re
from typing import Any

from agent.core.errors import UsageError

_ADDRESS = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s:]+)@)?(?:\[(?P<bracketed>[\w:.%-]+)\]|(?P<host>[^@\s]+?))"
    r"(?::(?P<port>\d+))?/?"
)


def host_address(text: str, where: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return a host's name, and the variables that its address contains.

    An IPv6 address with a port is written in brackets; without brackets it has no port. OpenSSH writes
    brackets around any name (``ssh -G``, proxyjump).

    Raises:
        UsageError: if the text is not an address.
    """
    if "@" not in text and text.count(":") > 1 and "[" not in text:
        return text, {}
    found = _ADDRESS.fullmatch(text)
    if not found or text.startswith("-"):
        raise UsageError(
            f"{text!r} is not a host", where=where, remedy="write host, host:port or user@host:port"
        )
    variables = {name: found[name] for name in ("user", "port") if found[name]}
    return found["bracketed"] or found["host"], variables
