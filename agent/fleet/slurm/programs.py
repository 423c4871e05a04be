"""Slurm's programs: the one door to them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from agent.core.errors import HostError, UsageError
from agent.run.resume_unit import kept_environment

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT_S = 60.0
REMEDY = "sinfo and squeue tell how the cluster is; scontrol ping whether its controller answers"


class SlurmPrograms:
    """Calls Slurm's programs.

    They get what says where things are, and no secret: sbatch would keep its environment in Slurm's files.

    Args:
        mask: takes secrets out of a text.
    """

    def __init__(self, mask: Callable[[str], str]) -> None:
        slurm = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("SBATCH_") or name in ("SLURM_CONF", "SLURM_CLUSTERS", "USER", "LOGNAME")
        }
        self._environment = {**kept_environment(os.environ, mask), **slurm}

    def call(self, *command: str, stdin: bytes = b"") -> str:
        """Run one of them; what it prints.

        Args:
            command: the program and its arguments; nothing secret.
            stdin: its input, which may be secret.

        Raises:
            HostError: if it fails, with what it said.
            UsageError: if there is no such program.
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
                f"--via slurm: there is no {command[0]} here",
                remedy="start it on a login node, where jobs are submitted",
            ) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"{command[0]} does not work: {error}", remedy=REMEDY) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
            raise HostError(f"{command[0]} fails: {said}", remedy=REMEDY)
        return done.stdout.decode(errors="replace")
