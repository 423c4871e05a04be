"""Runs Slurm's programs; no other module calls them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from agent.core.errors import HostError, UsageError
from agent.run.resume_unit import kept_environment

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT_S = 60.0
REMEDY = "sinfo and squeue show the state of the cluster, scontrol ping whether its controller answers"


class SlurmPrograms:
    """Runs Slurm's programs.

    Their environment has paths and Slurm's settings but no secret: sbatch stores it in Slurm's files.

    Args:
        mask: removes secrets from a text.
    """

    def __init__(self, mask: Callable[[str], str]) -> None:
        slurm = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("SBATCH_") or name in ("SLURM_CONF", "SLURM_CLUSTERS", "USER", "LOGNAME")
        }
        self._environment = {**kept_environment(os.environ, mask), **slurm}

    def call(self, *command: str, stdin: bytes = b"") -> str:
        """Run a program; return its output.

        Args:
            command: the program and its arguments; they must not contain secrets.
            stdin: the input; it may contain secrets.

        Raises:
            HostError: if the program fails; the message contains its error output.
            UsageError: if the program is not installed.
        """
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                timeout=_LIMIT_S,
                env=self._environment,
                check=False,
            )
        except FileNotFoundError as error:
            raise UsageError(
                f"--via slurm: {command[0]} is not installed here",
                remedy="run vcagent on a login node, where jobs are submitted",
            ) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"{command[0]} does not work: {error}", remedy=REMEDY) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
            raise HostError(f"{command[0]} fails: {said}", remedy=REMEDY)
        return done.stdout.decode(errors="replace")
