"""Proves that GPU containers run: one was started, and nothing that it depends on has changed since."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from agent.component.open_container import load_image
from agent.core.errors import DependencyFailedError
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.boot import BOOT
from agent.facts.container_toolkit import CONTAINER_TOOLKIT_VERSION
from agent.facts.docker import DOCKER_SERVER
from agent.facts.files import text_of
from agent.facts.gpus import DRIVER_VERSION, GPU_COUNT
from dependencies.docker.cli import docker_command, run_docker
from dependencies.packages.package_folder import locked, write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.component import StepContext
    from agent.facts import Facts

WAYS: dict[str, tuple[str, ...]] = {
    "gpus": ("--gpus=all",),
    "cdi": ("--device=nvidia.com/gpu=all",),
    "runtime": ("--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=all"),
}
"""The ways to give a container all GPUs (NVIDIA's toolkit, "Running a Sample Workload" and "CDI")."""

_MARKER = "gpu-container.json"
_LIMIT_S = 600.0
"""Seconds for fetching the image and running it."""


@dataclass(frozen=True)
class GpuContainerProof:
    """A container that must run.

    Args:
        image: the image.
        command: the command in the container.
        way: the way to give it GPUs: a key of ``WAYS``.
    """

    image: str
    command: str
    way: str

    def arguments(self) -> list[str]:
        """Return Docker's arguments: no network, and the container is removed when it ends."""
        options = ["run", "--rm", "--network=none", "--label=vcagent=proof", *WAYS[self.way]]
        return [*options, self.image, *shlex.split(self.command)]

    def why_due(self, facts: Facts) -> str:
        """Return the reason why the proof must be made; empty if it was made on this host and still holds."""
        try:
            noted = dict(json.loads(facts[text_of(self._marker(facts))] or ""))
        except (ValueError, TypeError):
            return "no GPU container has been started on this host yet"
        now = self._circumstances(facts)
        changed = [
            f"the {name.replace('_', ' ')} was {noted.get(name)} and is {value}"
            for name, value in now.items()
            if noted.get(name) != value and name != "boot"
        ]
        if noted.get("boot") != now["boot"]:
            changed.append("the host was rebooted")
        return f"since the last GPU container {', '.join(changed)}" if changed else ""

    def make(self, context: StepContext) -> str:
        """Start the container, check its output, and store the result; return a message.

        Raises:
            DependencyFailedError: if it does not run, or sees fewer GPUs than the host has.
        """
        started = replace(self, image=load_image(self.image, context) or self.image)
        result = run_docker(context, docker_command(started.arguments(), context.facts), timeout_s=_LIMIT_S)
        facts = context.facts.fresh()
        seen = len(re.findall(r"^GPU \d+: ", result.stdout, re.MULTILINE))
        expected = facts[GPU_COUNT]
        if seen and expected and seen != expected:
            raise DependencyFailedError(
                f"the container sees {seen} of the host's {expected} GPUs",
                remedy="generate the CDI specification again (nvidia-ctk cdi generate); see nvidia-smi -L",
                details=tuple(result.stdout.splitlines()[-20:]),
            )
        with locked(context.package_dir, "gpu-container-proof", context):
            marker = self._marker(facts)
            marker.parent.mkdir(parents=True, exist_ok=True)
            write_whole(marker, json.dumps(self._circumstances(facts), indent=2) + "\n")
        return f"a container of {self.image} ran {self.command}" + (f" and saw {seen} GPU(s)" if seen else "")

    def _circumstances(self, facts: Facts) -> dict[str, object]:
        """Return the facts that the proof depends on; if they change, it must be made again."""
        server = facts[DOCKER_SERVER]
        return {
            "boot": facts[BOOT],
            "driver": facts[DRIVER_VERSION],
            "GPUs": facts[GPU_COUNT],
            "container_toolkit": facts[CONTAINER_TOOLKIT_VERSION],
            "engine": server.version if server else None,
            "default_runtime": server.default_runtime if server else None,
            **asdict(self),
        }

    @staticmethod
    def _marker(facts: Facts) -> Path:
        return facts[PACKAGE_DIR] / ".proofs" / _MARKER
