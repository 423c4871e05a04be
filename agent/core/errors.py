"""All errors that a user can see: what happened, where, and what to do next."""

from __future__ import annotations

import errno
import traceback
from contextlib import contextmanager
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class ExitCode(IntEnum):
    """Exit codes of the process; every value fits into the 8 bits that a shell keeps."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    PROFILE_INVALID = 3
    HOST_CANNOT_RUN = 4
    DEPENDENCY_FAILED = 5
    ACTION_FAILED = 6
    RESULT_INVALID = 7
    REBOOT_PENDING = 8
    INTERRUPTED = 9
    FLEET_PARTIAL = 10


class VcagentError(Exception):
    """An error with a remedy.

    Args:
        message: what happened, naming the thing.
        where: the place: file and line, key, step or host.
        remedy: what the user can do next.
        details: further lines, such as the end of a log.

    Attributes:
        exit_code: the exit code of a run that ends with this error.
        reason_number: VirtualClient's ErrorReason for the same situation
            (microsoft/VirtualClient, VirtualClient.Contracts/Enumerations.cs).
    """

    exit_code: ExitCode = ExitCode.UNEXPECTED
    reason_number: int = 0

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        remedy: str | None = None,
        details: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.remedy = remedy
        self.details = details

    def masked(self, mask: Callable[[str], str]) -> None:
        """Take secrets out of everything that is shown."""
        self.message, self.args = mask(self.message), (mask(self.message),)
        self.where = self.where and mask(self.where)
        self.remedy = self.remedy and mask(self.remedy)
        self.details = tuple(map(mask, self.details))

    def __str__(self) -> str:
        """Return one paragraph: place, message, details, remedy."""
        lines = [f"{self.where}: {self.message}" if self.where else self.message]
        lines += [f"  {detail}" for detail in self.details]
        if self.remedy:
            lines.append(f"  → {self.remedy}")
        return "\n".join(lines)


class UsageError(VcagentError):
    """The command line contradicts itself or names something that does not exist."""

    exit_code = ExitCode.USAGE
    reason_number = 510


class ProfileError(VcagentError):
    """The profile is missing, cannot be read, or requests something that no component offers."""

    exit_code = ExitCode.PROFILE_INVALID
    reason_number = 501


class LiftedBy(str, Enum):
    """What a refusal is about, so that a plan knows which earlier dependencies may lift it.

    A dependency lists in ``lifts`` what its steps may bring.
    """

    NOTHING = "nothing"
    """Hardware, rights, tokens, licences, or the profile's own contradictions: no step changes them."""
    ACCOUNT = "account"
    PATH = "path"
    """A file or folder outside the package folder."""
    SPACE = "space"
    PROGRAM = "program"
    DOCKER = "docker"
    DRIVER = "driver"
    SYSTEM = "system"
    """The host's packages, repositories, services or settings."""


class HostError(VcagentError):
    """The host cannot run the profile; reported before any change.

    Args:
        message: the missing requirement.
        where: the file and line, the key, the step or the host.
        remedy: what the user can do next.
        details: further lines.
        lifted_by: the kind of step that could lift the refusal during a run; None if unknown, so that any
            earlier dependency may lift it.
    """

    exit_code = ExitCode.HOST_CANNOT_RUN
    reason_number = 508

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        remedy: str | None = None,
        details: tuple[str, ...] = (),
        lifted_by: LiftedBy | None = None,
    ) -> None:
        super().__init__(message, where=where, remedy=remedy, details=details)
        self.lifted_by = lifted_by


@contextmanager
def refusals_lifted_by(lifted_by: LiftedBy | None) -> Iterator[None]:
    """Note on every refusal that leaves the context, and does not say it itself, what could lift it."""
    try:
        yield
    except HostError as error:
        error.lifted_by = error.lifted_by or lifted_by
        raise


class DependencyFailedError(VcagentError):
    """A step that prepares the host failed."""

    exit_code = ExitCode.DEPENDENCY_FAILED
    reason_number = 506


