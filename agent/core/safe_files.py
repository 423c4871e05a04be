"""Writes files as root in folders that others may reach, without following links.

A file is opened by its name below a descriptor of its folder, and each folder on the path in the same way. An
account that neither owns these folders nor can write to them cannot cause another file to be replaced.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

from agent.core.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_PART = ".part"
_NOWHERE = Path(os.devnull)


def trusted_accounts() -> set[int]:
    """Return the user ids that may own files that root writes to: root's, and that of the caller of sudo."""
    caller = os.environ.get("SUDO_UID", "")
    return {0, os.geteuid(), *([int(caller)] if caller.isdecimal() else [])}


def distrust(folder: Path) -> str:
    """Return why root must not write to a folder; empty if it may, or if this process is not root.

    The folders above count too: an account that can rename one of them can put another in its place.

    Args:
        folder: the folder; it need not exist yet.
    """
    if os.geteuid() != 0:
        return ""
    try:
        real = Path(os.path.realpath(folder))
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror or error}"
    nearest = next((path for path in (real, *real.parents) if path.exists()), Path("/"))
    for path in (nearest, *nearest.parents):
        status = path.stat()
        if status.st_uid not in trusted_accounts():
            return f"{path} belongs to {_user(status.st_uid)}"
        if path != real and status.st_mode & stat.S_ISVTX:
            continue  # as in /tmp: others can rename only their own files
        if status.st_mode & stat.S_IWOTH:
            return f"every account may write to {path}"
        if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid):
            return f"the group {_group(status.st_gid)} may write to {path}"
    return ""


def distrust_file(path: Path) -> str:
    """Return why root must not trust a file; empty if it may, or if this process is not root."""
    if os.geteuid() != 0:
        return ""
    if reason := distrust(path.parent):
        return reason
    try:
        status = path.stat()
    except OSError as error:
        return f"it cannot be looked at: {error.strerror or error}"
    if status.st_uid not in trusted_accounts():
        return f"it belongs to {_user(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)):
        return "others may write to it"
    return ""


def distrust_tree(folder: Path) -> str:
    """Return why root must not take files from a folder; empty if it may, or if this process is not root.

    Each folder and file in it counts: an archive that root unpacks keeps the owners and modes of its files.
    """
    if os.geteuid() != 0:
        return ""
    if reason := distrust(folder):
        return reason
    entries = (
        Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files)
    )
    return next(filter(None, map(_distrust_entry, entries)), "")


def _distrust_entry(path: Path) -> str:
    """Return why root must not take a file or folder, whatever lies above it."""
    status = path.lstat()
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return f"{path} is a link, a device or a pipe"
    if status.st_uid not in trusted_accounts():
        return f"{path} belongs to {_user(status.st_uid)}"
    is_of_group = status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)
    return f"others may write to {path}" if status.st_mode & stat.S_IWOTH or is_of_group else ""


def require_trust(folder: Path, what: str, option: str) -> None:
    """Refuse a folder that root must not write to.

    Args:
        folder: the folder.
        what: its purpose, such as ``results folder``.
        option: the option that chooses another one.

    Raises:
        HostError: if others may write to it, or another account owns it; with the remedy.
    """
    if reason := distrust(folder):
        raise HostError(
            f"root does not write to the {what} {folder}: {reason}", remedy=remedy_for(folder, option)
        )


def remedy_for(folder: Path, option: str) -> str:
    """Return the remedy for a folder that root must not write to."""
    real = os.path.realpath(folder)
    return (
        f"chown root {real} and chmod go-w {real}, likewise for the folder that is named; "
        f"or choose another with {option}"
    )


def written_by_root(path: Path) -> bool:
    """Return True if a file belongs to root, only root may write to it, and it is not a link."""
    try:
        status = path.lstat()
    except OSError:
        return False
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(status.st_mode) and status.st_uid == 0 and not writable


