"""Mounted file systems and their free space."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Iterable

_DF = ("df", "-B1", "--output=target,fstype,size,avail")


@dataclass(frozen=True)
class Mount:
    """A mounted file system.

    Args:
        target: its mount point.
        file_system: such as ``ext4``.
        total_bytes: its size.
        free_bytes: the bytes that this user may still write.
    """

    target: Path
    file_system: str
    total_bytes: int
    free_bytes: int


def df_mounts(text: str) -> tuple[Mount, ...]:
    """Read ``df -B1 --output=target,fstype,size,avail``; lines without numbers are ignored."""
    mounts = []
    for line in text.splitlines()[1:]:
        try:
            target, file_system, total, free = line.rsplit(maxsplit=3)
            mounts.append(Mount(Path(target), file_system, int(total), int(free)))
        except ValueError:
            continue
    return tuple(mounts)


def mount_of(mounts: Iterable[Mount], path: PurePath) -> Mount | None:
    """Return the file system of an absolute path, which need not exist yet."""
    holders = [mount for mount in mounts if path.is_relative_to(mount.target)]
    return max(holders, key=lambda mount: len(mount.target.parts), default=None)


def free_bytes(mounts: Iterable[Mount], path: PurePath) -> int | None:
    """Return the bytes that can be written below an absolute path, or None if unknown."""
    mount = mount_of(mounts, path)
    return mount.free_bytes if mount else None


def _read(host: Host) -> tuple[Mount, ...]:
    # A dead network mount makes df hang: then only local mounts are read.
    return df_mounts(host.output(_DF, timeout_s=5) or host.output([*_DF, "--local"], timeout_s=5) or "")


MOUNTS: Fact[tuple[Mount, ...]] = Fact("mounts", " ".join(_DF), _read)