class ContainerError(VcagentError):
    """The container engine did not do what was requested.

    Args:
        message: the request, and the engine's message.
        problem: the known failure (``agent.host.containers.failures``), such as
            ``no_such_image``; ``other`` if unknown.
        remedy: what the user can do next.
        details: further lines.
    """

    exit_code = ExitCode.DEPENDENCY_FAILED
    reason_number = 506

    def __init__(
        self,
        message: str,
        *,
        problem: str = "other",
        remedy: str | None = None,
        details: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, remedy=remedy, details=details)
        self.problem = problem


class ActionFailedError(VcagentError):
    """A workload failed, so there is no result to judge."""

    exit_code = ExitCode.ACTION_FAILED
    reason_number = 315


class ParseError(ActionFailedError):
    """Output is missing, truncated, or lacks the expected numbers."""

    reason_number = 316


class RebootPendingError(VcagentError):
    """The host must be rebooted before the run continues."""

    exit_code = ExitCode.REBOOT_PENDING


class InterruptedRunError(VcagentError):
    """The run was asked to stop; `vcagent resume` continues it."""

    exit_code = ExitCode.INTERRUPTED


_FREE_SPACE = "free some space on this machine, then resume the run"


def is_disk_full(error: Exception) -> bool:
    """Return True if a file, or SQLite, failed because the disk is full or the user's quota is used up."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    # SQLite reports a full disk as an I/O error where it extends the memory of its write-ahead log.
    return type(error).__module__ == "sqlite3" and str(error) in (
        "database or disk is full",
        "disk I/O error",
    )


_OF_PATHS = frozenset(
    {errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENOTDIR, errno.EISDIR}
)
"""Errors of a path that was given, wherever they are noticed."""
_SHOWN_CHARACTERS = 200


_PATH_REMEDIES = {
    errno.ENOENT: "make its folder first, or name another path",
    errno.EEXIST: "name a folder: this is a file",
    errno.ENOTDIR: "name another path: a part of this one is a file, not a folder",
    errno.EISDIR: "name a file: this is a folder",
    errno.ENAMETOOLONG: "name a shorter path",
    errno.ELOOP: "name another path: a link in this one leads to itself",
    errno.EINVAL: "name an ordinary file, or a new path",
}


def unexpected(error: Exception, what: str) -> VcagentError:
    """Return the error for an unexpected exception; its details contain the place where it happened."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return HostError(
            f"{what} ran out of file descriptors: {error}",
            remedy="raise the limit (ulimit -n), or work on fewer at the same time (fleet run: --batch)",
        )
    if is_disk_full(error):
        return HostError(
            f"the disk is full: {what} cannot write {getattr(error, 'filename', None) or 'its files'}",
            remedy=_FREE_SPACE,
        )
    if isinstance(error, OSError) and error.filename is not None and error.errno in _OF_PATHS:
        path = str(error.filename)
        shown = path if len(path) <= _SHOWN_CHARACTERS else f"{path[:_SHOWN_CHARACTERS]}…"
        if error.errno == errno.ENAMETOOLONG:
            return UsageError(f"{shown} is too long for a name", remedy="correct the path or the name")
        return HostError(
            f"{shown} cannot be used: {error.strerror}",
            remedy="name another path, or see who may read and write it (ls -ld)",
        )
    frames = traceback.extract_tb(error.__traceback__)
    return VcagentError(
        f"unexpected {type(error).__name__} in {what}: {error}",
        details=tuple(f"at {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-1:]),
        remedy="this is a defect of vcagent; please report it with the logs of the run",
    )


@contextmanager
def masking(mask: Callable[[str], str]) -> Iterator[None]:
    """Take secrets out of every error that leaves the context."""
    try:
        yield
    except VcagentError as error:
        error.masked(mask)
        raise


@contextmanager
def host_errors(what: str) -> Iterator[None]:
    """Turn errors of files and databases that cannot be used into an error with a remedy."""
    import sqlite3

    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise HostError(
            f"{what} cannot be used: {error}",
            remedy=f"{_FREE_SPACE} (the disk is full, or broken)"
            if is_disk_full(error)
            else _PATH_REMEDIES.get(
                getattr(error, "errno", None) or 0, "see whether the disk is full, read-only or not yours"
            ),
        ) from error
