"""Writing below the package folder: one agent at a time, and nothing half-made in its place."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.errors import InterruptedRunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.component import StepContext

__all__ = ["locked", "point_link", "write_whole"]


@contextmanager
def locked(folder: Path, name: str, context: StepContext, poll_s: float = 0.2) -> Iterator[None]:
    """Hold the lock of one package while the context is open; another agent's is waited for.

    The kernel releases it when its holder ends, however it ends.

    Raises:
        InterruptedRunError: if the run was told to stop meanwhile.
    """
    locks = folder / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"{name}.lock").open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                context.progress.update(f"waiting for process {file.read().strip()}, which prepares {name}")
                if context.stop.wait(poll_s):
                    raise InterruptedRunError(f"told to stop while another agent prepared {name}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there with all of its text or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def point_link(link: Path, target: Path) -> None:
    """Make a symbolic link, or point an existing one elsewhere; at no moment is there none."""
    part = link.with_name(f".{link.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(link)
