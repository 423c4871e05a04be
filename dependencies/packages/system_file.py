"""Changing files of the system: whole or not at all, and what was there is kept beside."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path


def write_system_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file so that it is there with all of its bytes or not at all.

    A file that is replaced keeps its owner and permissions; one behind a link is replaced where it is.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    # Nobody else reads it before it has the permissions of what it replaces.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if target.exists():
        before = target.stat()
        os.chown(part, before.st_uid, before.st_gid)
        mode = before.st_mode & 0o7777
    part.chmod(mode)
    part.replace(target)


def back_up(path: Path) -> Path | None:
    """Copy a file beside itself, with the time (UTC) in the copy's name; None where there is none."""
    if not path.exists():
        return None
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    copy = path.with_name(f"{path.name}.{stamp}.bak")
    shutil.copy2(path, copy)
    return copy
