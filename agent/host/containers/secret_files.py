"""Secrets for a container as files: in memory, not in variables, readable only by its user."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import HostError, host_errors

if TYPE_CHECKING:
    from agent.host.containers.spec import ContainerSpec


def write_secret_files(name: str, spec: ContainerSpec) -> Path | None:
    """Write a container's secret files; return their folder, or None if there are none.

    They disappear with a reboot, and are written again when the container is found again.

    Args:
        name: the container's name.
        spec: the container's spec. A numeric user becomes their owner, if the agent is root.

    Raises:
        HostError: if no folder in memory is available.
    """
    if not spec.secret_files:
        return None
    owner = spec.user.partition(":")[0]
    with host_errors("the folder for secrets"):
        folder = _base() / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file_name, content in spec.secret_files.items():
            part = folder / f".{file_name}.part"
            part.unlink(missing_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
                file.write(content)
            if os.geteuid() == 0 and owner.isdigit():
                os.chown(part, int(owner), -1)
            part.replace(folder / file_name)
        if os.geteuid() == 0 and owner.isdigit():
            os.chown(folder, int(owner), -1)
    return folder


def remove_secret_files(name: str) -> None:
    """Remove a container's secret files, if there are any."""
    try:
        shutil.rmtree(_base() / name, ignore_errors=True)
    except HostError:
        return


def _base() -> Path:
    if os.geteuid() == 0:
        return Path("/run/vcagent")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if not runtime:
        raise HostError(
            "there is no folder in memory for a container's secrets",
            remedy="set XDG_RUNTIME_DIR, or run vcagent as root",
        )
    return Path(runtime) / "vcagent"
