"""Connects a step to the container engine; import this module only if needed: it loads the Docker SDK."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

from agent.host.containers.client import connected
from agent.host.containers.engine import ContainerEngine
from agent.host.containers.records import RECORDS

if TYPE_CHECKING:
    import threading

    from agent.component.component import StepContext
    from agent.host.processes import ProcessRunner


def connect(context: StepContext, address: str | None = None) -> ContainerEngine:
    """Connect a step to the engine; as a context manager, it ends background commands.

    Args:
        context: the step's context.
        address: the engine's, such as ``unix:///var/run/docker.sock``; by default what the docker command
            takes: ``DOCKER_HOST``, else the current context's.

    Raises:
        ContainerError: if no engine answers; with the remedy.
    """
    return engine_of_run(context.processes, context.run_dir, context.stop, address)


def engine_of_run(
    processes: ProcessRunner, run_dir: Path, stop: threading.Event, address: str | None = None
) -> ContainerEngine:
    """Connect a run to the engine; see ``connect``.

    Args:
        processes: those of the run, which know its id and its secrets.
        run_dir: the run's folder.
        stop: set when the run is asked to stop.
        address: the engine's.

    Raises:
        ContainerError: if no engine answers; with the remedy.
    """
    return ContainerEngine(
        connected(address, _docker_config()),
        run_id=processes.run_id,
        step=processes.step,
        secrets=processes.secrets,
        stop=stop,
        records=run_dir / RECORDS,
    )


def _docker_config() -> Path | None:
    """Return the docker configuration of the user who called sudo, if root has none."""
    caller = os.environ.get("SUDO_USER")
    if os.geteuid() != 0 or not caller or os.environ.get("DOCKER_CONFIG"):
        return None
    try:
        own, his = (Path(pwd.getpwnam(name).pw_dir) / ".docker" / "config.json" for name in ("root", caller))
    except KeyError:
        return None
    return his if his.is_file() and not own.is_file() else None
