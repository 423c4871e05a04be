"""How a fleet is worked on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class FleetOptions:
    """How a fleet is worked on.

    Args:
        pool: how many hosts the controller works on at the same time; runs that are under way do not count.
        canary: how many hosts go first, alone; if one of them fails, no other starts.
        batch: how many hosts run at the same time: a number, a share such as ``25%``, or empty for all.
        max_failures: how many may fail before no other starts, likewise; empty for no limit.
        connect_timeout_s: seconds for one connection.
        host_timeout_s: seconds for all of a host; None for no limit.
        reconnect_timeout_s: seconds that a host may not be heard of once its run has started.
        sudo: whether the agent runs as root through sudo where the inventory does not say.
        ssh_config: the SSH configuration.
        known_hosts: a file of host keys instead of those of the SSH configuration.
        accept_new_host_keys: whether unknown host keys are written down and trusted.
        strict_host_keys: whether one unknown host key refuses the whole run.
        host_dir: the agent's folder on the hosts; empty for the one of the user's cache.
        bundles: bundles made beforehand.
        wheels: a folder of wheels to make bundles from.
        via: the transport that reaches the hosts: ``ssh``, ``slurm``, or one of another distribution.
        partition: the partition of Slurm; empty for its default.
        sbatch: more options for sbatch.
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
        """Values that JSON can carry; that a key may be accepted holds for once."""
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
        """The inverse of ``to_json``."""
        paths = {
            name: Path(values[name]) if values[name] else None
            for name in ("ssh_config", "known_hosts", "wheels")
        }
        lists = {"bundles": tuple(map(Path, values["bundles"])), "sbatch": tuple(values["sbatch"])}
        return cls(**{**values, **paths, **lists})
