"""Mounts the file systems of disks that a filter selects."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.core.errors import HostError, LiftedBy
from agent.facts.disk_filter import filter_disks, parse_disk_filter
from agent.facts.disks import DISKS, signatures
from agent.facts.files import names_in, text_of
from agent.facts.users import ROOT
from dependencies.packages.system_file import write_system_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts
    from agent.facts.disks import BlockDevice

FSTAB = Path("/etc/fstab")
_NOT_MOUNTED = frozenset(
    {"swap", "LVM2_member", "linux_raid_member", "zfs_member", "crypto_LUKS", "mpath_member", "bcache"}
    | {"ceph_bluestore", "gpt", "dos", "PMBR", "atari"}
)
"""Signatures that are not file systems to mount."""


class MountDisksParameters(ComponentParameters):
    """VirtualClient's parameters (MountDisks.cs), and Fstab and MountOptions."""

    disk_filter: str = Field("OSDisk:false", description="The disks: BiggestSize, SizeGreaterThan:1000gb.")
    mount_point_prefix: str = Field("", description="The start of each mount point's name; by default mnt.")
    mount_location: str = Field("/", description="The folder of the mount points.")
    mount_options: str = Field("defaults", pattern=r"^[^\s]+$", description="Options of mount -o.")
    fstab: bool = Field(default=False, description="Whether /etc/fstab mounts them after a reboot.")

    @field_validator("disk_filter")
    @classmethod
    def _filter(cls, value: str) -> str:
        parse_disk_filter(value)
        return value


@dataclass(frozen=True)
class _Volume:
    """A file system that can be mounted."""

    device: BlockDevice
    kind: str
    uuid: str
    target: Path

    @property
    def line(self) -> str:
        """The text that identifies it in /etc/fstab and for mount."""
        return f"UUID={self.uuid}"


