"""Writes below the package folder: one agent at a time, and never incomplete files."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.component.component import Plan, Step
from agent.core.errors import DependencyFailedError, HostError, InterruptedRunError, LiftedBy
from agent.core.safe_files import make_folder, open_file, replace_text
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.files import exists, link_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.component.component import StepContext
    from agent.facts import Facts

_LOCKS = ".locks"


@contextmanager
def locked(folder: Path, name: str, context: StepContext, poll_s: float = 0.2) -> Iterator[None]:
    """Hold the lock of one package within the block; wait while another agent holds it.

    The kernel releases the lock when its holder ends, for any reason.

    Raises:
        DependencyFailedError: if the lock's path is not a lock file.
        InterruptedRunError: if the run is interrupted meanwhile.
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
    """Open a lock file, creating it if necessary; never a file that somebody planted in its place.

    It is written to as root, so a planted link to another file would destroy that file.
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
    """Write a file atomically.

    Args:
        path: the file; an existing one is replaced.
        text: the content.
        mode: the permissions, from the first byte on.
    """
    replace_text(path, text, mode)


def package_link(
    facts: Facts, name: str, kind: str, lifted_by: LiftedBy | None = LiftedBy.SYSTEM
) -> tuple[Path, Path | None]:
    """Return the link of a package in the package folder, and its target; None for no link.

    Args:
        facts: the facts about the host.
        name: the package's name.
        kind: the kind of target, with its article: ``a model``.
        lifted_by: the kind of step that could lift a refusal; None if unknown.

    Raises:
        HostError: if something other than a link has the name.
    """
    link = facts[PACKAGE_DIR] / name
    target = facts[link_target(link)]
    if target is None and facts[exists(link)]:
        raise HostError(
            f"{link} exists and is not a link to {kind}",
            remedy="move it away, or choose another packageName; it is never deleted",
            lifted_by=lifted_by,
        )
    return link, target


def point_link(link: Path, target: Path) -> None:
    """Create a symbolic link, or replace an existing one atomically."""
    part = link.with_name(f".{link.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(link)


def removal_of(folder: Path, link: Path | None, facts: Facts, reason: str = "") -> Plan:
    """Return the plan that removes a folder that a run made, and the link that points to it.

    Args:
        folder: the folder.
        link: the link; it stays if it points elsewhere. None for none.
        facts: the facts about the host.
        reason: why the folder may be removed; by default that it was made.
    """
    if not facts[exists(folder)]:
        return Plan(nothing_to_do=f"{folder} is gone")
    stale = link if link and facts[link_target(link)] == folder else None

    def remove(_: StepContext) -> None:
        if stale:
            stale.unlink()
        shutil.rmtree(folder)

    command = shlex.join(["rm", "-r", *([str(stale)] if stale else []), str(folder)])
    reason = reason or f"{folder} was made"
    return Plan((Step("remove", reason, remove, command, lambda fresh: not fresh[exists(folder)]),))