def _is_private(gid: int) -> bool:
    """Return True if a group is root's, or its only member is the caller of sudo (Debian, Red Hat)."""
    caller = os.environ.get("SUDO_USER", "")
    if gid == 0:
        return True
    try:
        group = grp.getgrgid(gid)
        return bool(caller) and group.gr_name == caller and not set(group.gr_mem) - {caller, "root"}
    except KeyError:
        return False


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user with the number {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


@contextmanager
def _folder(path: Path, *, make: bool = False, mode: int = 0o777) -> Iterator[int]:
    """Yield a descriptor of a folder; as root it is reached from ``/`` without following any link.

    Raises:
        OSError: if a part of the path is a link (as root) or not a folder.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    if os.geteuid() != 0:
        if make:
            path.mkdir(mode, parents=True, exist_ok=True)
        descriptor = os.open(path, flags)
    else:
        absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve would follow links
        descriptor = os.open("/", flags)
        for name in absolute.parts[1:]:
            try:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, mode, dir_fd=descriptor)
                inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise NotADirectoryError(
                        errno.ENOTDIR,
                        f"{name} is a link (which root never follows) or not a folder",
                        str(path),
                    ) from error
                error.filename = str(path)
                raise
            finally:
                os.close(descriptor)
            descriptor = inner
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder with its parents if it is missing; as root follow no link.

    Raises:
        OSError: if it cannot be made, or a part of its path is not a folder.
    """
    with _folder(path, make=True, mode=mode):
        pass


def open_file(
    path: Path, flags: int, mode: int = 0o666, *, other_names: bool = False, owner: int | None = None
) -> int:
    """Open an ordinary file; never a link, a pipe or a device, and for root never another account's file.

    Args:
        path: the file.
        flags: flags of ``os.open``.
        mode: permissions of a new file, less the umask.
        other_names: True if the file may have other names (hard links) from its own run.
        owner: the user id of an account that may own the file besides root and the caller of sudo.

    Returns:
        The file's descriptor.

    Raises:
        OSError: if it cannot be opened, or is something else.
    """
    wanted = flags & ~os.O_TRUNC
    with _folder(path.parent) as folder:
        try:
            descriptor = os.open(path.name, wanted | _NO_LINK | os.O_NONBLOCK, mode, dir_fd=folder)
        except OSError as error:
            error.filename = str(path)
            raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
        if not other_names and status.st_nlink > 1:
            raise OSError(errno.EMLINK, "the file has another name elsewhere", str(path))
        if os.geteuid() == 0 and status.st_uid not in {*trusted_accounts(), owner}:
            raise PermissionError(errno.EPERM, f"the file belongs to {_user(status.st_uid)}", str(path))
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def append_to(path: Path, *, errors: str = "replace", buffering: int = -1) -> TextIO:
    """Open a log for appending; its folder is created if missing; see ``open_file``.

    ``/dev/null`` is accepted for a command without a log.
    """
    if path == _NOWHERE:
        return path.open("a", encoding="utf-8", errors=errors)
    make_folder(path.parent)
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, other_names=True)
    return open(descriptor, "a", encoding="utf-8", errors=errors, buffering=buffering)  # noqa: PTH123 - no path


def write_to(path: Path, *, newline: str | None = None) -> TextIO:
    """Open a text file for writing and empty it; see ``open_file``."""
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    return open(descriptor, "w", encoding="utf-8", newline=newline)  # noqa: PTH123 - no path


def append_bytes_to(path: Path, mode: int = 0o666) -> IO[bytes]:
    """Open a file for appending bytes, in a folder that is made if it is missing; see ``open_file``."""
    make_folder(path.parent)
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode), "ab")


def append_text(path: Path, text: str) -> None:
    """Append a text to a log; see ``append_to``."""
    with append_to(path) as file:
        file.write(text)


def touch(path: Path) -> None:
    """Create an empty file if it does not exist; see ``open_file``."""
    append_to(path).close()


def replace_text(path: Path, text: str, mode: int = 0o666, *, errors: str = "strict") -> None:
    """Write a text so that a reader finds the old file or the new one, never half of one."""
    replace_bytes(path, text.encode("utf-8", errors), mode)


def replace_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file so that a reader finds the old one or the new one, never half of one.

    Args:
        path: the file; an existing one is replaced. A link itself is replaced, not its target.
        data: the new content.
        mode: permissions, less the umask, from its first byte on.

    Raises:
        OSError: if it cannot be written.
    """
    with replacing(path, mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def copy_file(source: Path, target: Path, mode: int = 0o666) -> None:
    """Copy an ordinary file; a reader finds the old target or the whole new one.

    Args:
        source: the file; a link is refused.
        target: the copy; what is there is replaced, a link itself and not what it leads to.
        mode: permissions of the copy, less the umask.

    Raises:
        OSError: if it cannot be copied.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | _NO_LINK
    with os.fdopen(os.open(source, flags), "rb") as original:
        if not stat.S_ISREG(os.fstat(original.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(source))
        with replacing(target, mode) as copy:
            shutil.copyfileobj(original, copy, 1 << 20)


def give_to(path: Path, uid: int, gid: int) -> None:
    """Give a file or folder to an account; of a link, the link itself."""
    os.chown(path, uid, gid, follow_symlinks=False)


def _require_file(path: Path, folder: int) -> None:
    """Refuse a path to a folder, device, pipe or socket; a link may lead to a file, or nowhere."""
    try:
        found = os.stat(path.name, dir_fd=folder)
    except OSError:  # it does not exist, or is a link that leads nowhere, which is replaced
        return
    if stat.S_ISDIR(found.st_mode) and not path.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yield a new file beside ``path`` that replaces it at the end, or is removed if the body fails.

    A device, pipe or socket, and a link to one such as ``/dev/stdout``, is not replaced: root could.

    Raises:
        OSError: if the file cannot be written, or ``path`` leads to something else than a file.
    """
    part = f"{path.name}{_PART}"
    with _folder(path.parent) as folder:
        _require_file(path, folder)
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
        try:
            with os.fdopen(os.open(part, flags, mode, dir_fd=folder), "wb") as file:
                yield file
            os.rename(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
