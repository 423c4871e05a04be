"""What a fleet run is to do, on which hosts, and what of it is secret."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.core.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.fleet.inventory import FleetHost
    from agent.fleet.options import FleetOptions
    from agent.fleet.ssh.credentials import Credentials
    from agent.profile import Source
    from agent.run.request import RunRequest


@dataclass(frozen=True)
class FleetRequest:
    """What a fleet run is to do, as the command line or the journal has it.

    Args:
        hosts: the hosts, in order.
        request: what each of them is to do; its results folder is the controller's.
        options: how the fleet is worked on.
        environment: names of variables that the agents get.
    """

    hosts: Sequence[FleetHost]
    request: RunRequest
    options: FleetOptions
    environment: Sequence[str] = ()


@dataclass(frozen=True)
class Assignment:
    """What a fleet run is to do, complete with what is never written down.

    Args:
        fleet: what it is to do.
        sources: the texts of the profiles.
        credentials: passwords.
        variables: the variables that the agents get; their values may be secret.
        secrets: what is never shown.
    """

    fleet: FleetRequest
    sources: Sequence[Source]
    credentials: Credentials
    variables: Mapping[str, str]
    secrets: Secrets


def assigned(fleet: FleetRequest, sources: Sequence[Source], credentials: Credentials) -> Assignment:
    """Complete a request from this process's environment.

    Raises:
        UsageError: if a variable is not set.
    """
    variables = _variables(fleet.environment)
    passwords = (one for host in fleet.hosts for one in (host.password, host.sudo_password) if one)
    parameters = (host.parameters for host in fleet.hosts)
    secrets = Secrets(
        [*credentials.values(), *variables.values(), *passwords],
        [fleet.request.parameters, fleet.request.metadata, *parameters],
        os.environ,
    )
    return Assignment(fleet, sources, credentials, variables, secrets)


def _variables(names: Iterable[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UsageError(f"--env {missing[0]}: there is no such variable", remedy=f"export {missing[0]}=…")
    return {name: os.environ[name] for name in names}
