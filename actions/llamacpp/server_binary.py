"""Read the version of a llama-server executable, and build its command line."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actions.llamacpp.programs import listed_devices
from agent.core.errors import ActionFailedError
from parsers.llamacpp.build import build_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from actions.llamacpp.server_parameters import ServerParameters
    from agent.core.records import MetadataValue
    from agent.host.processes import ProcessRunner

_WHERE_KNOWN = (
    ("--no-cache-prompt",),
    ("--cache-ram", "0"),
    ("--no-cache-idle-slots",),
    ("--fit", "off"),
    ("--no-webui",),
)
"""Options against newer versions' defaults: answering from a cache of earlier prompts, a smaller context
than requested, a web page."""


@dataclass(frozen=True)
class ServerBinary:
    """A llama-server executable.

    Args:
        path: the executable.
        options: options named in its help.
        facts: the engine and its version.
        devices: devices besides the CPU; None if unknown.
    """

    path: Path
    options: frozenset[str] = frozenset()
    facts: Mapping[str, MetadataValue] = field(default_factory=dict)
    devices: tuple[str, ...] | None = None

    @classmethod
    def read(
        cls, path: Path, *, processes: ProcessRunner, log: Path, contained: bool = False
    ) -> ServerBinary:
        """Query the executable's version, options and devices.

        Args:
            path: the executable; for a container, its path inside.
            processes: runs it.
            log: gets the executable's output.
            contained: True if ``processes`` run in a container.

        Raises:
            ActionFailedError: if it cannot be run.
        """
        if not contained and not (path.is_file() and os.access(path, os.X_OK)):
            raise ActionFailedError(
                f"{path} is not an executable",
                remedy="give the path of a llama-server, or add a LlamaCppInstallation",
            )
        told = processes.run([str(path), "--version"], log=log, timeout_s=60, check=False)
        text = told.stdout + told.stderr
        build = build_of(text)
        if build is None:
            raise ActionFailedError(
                f"{path} does not report its version (exit code {told.exit_code}): is it a llama-server?",
                remedy="a library or a processor feature that it needs may be missing",
                details=tuple(text.splitlines()[-5:]),
            )
        asked = processes.run([str(path), "--help"], log=log.with_suffix(".help"), timeout_s=60, check=False)
        words = frozenset(re.findall(r"--[a-z][a-z0-9-]*", asked.stdout + asked.stderr))
        named = {"engine_version": str(build), "engine_commit": build.known_commit}
        facts = {"engine": "llama.cpp", **{name: value for name, value in named.items() if value}}
        devices = listed_devices(path, processes, log) if "--list-devices" in words else None
        return cls(path, words, facts, devices)

    def command(self, asked: ServerParameters, *, model: str, alias: str, host: str, port: int) -> list[str]:
        """Return the command line.

        Args:
            asked: the profile's parameters.
            model: the GGUF file.
            alias: the model's name for clients.
            host: the address to listen on.
            port: the port.
        """
        command = [
            str(self.path),
            "--model", model,
            "--alias", alias,
            "--host", host,
            "--port", str(port),
            "--parallel", str(asked.parallel),
            # llama.cpp divides the context among its slots.
            "--ctx-size", str(asked.context * asked.parallel),
            "--threads", str(thread_count(asked)),
            "--metrics",
        ]  # fmt: skip
        if asked.gpu_layers is not None:
            command += ["--gpu-layers", str(asked.gpu_layers)]
        for option in _WHERE_KNOWN:
            if option[0] in self.options and option[0] not in asked.arguments:
                command += option
        return [*command, *asked.arguments]


def thread_count(asked: ServerParameters) -> int:
    """Return the number of compute threads: as requested, or one per CPU that this process may use."""
    return asked.threads or len(os.sched_getaffinity(0))
