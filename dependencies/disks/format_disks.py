"""Creates file systems on empty disks that the profile names, and on no other disk."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.core.errors import DependencyFailedError, HostError, LiftedBy
from agent.facts.disks import DISKS, FILE_SYSTEM_MAKERS, device_named, real_path, signatures, why_not_empty
from agent.facts.users import ROOT

if TYPE_CHECKING:
    from agent.component.downloads import Download
    from agent.facts import Facts
    from agent.facts.disks import BlockDevice

_LABEL = "vcagent"
_MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-m", "0", "-L", _LABEL),
    "xfs": ("mkfs.xfs", "-q", "-L", _LABEL),
}
"""The format commands, without -F or -f: the programs themselves refuse a device that is in use."""


class FormatDisksParameters(ComponentParameters):
    """VirtualClient's parameters (FormatDisks.cs), and the list of disks."""

    disks: tuple[str, ...] = Field((), description="The disks to format: /dev/nvme1n1, or /dev/disk/by-id/….")
    file_system: Literal["ext4", "xfs"] = Field("ext4", description="The file system to create.")
    initialize_disks_in_parallel: bool = Field(
        default=False, description="Accepted from VirtualClient; disks are always formatted one by one."
    )
    disk_filter: str = Field("", description="Accepted from VirtualClient; a filter never formats a disk.")
    force: bool = Field(
        default=False, description="Accepted from VirtualClient; disks that are not empty are still refused."
    )

    @field_validator("disks", mode="before")
    @classmethod
    def _paths(cls, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value or ()
        paths = tuple(path for path in (str(part).strip() for part in parts) if path)
        for path in paths:
            if not path.startswith("/dev/"):
                raise ValueError(f"{path!r} is not a device: write its path, such as /dev/nvme1n1")
        return tuple(dict.fromkeys(paths))


class FormatDisks(Dependency):
    """Creates a file system on each named disk: on the whole disk, without a partition table.

    An interrupted format leaves no half-made file system: the programs write the superblock last.
    """

    changes_host = True
    lifts = frozenset({LiftedBy.PATH, LiftedBy.SPACE, LiftedBy.SYSTEM})
    Parameters = FormatDisksParameters
    parameters: FormatDisksParameters

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Return nothing: it works with what the host has."""
        return ()

    def plan(self, facts: Facts) -> Plan:
        """Format the named disks that are empty; refuse named disks that are not."""
        if not self.parameters.disks:
            return Plan(nothing_to_do="no disk is named under Disks, and vcagent formats none but those")
        steps, refusals = [], []
        for name in self.parameters.disks:
            path = facts[real_path(name)] if name.startswith("/dev/disk/") else name
            device = device_named(facts[DISKS], path)
            if device is None:
                refusals.append(f"{name}: there is no such disk")
            elif self._is_made(device, facts):
                continue
            elif reason := why_not_empty(device, facts[signatures(path)]):
                refusals.append(f"{name}: {reason}")
            else:
                steps.append(self._step(device))
        if refusals:
            raise HostError(
                refusals[0] if len(refusals) == 1 else f"{len(refusals)} of the disks cannot be formatted",
                details=tuple(refusals) if len(refusals) > 1 else (),
                remedy="see lsblk --fs; take it out of Disks to use it as it is: vcagent empties no disk",
                lifted_by=LiftedBy.SYSTEM,
            )
        if not steps:
            made = ", ".join(self.parameters.disks)
            return Plan(nothing_to_do=f"{self.parameters.file_system} is on {made}")
        self._check_host(facts)
        return Plan(tuple(steps))

    def _is_made(self, device: BlockDevice, facts: Facts) -> bool:
        """Return True if the whole device contains the requested file system and nothing else."""
        if device.children:
            return False
        found = facts[signatures(device.path)]
        kinds = {signature.kind for signature in found} if found else {device.file_system}
        return kinds == {self.parameters.file_system}

    def _check_host(self, facts: Facts) -> None:
        kind = self.parameters.file_system
        if not facts[ROOT]:
            raise HostError(
                "root is needed to format disks", remedy="run vcagent as root", lifted_by=LiftedBy.NOTHING
            )
        if kind not in facts[FILE_SYSTEM_MAKERS]:
            package = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}[kind]
            raise HostError(
                f"mkfs.{kind} is not installed",
                remedy=f"a LinuxPackageInstallation with Packages: {package} before this element",
                lifted_by=LiftedBy.PROGRAM,
            )

    def _step(self, device: BlockDevice) -> Step:
        command = [*_MAKE[self.parameters.file_system], device.path]

        def run(context: StepContext) -> StepOutcome:
            self._look_again(context, device)
            context.processes.run(command, log=context.log)
            return StepOutcome(f"{self.parameters.file_system} on {device.path}")

        def holds(facts: Facts) -> bool:
            now = device_named(facts[DISKS], device.path)
            return now is not None and self._is_made(now, facts)

        size = f"{device.size_bytes / 1e9:.1f} GB"
        reason = f"{device.path} ({size}) is named and empty"
        return Step(f"format-{device.name.replace('/', '-')}", reason, run, shlex.join(command), holds)

    def _look_again(self, context: StepContext, device: BlockDevice) -> None:
        """Check again, just before formatting, that the disk is empty and not in use."""
        facts = context.facts.fresh()
        now = device_named(facts[DISKS], device.path)
        reason = why_not_empty(now, facts[signatures(device.path)]) if now else "it is gone"
        if not reason and now and now.size_bytes != device.size_bytes:
            reason = "it is another disk than the one that was planned for"
        if not reason:
            try:
                # A block device that is mounted or part of another device cannot be opened this way
                # (open(2)).
                os.close(os.open(device.path, os.O_RDONLY | os.O_EXCL))
            except OSError as error:
                reason = f"it is in use: {error.strerror}"
        if reason:
            raise DependencyFailedError(
                f"{device.path} is not formatted: {reason}", remedy="see lsblk --fs, then plan again"
            )
