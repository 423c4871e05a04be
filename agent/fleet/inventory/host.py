"""The hosts and groups of an inventory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.core.errors import UsageError


@dataclass(frozen=True)
class FleetHost:
    """One host of an inventory; the SSH configuration decides all that is None or empty here.

    Args:
        name: a unique name in the inventory; used in records, tables and folders.
        address: the address to connect to, as ``ssh`` takes it: a name of ``~/.ssh/config`` or DNS, or an IP.
        port: the SSH port.
        user: the user to log in as.
        identity_files: private keys to try.
        proxy_jump: hosts to go through, as ``ssh -J`` takes them; ``none`` for none.
        proxy_command: a command whose standard input and output lead to the host.
        sudo: whether the agent runs as root through sudo; None if the inventory does not say.
        python: the Python to use on the host; found automatically if empty.
        password: the login password, if the inventory contains one.
        sudo_password: the sudo password, if the inventory contains one.
        parameters: profile parameters that are overridden on this host.
        groups: the groups that contain the host, directly or through other groups.
        host_dir: the agent's folder on the host; empty for the folder of the fleet options.
        ssh_config: an SSH configuration that replaces the fleet's, as ``ssh -F`` takes it.
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
    """The hosts of a fleet, in the order of the inventory, and its groups."""

    hosts: Mapping[str, FleetHost]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the hosts in each group, in order; ``all`` and ``ungrouped`` are groups too."""

    refused: Mapping[str, UsageError] = field(default_factory=dict)
    """Hosts whose variables cannot be used, each with the reason. It is an error only if such a host is
    selected."""
