"""What an inventory says of the hosts of a fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.core.errors import UsageError


@dataclass(frozen=True)
class FleetHost:
    """One host, as its inventory has it; what is None or empty is left to the SSH configuration.

    Args:
        name: unique in the inventory; the host's name in records, tables and folders.
        address: what to connect to, as ``ssh`` takes it: a name of ``~/.ssh/config``, of DNS, or an address.
        port: the SSH port.
        user: whom to log in as.
        identity_files: private keys to try.
        proxy_jump: hosts to go through, as ``ssh -J`` takes them; ``none`` for none.
        proxy_command: a command whose standard input and output lead to the host.
        sudo: whether the agent runs as root through sudo; None where the inventory does not say.
        python: the host's Python; found by itself if empty.
        password: for logging in, where the inventory holds it.
        sudo_password: for sudo, likewise.
        parameters: overrides of the profile's parameters on this host.
        groups: the groups it belongs to, directly or through others.
        host_dir: the agent's folder on the host; empty for the fleet's.
        ssh_config: an SSH configuration instead of the fleet's, as ``ssh -F`` takes it.
    """

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    identity_files: tuple[str, ...] = ()
    proxy_jump: str | None = None
    proxy_command: str | None = None
    sudo: bool | None = None
    python: str = ""
    password: str | None = field(default=None, repr=False)
    sudo_password: str | None = field(default=None, repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    ssh_config: str | None = None
    host_dir: str = ""


@dataclass(frozen=True)
class Inventory:
    """The hosts of a fleet, in the inventory's order, and its groups."""

    hosts: Mapping[str, FleetHost]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of each group's hosts, in order; ``all`` and ``ungrouped`` are among the groups."""

    refused: Mapping[str, UsageError] = field(default_factory=dict)
    """Hosts whose variables cannot be used, each with the reason; of them the name alone is known. That
    matters where such a host is among those that are meant."""
