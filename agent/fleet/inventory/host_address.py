"""``user@host:port``, as people write it."""

from __future__ import annotations

import re
from typing import Any

from agent.core.errors import UsageError

_ADDRESS = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s:]+)@)?(?:\[(?P<ipv6>[0-9A-Fa-f:.%\w]*::?[0-9A-Fa-f:.%\w]*)\]|(?P<host>[^@\s]+?))"
    r"(?::(?P<port>\d+))?/?"
)


def host_address(text: str, where: str | None = None) -> tuple[str, dict[str, Any]]:
    """A host's name and the variables that its address holds.

    An address of IPv6 with a port stands in brackets; a bare one has no port.

    Raises:
        UsageError: if it is no address.
    """
    if "@" not in text and text.count(":") > 1 and "[" not in text:
        return text, {}
    found = _ADDRESS.fullmatch(text)
    if not found or text.startswith("-"):
        raise UsageError(
            f"{text!r} is no host", where=where, remedy="write host, host:port or user@host:port"
        )
    variables = {name: found[name] for name in ("user", "port") if found[name]}
    return found["ipv6"] or found["host"], variables
