"""Starting and restarting the Docker service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agent.core.errors import DependencyFailedError, HostError, InterruptedRunError
from agent.facts.boot import SYSTEMD
from agent.facts.docker import DOCKER_PROBLEM, DOCKER_SERVER, RUNNING_CONTAINERS
from dependencies.docker.cli import docker_remedy, run_docker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component.component import StepContext
    from agent.facts import Facts

START_LIMIT_S = 90.0


def start_command(facts: Facts) -> list[str]:
    """Return the command that starts the engine now and at every boot."""
    if facts[SYSTEMD]:
        return ["systemctl", "enable", "--now", "docker.service"]
    return ["service", "docker", "start"]


def restart_command(facts: Facts) -> list[str]:
    """Return the command that restarts the engine; a systemd reload would take GPUs from containers."""
    return ["systemctl", "restart", "docker.service"] if facts[SYSTEMD] else ["service", "docker", "restart"]


def start_engine(context: StepContext, command: Sequence[str]) -> str:
    """Start or restart the engine, and wait until it answers; return its version.

    Raises:
        DependencyFailedError: if it cannot be started, or does not answer; with the end of its journal.
        InterruptedRunError: if the run was interrupted.
    """
    try:
        run_docker(context, command)
        return await_engine(context)
    except DependencyFailedError as error:
        if not context.facts[SYSTEMD]:
            raise
        journal = context.processes.run(
            ["journalctl", "--unit=docker.service", "--lines=15", "--no-pager", "--output=cat"],
            log=context.log,
            check=False,
        )
        told = tuple(journal.stdout.splitlines())
        remedy = docker_remedy("\n".join((*error.details, *told)), context.log)
        raise DependencyFailedError(error.message, remedy=remedy, details=(*error.details, *told)) from error


def await_engine(context: StepContext, limit_s: float = START_LIMIT_S, poll_s: float = 0.3) -> str:
    """Wait until the engine answers; return its version.

    Raises:
        DependencyFailedError: if it does not answer within the limit.
        InterruptedRunError: if the run was interrupted.
    """
    deadline = time.monotonic() + limit_s
    while True:
        facts = context.facts.fresh()
        if server := facts[DOCKER_SERVER]:
            return server.version
        if time.monotonic() > deadline:
            problem = facts[DOCKER_PROBLEM] or "it says nothing"
            raise DependencyFailedError(
                f"the engine does not answer after {limit_s:.0f} s: {problem}",
                remedy=docker_remedy(problem, context.log),
                details=(problem,),
            )
        context.progress.update("waiting for the engine to answer")
        if context.stop.wait(poll_s):
            raise InterruptedRunError("told to stop while the engine was starting")


def refuse_to_stop_containers(facts: Facts, why: str, *, allowed: bool, live_restore: bool = False) -> None:
    """Refuse to restart the engine if that would stop running containers.

    Args:
        facts: the host.
        why: the reason for the restart.
        allowed: whether the profile allows it.
        live_restore: whether the engine keeps containers running during a restart.

    Raises:
        HostError: if containers are running and nothing allows it; the message names them.
    """
    running = facts[RUNNING_CONTAINERS]
    if running and not allowed and not live_restore:
        names = ", ".join(f"{container.name} ({container.image})" for container in running)
        raise HostError(
            f"{why}: Docker must be restarted, which ends {len(running)} running container(s): {names}",
            remedy="stop them when they may be stopped, or set RestartWithContainers: true",
        )
