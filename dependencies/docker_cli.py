"""Docker's command line: how it is called by whom, and what to do about what it answers."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from agent.errors import ActionFailedError, DependencyFailedError
from agent.facts.docker import DOCKER_GROUP, PROCESS_GROUPS
from agent.facts.users import ROOT, USER
from dependencies.package_lock import remedy_among

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component import StepContext
    from agent.facts import Facts
    from agent.processes import ProcessResult

__all__ = ["REMEDIES", "as_user", "docker_command", "docker_remedy", "run_docker"]

REMEDIES = (
    (
        r"could not select device driver \S* with capabilities: \[\[gpu\]\]",
        "the engine finds no nvidia-container-runtime-hook: install nvidia-container-toolkit, restart Docker",
    ),
    (
        r"(?:unknown or invalid runtime name|Unknown runtime specified|unknown runtime):? (\S+)",
        "the engine does not know the runtime {0}: name it in /etc/docker/daemon.json, restart Docker",
    ),
    (
        r"failed to discover GPU vendor from CDI|no known GPU vendor found",
        "Docker finds GPUs by their CDI specification: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    (
        r"unresolvable CDI devices (\S+)",
        "no CDI specification has {0}: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    (
        r"could not select device driver \S*cdi|CDI support is not enabled",
        'switch CDI on in /etc/docker/daemon.json ("features": {{"cdi": true}}), then restart Docker',
    ),
    (
        r"Driver/library version mismatch",
        "the loaded kernel module is older than the driver's libraries: reboot the host",
    ),
    (
        r"[Dd]river not loaded|nvidia-smi has failed because it couldn't communicate",
        "load NVIDIA's kernel module: a NvidiaCudaInstallation before this element, or modprobe nvidia",
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        "systemd has taken the GPUs from the container (daemon-reload): start it anew; CDI prevents it",
    ),
    (
        r"load library failed: (\S+?):",
        "the driver's library {0} is not on the host: install the driver with its libraries",
    ),
    (
        r"toomanyrequests|rate limit",
        "the registry limits anonymous downloads: docker login, or an image of a registry of your own",
    ),
    (
        r"Temporary failure in name|no such host|timeout|is unreachable|connection refused|dial tcp",
        "the registry is not reached: set the proxy of Docker's service, use a mirror, or docker load it",
    ),
    (
        r"pull access denied|manifest for \S+ not found|manifest unknown|repository \S+ not found",
        "there is no such image, or it needs docker login: correct its name",
    ),
    (r"exec: \"?(\S+?)\"?: .*not found", "the image has no {0}: correct the command, or take another image"),
    (r"no space left on device", "free some space where Docker keeps its images: docker system df"),
    (
        r"permission denied while trying to connect",
        "run vcagent as root, or add this user to the group docker",
    ),
    (
        r"Is the docker daemon running|Cannot connect to the Docker daemon",
        "start the engine: systemctl start docker; see journalctl -u docker",
    ),
    (
        r"directives are specified both as a flag and in the configuration file: (\w[\w-]*)",
        "take {0} out of /etc/docker/daemon.json or out of the flags of docker.service",
    ),
    (r"docker\.service is masked", "allow it to start: systemctl unmask docker.service docker.socket"),
)
"""What Docker, its service and NVIDIA's runtime say, and what to do about it."""


def docker_command(arguments: Sequence[str], facts: Facts) -> list[str]:
    """The command line that calls Docker with the rights that this user has by now.

    A process keeps the groups that it was started with: where the agent's user was added to the group
    ``docker`` since, ``sg`` starts the command with it, and nobody must log in anew.
    """
    command = ["docker", *arguments]
    if facts[ROOT] or "docker" in facts[PROCESS_GROUPS]:
        return command
    if facts[USER].name in (facts[DOCKER_GROUP] or ()):
        return ["sg", "docker", "-c", shlex.join(command)]
    return command


def as_user(command: Sequence[str], name: str) -> list[str]:
    """The command line by which root starts a command for a user, with the groups that he has now."""
    return ["setpriv", f"--reuid={name}", f"--regid={name}", "--init-groups", "--reset-env", "--", *command]


def docker_remedy(output: str, log: object) -> str:
    """What to do about an answer; where nothing is known of it, the log."""
    return remedy_among(REMEDIES, output) or f"all of its output is in {log}"


def run_docker(
    context: StepContext, command: Sequence[str], *, timeout_s: float | None = None
) -> ProcessResult:
    """Run a command of Docker's, its service's or its toolkit's.

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
