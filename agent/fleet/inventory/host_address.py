"""Parses ``user@host:port``."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Any

from agent.core.errors import UsageError

_ADDRESS = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s:]+)@)?(?:\[(?P<bracketed>[\w:.%-]+)\]|(?P<host>[^@\s]+?))"
    r"(?::(?P<port>\d+))?/?"
)
_RANGE = re.compile(r"\[[^]]*\]")


def host_address(text: str, where: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return a host's name, and the variables that its address contains.

    An IPv6 address with a port is written in brackets; without brackets it has no port. OpenSSH writes
    brackets around any name (``ssh -G``, proxyjump).

    Raises:
        UsageError: if the text is not an address.
    """
    user, _, address = text.removeprefix("ssh://").rpartition("@")
    bare = address.rstrip("/")
    if _is_ipv6(bare):
        found = _ADDRESS.fullmatch(f"{user}@[{bare}]" if user else f"[{bare}]")
    else:
        found = _ADDRESS.fullmatch(text)
    plain = _RANGE.sub("1", (found and found["host"]) or "")
    if not found or text.startswith("-") or address.startswith("-") or (":" in plain and not _is_ipv6(plain)):
        raise UsageError(
            f"{text!r} is not a host", where=where, remedy="write host, host:port or user@host:port"
        )
    variables = {name: found[name] for name in ("user", "port") if found[name]}
    return found["bracketed"] or found["host"], variables


def written_address(address: str, port: int | None = None) -> str:
    """Return an address as ``host_address`` reads it: an IPv6 address with a port is in brackets."""
    if port is None:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
