"""The ways to reach the hosts of a fleet, each imported when it is taken."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.fleet.options import Via

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.fleet.host_run import Surroundings, Way
    from agent.fleet.inventory import FleetHost
    from agent.fleet.options import FleetOptions
    from agent.fleet.ssh.credentials import Credentials
    from agent.run.request import RunRequest

__all__ = ["check_way", "way_of"]


def check_way(options: FleetOptions, hosts: Iterable[FleetHost], request: RunRequest) -> None:
    """See whether a way can be taken from here.

    Raises:
        UsageError: if something is missing that it needs, or it cannot do what is asked for.
    """
    if options.via is Via.SSH:
        if find_spec("fabric") is None:
            raise UsageError(
                "the fleet needs Fabric, which is not installed", remedy="pip install 'vcagent[fleet]'"
            )
        return
    if shutil.which("sbatch") is None:
        raise UsageError(
            "--via slurm: there is no sbatch here",
            remedy="start it where jobs are submitted: on a login node",
        )
    if options.sudo or any(host.sudo for host in hosts):
        raise UsageError("--via slurm: a job is whoever submits it, and never root through sudo")
    if request.allow_reboot:
        raise UsageError("--via slurm: a job cannot reboot its node and go on", remedy="leave --yes out")


def way_of(around: Surroundings, credentials: Credentials) -> Way:
    """The way that the options ask for."""
    if around.options.via is Via.SLURM:
        from agent.fleet.slurm.way import ThroughSlurm

        return ThroughSlurm(around)
    from agent.fleet.ssh.way import OverSsh

    return OverSsh(around, credentials)