class MountDisks(Dependency):
    """Mounts every file system of the selected disks; mounted ones stay where they are."""

    changes_host = True
    lifts = frozenset({LiftedBy.PATH, LiftedBy.SPACE, LiftedBy.SYSTEM})
    Parameters = MountDisksParameters
    parameters: MountDisksParameters

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Return nothing: it works with what the host has."""
        return ()

    def plan(self, facts: Facts) -> Plan:
        """Mount unmounted file systems by UUID, except those of the disk with the operating system."""
        disks = filter_disks(facts[DISKS], self.parameters.disk_filter)
        if not disks:
            sizes = ", ".join(
                f"{disk.path} {disk.size_bytes / 2**30:.0f} GiB" for disk in facts[DISKS] if disk.is_disk
            )
            raise HostError(
                f"no disk fits the filter {self.parameters.disk_filter}",
                remedy=f"choose another DiskFilter; the disks of this host: {sizes or 'none'}",
                lifted_by=LiftedBy.SYSTEM,
            )
        fstab = facts[text_of(FSTAB)] or ""
        steps, told = [], []
        for device in self._leaves(disks):
            if device.mount_points:
                told.append(f"{device.path} is mounted at {device.mount_points[0]}")
                volume = self._volume(device, facts, fstab, Path(device.mount_points[0]))
            else:
                volume = self._volume(device, facts, fstab)
            if volume is None:
                if not device.mount_points:
                    told.append(f"{device.path} holds no file system")
                continue
            if not device.mount_points:
                self._check_target(volume, facts)
                steps.append(self._mount_step(volume))
            if self.parameters.fstab and not _entry(fstab, volume.line):
                steps.append(self._fstab_step(volume))
        told += [f"{disk.path} holds the operating system" for disk in disks if disk.holds_system]
        if not steps:
            return Plan(nothing_to_do="; ".join(told))
        if not facts[ROOT]:
            raise HostError(
                "root is needed to mount disks", remedy="run vcagent as root", lifted_by=LiftedBy.NOTHING
            )
        return Plan(tuple(steps))

    @staticmethod
    def _leaves(disks: tuple[BlockDevice, ...]) -> list[BlockDevice]:
        """Return the devices that may contain a file system: those without children, except system disks."""
        leaves = {
            device.path: device
            for disk in disks
            if not disk.holds_system
            for device in disk.walk()
            if not device.children and "[SWAP]" not in device.mount_points
        }
        return list(leaves.values())

    def _volume(
        self, device: BlockDevice, facts: Facts, fstab: str, mounted: Path | None = None
    ) -> _Volume | None:
        kind, uuid = device.file_system, device.uuid
        if not (kind and uuid):
            found = facts[signatures(device.path)] or ()
            mountable = [signature for signature in found if signature.kind not in _NOT_MOUNTED]
            if len(mountable) != 1:
                return None
            kind, uuid = mountable[0].kind, mountable[0].uuid
        if not uuid or kind in _NOT_MOUNTED:
            return None
        entry = _entry(fstab, f"UUID={uuid}")
        return _Volume(device, kind, uuid, mounted or (Path(entry) if entry else self._target(device)))

    def _target(self, device: BlockDevice) -> Path:
        """Return the mount point, such as ``/mnt_dev_sdc1`` for ``/dev/sdc1``, as VirtualClient names it."""
        name = f"{self.parameters.mount_point_prefix or 'mnt'}{device.path.replace('/', '_')}"
        return Path("/") / self.parameters.mount_location / name

    @staticmethod
    def _check_target(volume: _Volume, facts: Facts) -> None:
        taken = [
            other.path
            for disk in facts[DISKS]
            for other in disk.walk()
            if str(volume.target) in other.mount_points
        ]
        hidden = facts[names_in(volume.target)]
        if taken or hidden:
            what = f"{taken[0]} is mounted there" if taken else "it is not empty"
            raise HostError(
                f"{volume.device.path} cannot be mounted at {volume.target}: {what}",
                remedy="move what is there away, or choose another MountPointPrefix or MountLocation",
                lifted_by=LiftedBy.SYSTEM,
            )

    def _mount_step(self, volume: _Volume) -> Step:
        options = self.parameters.mount_options
        command = ["mount", "-t", volume.kind, "-o", options, volume.line, str(volume.target)]

        def run(context: StepContext) -> StepOutcome:
            volume.target.mkdir(parents=True, exist_ok=True)
            context.processes.run(command, log=context.log)
            return StepOutcome(f"{volume.device.path} at {volume.target}")

        def holds(facts: Facts) -> bool:
            return any(
                str(volume.target) in device.mount_points for disk in facts[DISKS] for device in disk.walk()
            )

        return Step(
            f"mount-{_plain(volume.device)}",
            f"{volume.device.path} ({volume.kind}) is not mounted",
            run,
            f"mkdir -p {shlex.quote(str(volume.target))} && {shlex.join(command)}",
            holds,
            undo={"target": str(volume.target), "uuid": volume.uuid},
        )

    def _fstab_step(self, volume: _Volume) -> Step:
        target = str(volume.target).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
        # nofail: a host without its data disk still boots (systemd.mount(5)).
        line = f"{volume.line} {target} {volume.kind} {self.parameters.mount_options},nofail 0 2"

        def run(_: StepContext) -> StepOutcome:
            text = _fstab()
            if not _entry(text, volume.line):
                gap = "" if not text or text.endswith("\n") else "\n"
                write_system_file(FSTAB, f"{text}{gap}{line}\n".encode(errors="surrogateescape"))
            return StepOutcome(line)

        return Step(
            f"fstab-{_plain(volume.device)}",
            f"/etc/fstab does not mount {volume.device.path}",
            run,
            f"echo {shlex.quote(line)} >> {FSTAB}",
            lambda facts: bool(_entry(facts[text_of(FSTAB)] or "", volume.line)),
            undo={"line": line},
        )

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Unmount a file system if it is still the one that was mounted; remove the line from /etc/fstab."""
        if "line" in values:
            return _undo_line(values["line"], facts)
        target, uuid = values["target"], values["uuid"]
        mounted = [device for disk in facts[DISKS] for device in disk.walk() if target in device.mount_points]
        if not mounted:
            return Plan(nothing_to_do=f"nothing is mounted at {target} any more")
        found = {signature.uuid for signature in facts[signatures(mounted[0].path)] or ()}
        if uuid not in (mounted[0].uuid, *found):
            return Plan(nothing_to_do=f"another file system is mounted at {target}")
        command = ["umount", target]

        def run(context: StepContext) -> None:
            context.processes.run(command, log=context.log)
            Path(target).rmdir()

        shown = f"{shlex.join(command)} && {shlex.join(['rmdir', target])}"
        return Plan((Step("unmount", f"{mounted[0].path} was mounted at {target}", run, shown),))


def _undo_line(line: str, facts: Facts) -> Plan:
    if line not in (facts[text_of(FSTAB)] or "").splitlines():
        return Plan(nothing_to_do=f"{FSTAB} has no such line any more: {line}")

    def run(_: StepContext) -> None:
        kept = [old for old in _fstab().splitlines(keepends=True) if old.strip() != line]
        write_system_file(FSTAB, "".join(kept).encode(errors="surrogateescape"))

    return Plan((Step("remove-line", f"{FSTAB} got this line", run, f"remove from {FSTAB}: {line}"),))


def _fstab() -> str:
    """Return the text of the table; bytes that are not UTF-8 survive when it is written again."""
    return FSTAB.read_text(encoding="utf-8", errors="surrogateescape") if FSTAB.exists() else ""


def _plain(device: BlockDevice) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", device.name)


def _entry(fstab: str, source: str) -> str:
    """Return the mount point of a source in /etc/fstab (fstab(5)); empty if it has none."""
    for line in fstab.splitlines():
        fields = line.split()
        if len(fields) > 1 and fields[0].replace('"', "") == source and fields[1].startswith("/"):
            return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields[1])
    return ""
