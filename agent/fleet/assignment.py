"""The assignment of a fleet run: what to run, on which hosts, and which values are secret."""

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
    """The request for a fleet run, from the command line or the journal.

    Args:
        hosts: the hosts, in order.
        request: the request that each host carries out; its results folder is the controller's.
        options: how the controller works on the fleet.
        environment: names of environment variables that are passed to the agents.
    """

    hosts: Sequence[FleetHost]
    request: RunRequest
    options: FleetOptions
    environment: Sequence[str] = ()


@dataclass(frozen=True)
class Assignment:
    """A fleet request together with the secrets that are never written to disk.

    Args:
        fleet: the request.
        sources: the texts of the profiles.
        credentials: passwords and passphrases.
        variables: the environment variables for the agents; their values may be secret.
        secrets: the values that are never shown.
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
        raise UsageError(
            f"--env {missing[0]}: the environment variable is not set", remedy=f"export {missing[0]}=…"
        )
    return {name: os.environ[name] for name in names}
