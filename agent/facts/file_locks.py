"""Finds the process that prevents others from locking a file."""

from __future__ import annotations

import fcntl
import os
import re
import struct
from pathlib import Path

_FLOCK = "hhqqi4x"
"""struct flock of fcntl(2) on 64-bit Linux: type, whence, start, length, process."""


def record_lock_holder(path: str) -> int | None:
    """Return the process whose record lock (fcntl(2)) on a file blocks a writer, or None.

    The kernel is asked about the file itself; if this user may not open it, ``/proc/locks`` is read. The file
    must not be locked by this process: closing it would release the process's own locks.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return _told_by_proc(path)
    except OSError:
        return None
    try:
        question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(pid)


def posix_writer(proc_locks: str, device: int, inode: int) -> int | None:
    """Return the process with a record lock for writing on a file, from ``/proc/locks`` (proc(5)).

    Inodes are unique only within their device, and dpkg ignores ``flock`` locks.
    """
    file = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    match = re.search(rf"^\d+:\s+POSIX\s+\w+\s+WRITE\s+(-?\d+)\s+{file}\s", proc_locks, re.MULTILINE)
    return int(match.group(1)) if match else None


def _told_by_proc(path: str) -> int | None:
    try:
        status = os.lstat(path)
        locks = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return posix_writer(locks, status.st_dev, status.st_ino)
