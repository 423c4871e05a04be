"""Copies a run's files to the controller: existing files are not fetched again, every file is verified."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from agent.core.file_hash import sha256_of
from agent.core.safe_files import append_bytes_to
from agent.fleet.errors import ConnectionLostError, HostUnfitError, NotFollowedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.fleet.scheduling import Task
    from agent.fleet.ssh.session import Command

_PIECE = 1 << 16
_LIST_S = 600.0
"""Seconds that a host may take to hash all its files."""


@dataclass(frozen=True)
class _Wanted:
    name: str
    path: Path
    size: int
    sha256: str

    @property
    def part(self) -> Path:
        """The path of the partial file."""
        return self.path.with_name(f"{self.path.name}.part")

    @property
    def offset(self) -> int:
        """The number of bytes that are already there."""
        return self.part.stat().st_size if self.part.is_file() else 0


def gathered(command: Command, folder: Path, left_s: Callable[[], float] = lambda: _LIST_S) -> Task[int]:
    """Fetch the files that the host offers; return the number of bytes received.

    An incomplete file is kept as ``.part``; the next attempt continues it.

    Args:
        command: the host's end (``fleet-host send``), its input still open.
        folder: the folder for the files.
        left_s: returns the seconds left, and raises DeadlineError if none are.

    Raises:
        ConnectionLostError: if the connection breaks, or a received file differs from the sent one.
        NotFollowedError: if a file cannot be written here.
    """
    line = yield from command.line(min(_LIST_S, left_s()))
    if line is None:
        raise ConnectionLostError(f"the host did not list its files within {min(_LIST_S, left_s()):.0f} s")
    if not line:
        raise ConnectionLostError(f"the host offers no files: {command.ended().stderr or 'no answer'}")
    with _disk(folder):
        return _fetched(command, folder, line, left_s)


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """Convert write errors on the controller: the files are still on the host.

    Raises:
        NotFollowedError: if a file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise NotFollowedError(
            f"its results cannot be written to {folder}: {error.strerror or error}",
            remedy="they are still on the host: free some space here, then vcagent fleet resume",
        ) from error


def _fetched(command: Command, folder: Path, line: bytes, left_s: Callable[[], float]) -> int:
    offered = [_Wanted(name, _inside(folder, name), *more) for name, *more in json.loads(line)["files"]]
    wanted = [file for file in offered if not _is_there(file)]
    offsets = [file.offset for file in wanted]
    command.write(
        json.dumps([[file.name, at] for file, at in zip(wanted, offsets, strict=True)]).encode() + b"\n"
    )
    command.end_input()
    total, changed = 0, []
    for file, offset in zip(wanted, offsets, strict=True):
        total += _fetch(file, file.size - offset, command, left_s)
        if sha256_of(file.part) == file.sha256:
            file.part.replace(file.path)
        else:  # the partial file was from another version of the file
            file.part.unlink()
            changed.append(file.name)
    command.ended()
    if changed:
        raise ConnectionLostError(f"files changed during the transfer: {', '.join(changed[:5])}")
    return total


def _is_there(file: _Wanted) -> bool:
    if file.offset > file.size:
        file.part.unlink()
    return (
        file.path.is_file() and file.path.stat().st_size == file.size and sha256_of(file.path) == file.sha256
    )


def _fetch(file: _Wanted, left: int, command: Command, left_s: Callable[[], float]) -> int:
    total = 0
    with append_bytes_to(file.part) as output:
        while total < left:
            left_s()
            piece = command.read(min(left - total, _PIECE))
            if not piece:
                raise ConnectionLostError(f"the connection broke during the transfer of {file.name}")
            output.write(piece)
            total += len(piece)
    return total


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise HostUnfitError(f"the host offers a file outside of its folder: {name!r}")
    return folder.joinpath(*path.parts)
