"""Disks, their contents and their mount points."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LSBLK = (
    "lsblk",
    "--json",
    "--bytes",
    "--output=PATH,TYPE,SIZE,RO,FSTYPE,UUID,PTTYPE,MAJ:MIN,MOUNTPOINT",
)
_MOUNTINFO = "/proc/self/mountinfo"
_SYSTEM_MOUNTS = frozenset({"/", "/boot", "/boot/efi", "/efi", "/usr", "/var"})
_WHOLE = frozenset({"disk", "loop"})


@dataclass(frozen=True)
class BlockDevice:
    """A disk, a partition, or a device built on them (LVM, RAID, encryption).

    Args:
        path: such as ``/dev/nvme0n1``.
        kind: lsblk's TYPE: ``disk``, ``part``, ``lvm``, ``raid1``, ``crypt``, ``loop``, ``rom``, …
        size_bytes: its size.
        file_system: the type found by udev, such as ``ext4``, ``swap``, ``LVM2_member``; None if udev found
            none or is missing: see ``signatures``.
        uuid: the file system's identifier, found by udev.
        partition_table: ``gpt`` or ``dos``, found by udev.
        read_only: True if it is not writable.
        mount_points: its mount points; ``[SWAP]`` for swap space.
        children: its partitions, and devices built on it.
    """

    path: str
    kind: str
    size_bytes: int
    file_system: str | None = None
    uuid: str | None = None
    partition_table: str | None = None
    read_only: bool = False
    mount_points: tuple[str, ...] = ()
    children: tuple[BlockDevice, ...] = ()

    def walk(self) -> Iterator[BlockDevice]:
        """Yield this device and all devices on it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def name(self) -> str:
        """Its name in /dev."""
        return self.path.removeprefix("/dev/")

    @property
    def is_disk(self) -> bool:
        """True for a whole disk with a medium; a RAM disk does not count."""
        return self.kind == "disk" and self.size_bytes > 0 and not re.match(r"zram|ram|fd", self.name)

    @property
    def holds_system(self) -> bool:
        """True if the operating system is on it."""
        return any(_SYSTEM_MOUNTS & set(device.mount_points) for device in self.walk())


@dataclass(frozen=True)
class Signature:
    """A finding of wipefs: a file system, a partition table, a member of a group.

    Args:
        kind: such as ``ext4``, ``gpt``, ``LVM2_member``, ``linux_raid_member``, ``zfs_member``, ``swap``.
        uuid: its identifier, if it has one.
    """

    kind: str
    uuid: str | None = None


def mounted_at(mountinfo: str) -> dict[str, tuple[str, ...]]:
    """Return the mount points of each device, by number (``259:1``) and path (``/proc/self/mountinfo``).

    lsblk reports only one mount point, which may be a file of a container. Paths are for btrfs, whose mounts
    have numbers of their own (proc(5)).
    """
    found: dict[str, list[str]] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, origin = left.split(), right.split()
        if len(fields) > 4 and len(origin) > 1:  # noqa: PLR2004
            target = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields[4])
            for key in (fields[2], origin[1]):
                found.setdefault(key, []).append(target)
    return {key: tuple(dict.fromkeys(targets)) for key, targets in found.items()}


def block_devices(text: str, mountinfo: str = "") -> tuple[BlockDevice, ...]:
    """Read ``lsblk --json --bytes``; releases before 2.33 write numbers and truth as texts.

    Args:
        text: its output.
        mountinfo: the text of ``/proc/self/mountinfo``.
    """
    mounts = mounted_at(mountinfo)

    def device(values: Mapping[str, Any]) -> BlockDevice:
        path = str(values["path"])
        told = [values["mountpoint"]] if values.get("mountpoint") else []
        points = [*mounts.get(str(values.get("maj:min", "")).strip(), ()), *mounts.get(path, ()), *told]
        return BlockDevice(
            path=path,
            kind=str(values["type"]),
            size_bytes=int(values.get("size") or 0),
            file_system=values.get("fstype"),
            uuid=values.get("uuid"),
            partition_table=values.get("pttype"),
            read_only=values.get("ro") in (True, "1", 1),
            mount_points=tuple(dict.fromkeys(points)),
            children=tuple(map(device, values.get("children", ()))),
        )

    try:
        return tuple(map(device, json.loads(text)["blockdevices"]))
    except (ValueError, KeyError, TypeError):
        return ()


def signatures_of(text: str | None) -> tuple[Signature, ...] | None:
    """Read ``wipefs --no-act --json``; None if wipefs failed, which differs from no signatures."""
    try:
        found = json.loads(text or "")["signatures"]
        return tuple(Signature(str(item["type"]), item.get("uuid")) for item in found)
    except (ValueError, KeyError, TypeError):
        return None


def device_named(devices: tuple[BlockDevice, ...], path: str) -> BlockDevice | None:
    """Return the device with that path, at any depth."""
    return next((found for device in devices for found in device.walk() if found.path == path), None)


def why_not_empty(device: BlockDevice, found: tuple[Signature, ...] | None) -> str:
    """Return why a device must not be formatted; empty if it is completely empty.

    Args:
        device: the device.
        found: its signatures; None if unknown.
    """
    points = ", ".join(point for part in device.walk() for point in part.mount_points)
    used = ", ".join(f"{child.path} ({child.kind})" for child in device.children)
    known = [kind for kind in (device.file_system, device.partition_table) if kind]
    kinds = ", ".join(dict.fromkeys([*known, *(signature.kind for signature in found or ())]))
    reasons = {
        f"it is not a whole disk ({device.kind})": device.kind not in _WHOLE,
        "it has no medium": device.size_bytes <= 0,
        "the operating system is on it": device.holds_system,
        "it is swapped to": "[SWAP]" in points,
        f"it is mounted at {points}": points,
        f"it holds {used}": used,
        "it is read-only": device.read_only,
        f"there are traces of {kinds} on it": kinds,
        "nobody can tell what is on it: wipefs gives no answer": found is None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def signatures(path: str) -> Fact[tuple[Signature, ...] | None]:
    """Return the fact of the signatures on a device, read from the device itself."""
    command = ("wipefs", "--no-act", "--json", "--", path)
    return Fact(f"signatures[{path}]", " ".join(command), lambda host: signatures_of(host.output(command)))


def real_path(path: str) -> Fact[str]:
    """Return the fact of the device behind a link such as ``/dev/disk/by-id/…``."""
    return Fact(
        f"real_path[{path}]",
        f"readlink -f {path}",
        lambda host: (host.output(["readlink", "-f", "--", path]) or "").strip() or path,
    )


def _read(host: Host) -> tuple[BlockDevice, ...]:
    return block_devices(host.output(_LSBLK) or "", host.text(_MOUNTINFO) or "")


def _makers(host: Host) -> frozenset[str]:
    names = {name for folder in ("/usr/sbin", "/sbin", "/usr/bin") for name in host.names(folder)}
    return frozenset(name.removeprefix("mkfs.") for name in names if name.startswith("mkfs."))


DISKS: Fact[tuple[BlockDevice, ...]] = Fact("disks", f"{' '.join(_LSBLK)}, {_MOUNTINFO}", _read)
FILE_SYSTEM_MAKERS: Fact[frozenset[str]] = Fact("file_system_makers", "/usr/sbin/mkfs.*", _makers)
