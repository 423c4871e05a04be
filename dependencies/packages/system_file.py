"""Changes files of the system atomically, and keeps a backup beside them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path


def write_system_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file atomically.

    A replaced file keeps its owner and permissions; the target of a link is replaced in its place.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    # Nobody else can read it before it has the permissions of the replaced file.
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
    """Copy a file to a name with the time (UTC) beside it; return None if the file does not exist."""
    if not path.exists():
        return None
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    copy = path.with_name(f"{path.name}.{stamp}.bak")
    shutil.copy2(path, copy)
    return copy
