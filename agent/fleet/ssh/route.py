"""The route to a host: the jump hosts, the users and the keys."""

from __future__ import annotations

import getpass
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.fleet.inventory.host import FleetHost
from agent.fleet.inventory.host_address import host_address, written_address
from agent.fleet.ssh.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.fleet.ssh.config import HostOptions
    from agent.fleet.ssh.openssh_config import OpenSshOptions

_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
_USER_KNOWN_HOSTS = "~/.ssh/known_hosts"


@dataclass(frozen=True)
class Hop:
    """One SSH server on the way to a host, or the host itself.

    Args:
        address: the address to connect to.
        port: its port.
        user: the user to log in as.
        identity_files: private keys to try, or the public keys of keys in the agent.
        certificate_files: the certificates of such keys.
        identities_only: whether to try no other keys, not even those of the agent.
        identity_agent: the socket of the agent; ``none`` for no agent, empty for the one of SSH_AUTH_SOCK.
        proxy_command: a command that connects to the server; empty for none.
        host_key_name: the name of the server in known_hosts files.
        known_hosts: the known_hosts files; new keys are added to the first.
        known_hosts_command: the program of KnownHostsCommand, which is not run.
    """

    address: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    identity_agent: str = ""
    proxy_command: str = ""
    host_key_name: str = ""
    known_hosts: tuple[str, ...] = ()
    known_hosts_command: str = ""

    def __str__(self) -> str:
        """Return the server as a user types it."""
        return f"{self.user}@{written_address(self.address, None if self.port == 22 else self.port)}"  # noqa: PLR2004


def route_to(
    host: FleetHost, config: HostOptions | OpenSshOptions, known_hosts: Path | None = None
) -> tuple[Hop, ...]:
    """Return the servers on the route to a host; the host is the last.

    The inventory takes precedence over the SSH configuration. Jump hosts are used in the order in which they
    are written (ssh_config(5), ProxyJump). A host is never reached through itself, even if a ``Host *`` says
    so: then only the jump hosts written before it are used.

    Args:
        host: the host.
        config: the user's SSH configuration.
        known_hosts: a file of host keys that replaces the user's.

    Raises:
        UsageError: if the text of a jump host is not valid.
    """
    return tuple(_route(host, config, known_hosts, frozenset()))


def _route(
    host: FleetHost,
    config: HostOptions | OpenSshOptions,
    known_hosts: Path | None,
    behind: frozenset[tuple[str, int]],
) -> list[Hop]:
    """Return the route to a host; empty if the host itself is among the hosts behind it."""
    options = config.of(host.address, host.user, host.port)
    hop = _hop(host, options, known_hosts)
    if (hop.address, hop.port) in behind:
        return []
    behind |= {(hop.address, hop.port)}
    jump = "none" if host.proxy_command else host.proxy_jump or str(options.get("proxyjump") or "none")
    if jump.lower() == "none":
        return [hop]
    route: list[Hop] = []
    for text in Tokens(hop.address, host.address, hop.port, hop.user).filled(jump).split(","):
        name, variables = host_address(text.strip(), f"host {host.name}: jump host")
        port = int(variables["port"]) if "port" in variables else None
        # Only the first jump host uses its own configuration: the others are reached through it.
        through = FleetHost(name, name, port, variables.get("user"), proxy_jump="none" if route else None)
        found = _route(through, config, known_hosts, behind)
        if not found:
            break
        visited = {(one.address, one.port) for one in route}
        route += [one for one in found if (one.address, one.port) not in visited]
    return [*route, replace(hop, proxy_command="")] if route else [hop]


def _hop(host: FleetHost, options: Mapping[str, object], known_hosts: Path | None) -> Hop:
    def text(name: str) -> str:
        value = options.get(name)
        return "" if value is None else str(value)

    address, user = text("hostname") or host.address, host.user or text("user") or getpass.getuser()
    try:
        port = host.port or int(text("port") or 22)
    except ValueError as error:
        raise UsageError(
            f"Port {text('port')} of the SSH configuration is not valid", where=host.name
        ) from error
    command = "" if host.proxy_jump else host.proxy_command or text("proxycommand")
    tokens = Tokens(address, host.address, port, user)

    def files(names: object) -> tuple[str, ...]:
        return tuple(_expanded(tokens.filled(file)) for file in names) if isinstance(names, list) else ()

    key_name = text("hostkeyalias") or address.lower()
    key_files = shlex.split(text("userknownhostsfile") or _USER_KNOWN_HOSTS)
    key_files += shlex.split(text("globalknownhostsfile") or _GLOBAL_KNOWN_HOSTS)
    own = tuple(map(_expanded, host.identity_files))
    agent = tokens.filled(text("identityagent"))
    return Hop(
        address=address,
        port=port,
        user=user,
        identity_files=tuple(dict.fromkeys(own + files(options["identityfile"]))),
        certificate_files=files(options["certificatefile"]),
        identities_only=text("identitiesonly").lower() == "yes",
        identity_agent=_expanded(os.path.expandvars(agent)) if agent not in {"", "SSH_AUTH_SOCK"} else "",
        proxy_command="" if command.lower() == "none" else tokens.filled(command),
        host_key_name=key_name if port == 22 or text("hostkeyalias") else f"[{key_name}]:{port}",  # noqa: PLR2004
        known_hosts=(str(known_hosts),) if known_hosts else files(key_files),
        known_hosts_command="" if text("knownhostscommand").lower() == "none" else text("knownhostscommand"),
    )


def _expanded(file: str) -> str:
    return str(Path(file).expanduser())
