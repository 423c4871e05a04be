"""The options of a fleet run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class FleetOptions:
    """The options of a fleet run.

    Args:
        pool: the number of hosts that the controller handles at the same time; started runs do not count.
        canary: the number of hosts that start first; if one of them fails, no other host is started.
        batch: the hosts that run at the same time: a number, a share such as ``25%``, or empty for all.
        max_failures: the hosts that may fail before no other host is started, written like ``batch``.
        connect_timeout_s: seconds for one connection.
        host_timeout_s: seconds for everything on one host; None for no limit.
        reconnect_timeout_s: seconds that a host with a started run may be unreachable.
        sudo: whether the agent runs as root through sudo if the inventory does not say.
        ssh_config: the SSH configuration.
        known_hosts: a file of host keys that replaces those of the SSH configuration.
        accept_new_host_keys: whether unknown host keys are trusted and saved.
        strict_host_keys: whether one unknown host key stops the whole run.
        host_dir: the agent's folder on the hosts; empty for a folder in the user's cache.
        bundles: bundles that were built beforehand.
        wheels: a folder of wheels to build bundles from.
        via: the transport: ``ssh``, ``slurm``, or one that another distribution registers.
        partition: the Slurm partition; empty for its default.
        sbatch: additional options for sbatch.
    """

    pool: int = 32
    canary: int = 0
    batch: str = ""
    max_failures: str = ""
    connect_timeout_s: float = 20.0
    host_timeout_s: float | None = None
    reconnect_timeout_s: float = 900.0
    sudo: bool = False
    ssh_config: Path = Path("~/.ssh/config")
    known_hosts: Path | None = None
    accept_new_host_keys: bool = False
    strict_host_keys: bool = False
    host_dir: str = ""
    bundles: tuple[Path, ...] = ()
    wheels: Path | None = None
    via: str = "ssh"
    partition: str = ""
    sbatch: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can represent; accept_new_host_keys applies to one command and is reset."""
        values = dataclasses.asdict(self)
        paths = {name: str(value.absolute()) for name, value in values.items() if isinstance(value, Path)}
        bundles = [str(path.absolute()) for path in self.bundles]
        return {
            **values,
            **paths,
            "bundles": bundles,
            "accept_new_host_keys": False,
            "ssh_config": str(self.ssh_config.expanduser().absolute()),
            "sbatch": list(self.sbatch),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> FleetOptions:
        """Create the options from the values of ``to_json``."""
        paths = {
            name: Path(values[name]) if values[name] else None
            for name in ("ssh_config", "known_hosts", "wheels")
        }
        lists = {"bundles": tuple(map(Path, values["bundles"])), "sbatch": tuple(values["sbatch"])}
        return cls(**{**values, **paths, **lists})
