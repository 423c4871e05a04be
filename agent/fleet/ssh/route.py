"""The way to a host: through which hosts, as whom, with which keys."""

from __future__ import annotations

import getpass
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import UsageError
from agent.fleet.inventory.host import FleetHost
from agent.fleet.inventory.host_address import host_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paramiko import SSHConfig

__all__ = ["Hop", "route_to"]

_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
_USER_KNOWN_HOSTS = "~/.ssh/known_hosts"


@dataclass(frozen=True)
class Hop:
    """One SSH server on the way to a host, or the host itself.

    Args:
        address: what to connect to.
        port: its port.
        user: whom to log in as.
        identity_files: private keys to try, before those of the agent.
        identities_only: whether to try no others.
        proxy_command: a command that leads there; empty for none.
        host_key_name: what its host key is known by.
        known_hosts: the files of host keys; a new key goes into the first.
    """

    address: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    identities_only: bool = False
    proxy_command: str = ""
    host_key_name: str = ""
    known_hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As it is typed."""
        return f"{self.user}@{self.address}" + (f":{self.port}" if self.port != 22 else "")  # noqa: PLR2004


def route_to(host: FleetHost, config: SSHConfig, known_hosts: Path | None = None) -> tuple[Hop, ...]:
    """The servers on the way to a host, itself the last.

    What the inventory says counts before the SSH configuration. Jump hosts are visited in the order in which
    they are written (ssh_config(5), ProxyJump); a host is never reached through itself, even if a ``Host *``
    says so.

    Args:
        host: the host.
        config: the user's SSH configuration.
        known_hosts: a file of host keys instead of the user's.

    Raises:
        UsageError: if a jump host is none.
    """
    return tuple(_route(host, config, known_hosts, frozenset()))


def _route(
    host: FleetHost, config: SSHConfig, known_hosts: Path | None, visited: frozenset[tuple[str, int]]
) -> list[Hop]:
    options = config.lookup(host.address)
    hop = _hop(host, options, known_hosts)
    if (hop.address, hop.port) in visited:
        return []
    visited |= {(hop.address, hop.port)}
    jump = "none" if host.proxy_command else host.proxy_jump or options.get("proxyjump") or "none"
    if jump.lower() == "none":
        return [hop]
    route: list[Hop] = []
    for text in jump.split(","):
        name, variables = host_address(text.strip(), f"host {host.name}: jump host")
        port = int(variables["port"]) if "port" in variables else None
        # Only the first is reached as its own configuration says: the others are reached through it.
        through = FleetHost(name, name, port, variables.get("user"), proxy_jump="none" if route else None)
        found = _route(through, config, known_hosts, visited)
        visited |= {(one.address, one.port) for one in found}
        route += found
    if not route:
        return [hop]
    return [*route, Hop(**{**vars(hop), "proxy_command": ""})]


def _hop(host: FleetHost, options: Mapping[str, object], known_hosts: Path | None) -> Hop:
    def text(name: str) -> str:
        value = options.get(name)
        return "" if value is None else str(value)

    address, user = text("hostname") or host.address, host.user or text("user") or getpass.getuser()
    try:
        port = host.port or int(text("port") or 22)
    except ValueError as error:
        raise UsageError(f"Port {text('port')} of the SSH configuration is none", where=host.name) from error
    command = "" if host.proxy_jump else host.proxy_command or text("proxycommand")
    for token, value in (("%h", address), ("%p", str(port)), ("%r", user)):
        command = command.replace(token, value)
    configured = options.get("identityfile")
    files = (*host.identity_files, *(configured if isinstance(configured, list) else ()))
    key_name = text("hostkeyalias") or address.lower()
    user_files = shlex.split(text("userknownhostsfile") or _USER_KNOWN_HOSTS)
    global_files = shlex.split(text("globalknownhostsfile") or _GLOBAL_KNOWN_HOSTS)
    return Hop(
        address=address,
        port=port,
        user=user,
        identity_files=tuple(str(Path(file).expanduser()) for file in dict.fromkeys(files)),
        identities_only=text("identitiesonly").lower() == "yes",
        proxy_command="" if command.lower() == "none" else command,
        host_key_name=key_name if port == 22 or text("hostkeyalias") else f"[{key_name}]:{port}",  # noqa: PLR2004
        known_hosts=(str(known_hosts),) if known_hosts else tuple(map(_expanded, user_files + global_files)),
    )


def _expanded(file: str) -> str:
    return str(Path(file).expanduser())
