"""Runs Docker's command line with the right group, and knows remedies for its errors."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError, DependencyFailedError
from agent.facts.docker import DOCKER_GROUP, PROCESS_GROUPS
from agent.facts.users import ROOT, USER
from agent.host.containers.failures import FAILURES
from dependencies.packages.package_lock import remedy_among

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component.component import StepContext
    from agent.facts import Facts
    from agent.host.processes import ProcessResult

REMEDIES = (
    (
        r"directives are specified both as a flag and in the configuration file: (\w[\w-]*)",
        "take {0} out of /etc/docker/daemon.json or out of the flags of docker.service",
    ),
    (r"docker\.service is masked", "allow it to start: systemctl unmask docker.service docker.socket"),
    *((failure.pattern, failure.remedy) for failure in FAILURES),
)
"""Errors of Docker, its service and NVIDIA's runtime, with their remedies."""


def docker_command(arguments: Sequence[str], facts: Facts) -> list[str]:
    """Return the command line that calls Docker with the current rights of this user.

    A process keeps the groups that it was started with. If the agent's user was added to the group ``docker``
    later, ``sg`` starts the command with it, so that nobody has to log in again.
    """
    command = ["docker", *arguments]
    if facts[ROOT] or "docker" in facts[PROCESS_GROUPS]:
        return command
    if facts[USER].name in (facts[DOCKER_GROUP] or ()):
        return ["sg", "docker", "-c", shlex.join(command)]
    return command


def as_user(command: Sequence[str], name: str) -> list[str]:
    """Return a command line by which root runs a command for a user, with the user's current groups."""
    return ["setpriv", f"--reuid={name}", f"--regid={name}", "--init-groups", "--reset-env", "--", *command]


def docker_remedy(output: str, log: object) -> str:
    """Return the remedy for an error; if it is unknown, point to the log."""
    return remedy_among(REMEDIES, output) or f"all of its output is in {log}"


def run_docker(
    context: StepContext, command: Sequence[str], *, timeout_s: float | None = None
) -> ProcessResult:
    """Run a command of Docker, its service or its toolkit.

    Raises:
        DependencyFailedError: if it fails; with the end of its output and a remedy.
    """
    try:
        return context.processes.run(
            command, log=context.log, timeout_s=timeout_s, on_line=context.progress.update
        )
    except ActionFailedError as error:
        remedy = docker_remedy("\n".join(error.details), context.log)
        raise DependencyFailedError(error.message, remedy=remedy, details=error.details) from error
