"""Which SSH configuration holds for a host: the fleet's, or the one that its inventory names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.fleet.ssh.config import HostOptions, read_ssh_config

if TYPE_CHECKING:
    from agent.fleet.inventory import FleetHost


class HostConfigs:
    """The SSH configurations of a fleet, each read once.

    Args:
        path: that of hosts whose inventory names none; it need not exist.

    Raises:
        UsageError: if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._read: dict[str | None, HostOptions] = {None: read_ssh_config(path)}

    def of(self, host: FleetHost) -> HostOptions:
        """The one that holds for a host; ``none`` is an empty one (ssh(1), ``-F``).

        Raises:
            UsageError: if it cannot be read, or is not there.
        """
        name = host.ssh_config
        if name not in self._read:
            path = Path(name or "").expanduser()
            if name != "none" and not path.exists():
                raise UsageError(
                    f"there is no SSH configuration {name}",
                    where=f"host {host.name}",
                    remedy="the inventory names it, in ssh_config or behind -F in Ansible's SSH arguments",
                )
            self._read[name] = read_ssh_config(Path("/dev/null") if name == "none" else path)
        return self._read[name]
