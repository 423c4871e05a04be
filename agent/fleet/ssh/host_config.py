"""Selects the SSH configuration of a host: the fleet's, or the one that the inventory names."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.fleet.ssh.config import HostOptions, read_ssh_config
from agent.fleet.ssh.openssh_config import OpenSshOptions, openssh_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.fleet.inventory import FleetHost


class HostConfigs:
    """The SSH configurations of a fleet, each read once.

    Args:
        path: the configuration for hosts whose inventory names none; the file may be missing.

    Raises:
        UsageError: if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._read: dict[str | None, HostOptions | OpenSshOptions] = {None: _options(path)}

    def prepare(self, hosts: Iterable[FleetHost]) -> None:
        """Read the options of many hosts; with OpenSSH, in parallel.

        Raises:
            UsageError: if a configuration does not exist.
        """
        asked: defaultdict[str | None, list[FleetHost]] = defaultdict(list)
        for host in hosts:
            asked[host.ssh_config].append(host)
        for group in asked.values():
            options = self.of(group[0])
            if isinstance(options, OpenSshOptions):
                options.prepare((host.address, host.user, host.port) for host in group)

    def of(self, host: FleetHost) -> HostOptions | OpenSshOptions:
        """Return the configuration for a host; ``none`` means an empty one (ssh(1), ``-F``).

        Raises:
            UsageError: if the configuration cannot be read or does not exist.
        """
        name = host.ssh_config
        if name not in self._read:
            path = Path(name or "").expanduser()
            if name != "none" and not path.exists():
                raise UsageError(
                    f"the SSH configuration {name} does not exist",
                    where=f"host {host.name}",
                    remedy="correct the inventory: ssh_config, or -F in Ansible's SSH arguments",
                )
            self._read[name] = _options(Path(os.devnull) if name == "none" else path)
        return self._read[name]


def _options(path: Path) -> HostOptions | OpenSshOptions:
    """Return OpenSSH's reader of a configuration, or paramiko's if OpenSSH is not installed."""
    return openssh_options(path) or read_ssh_config(path)
