"""Writing below the package folder: one agent at a time, and nothing half-made in its place."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.core.errors import DependencyFailedError, InterruptedRunError
from agent.core.safe_files import make_folder, open_file, replace_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.component.component import StepContext

_LOCKS = ".locks"


@contextmanager
def locked(folder: Path, name: str, context: StepContext, poll_s: float = 0.2) -> Iterator[None]:
    """Hold the lock of one package while the context is open; another agent's is waited for.

    The kernel releases it when its holder ends, however it ends.

    Raises:
        DependencyFailedError: if what stands in the lock's place is something else.
        InterruptedRunError: if the run was told to stop meanwhile.
    """
    with os.fdopen(_open_lock(folder, f"{name}.lock"), "r+", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                context.progress.update(f"waiting for process {file.read().strip()}, which prepares {name}")
                if context.stop.wait(poll_s):
                    raise InterruptedRunError(f"told to stop while another agent prepared {name}") from None
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def _open_lock(folder: Path, name: str) -> int:
    """Open a lock file, making it if need be; never what somebody planted in its place.

    It is written to as root, so a link to another file would be that file's end.
    """
    path = folder / _LOCKS / name
    try:
        make_folder(path.parent, 0o755)
        return open_file(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DependencyFailedError(
            f"{path} cannot be used as a lock: {error.strerror or error}",
            remedy=f"see who made it and who may write to {folder}; then remove it",
        ) from error


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that it is there with all of its text or not at all.

    Args:
        path: the file; one that is there is replaced.
        text: what it is to hold.
        mode: who may read it, from its first byte on.
    """
    replace_text(path, text, mode)


def point_link(link: Path, target: Path) -> None:
    """Make a symbolic link, or point an existing one elsewhere; at no moment is there none."""
    part = link.with_name(f".{link.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(link)
