"""The transports that reach the hosts of a fleet; each is imported only when it is used.

Another distribution adds a transport with an entry point of the group ``vcagent.transports`` that names a
subclass of ``Transport``.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

from typing_extensions import override

from agent.core.errors import UsageError
from agent.core.extras import extra_remedy
from agent.core.names import canonical, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.fleet.host_run import Surroundings, Way
    from agent.fleet.inventory import FleetHost
    from agent.fleet.options import FleetOptions
    from agent.fleet.ssh.credentials import Credentials
    from agent.run.request import RunRequest

TRANSPORT_GROUP = "vcagent.transports"


class Transport(ABC):
    """A way to reach hosts."""

    @abstractmethod
    def check(self, options: FleetOptions, hosts: Iterable[FleetHost], request: RunRequest) -> None:
        """Check that this controller can use the transport, before any host is contacted.

        Raises:
            UsageError: if a requirement is missing, or the transport does not support an option.
        """

    @abstractmethod
    def way(self, around: Surroundings, credentials: Credentials) -> Way:
        """Return the object that reaches the hosts of one fleet run.

        Args:
            around: what all hosts of the run share.
            credentials: passwords and passphrases.
        """


class SshTransport(Transport):
    """Reaches hosts over SSH, with Fabric and paramiko."""

    @override
    def check(self, options: FleetOptions, hosts: Iterable[FleetHost], request: RunRequest) -> None:
        if find_spec("fabric") is None:
            raise UsageError(
                "the fleet needs Fabric, which is not installed",
                remedy=extra_remedy("fleet"),
            )

    @override
    def way(self, around: Surroundings, credentials: Credentials) -> Way:
        from agent.fleet.ssh.way import OverSsh

        return OverSsh(around, credentials)


class SlurmTransport(Transport):
    """Reaches hosts through Slurm: the tasks of a job array run the agent."""

    @override
    def check(self, options: FleetOptions, hosts: Iterable[FleetHost], request: RunRequest) -> None:
        if shutil.which("sbatch") is None:
            raise UsageError(
                "--via slurm: sbatch is not installed here",
                remedy="run vcagent on a login node, where jobs are submitted",
            )
        if options.sudo or any(host.sudo for host in hosts):
            raise UsageError("--via slurm: a job runs as the user who submits it and cannot use sudo")
        if request.allow_reboot:
            raise UsageError(
                "--via slurm: a job cannot reboot its node and continue", remedy="leave --yes out"
            )

    @override
    def way(self, around: Surroundings, credentials: Credentials) -> Way:
        from agent.fleet.slurm.way import ThroughSlurm

        return ThroughSlurm(around)


_OWN: Mapping[str, type[Transport]] = {"ssh": SshTransport, "slurm": SlurmTransport}


@cache
def _registered() -> Mapping[str, EntryPoint]:
    return {canonical(point.name): point for point in entry_points(group=TRANSPORT_GROUP)}


def known_transports() -> list[str]:
    """Return the names that ``--via`` takes."""
    return [*_OWN, *sorted(point.name for point in _registered().values())]


def transport(name: str) -> Transport:
    """Return the transport of this name.

    Raises:
        UsageError: if no transport has this name, or it cannot be loaded.
    """
    if own := _OWN.get(canonical(name)):
        return own()
    point = _registered().get(canonical(name))
    if point is None:
        raise UsageError(
            f"--via: no transport is called {name!r}", remedy=did_you_mean(name, known_transports())
        )
    try:
        loaded: Transport = point.load()()
    except Exception as error:
        owner = point.dist.name if point.dist else "an unknown distribution"
        raise UsageError(
            f"the transport {point.name} of {owner} cannot be loaded: {type(error).__name__}: {error}",
            where=f"{TRANSPORT_GROUP}: {point.value}",
            remedy=f"reinstall {owner}, or use another --via: {', '.join(known_transports())}",
        ) from error
    return loaded
