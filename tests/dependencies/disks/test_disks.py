"""Formatting and mounting of loop devices: real tools, but no disk of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import DependencyFailedError, HostError
from dependencies.disks.format_disks import FormatDisks
from dependencies.disks.mount_disks import MountDisks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dependencies.conftest import RealHost

TOOLS = ("losetup", "mkfs.ext4", "wipefs", "lsblk", "mount")


def _loop_device(image: Path) -> str:
    with image.open("wb") as file:
        file.truncate(64 * 2**20)
    attached = subprocess.run(
        ["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=False
    )
    if attached.returncode:
        pytest.skip(f"no loop devices: {attached.stderr.strip()}")
    return attached.stdout.strip()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    if os.geteuid() or not all(map(shutil.which, TOOLS)):
        pytest.skip("needs root and the tools of util-linux and e2fsprogs")
    path = _loop_device(tmp_path / "disk.img")
    try:
        yield path
    finally:
        for mount in tmp_path.glob("mnt_dev_*"):
            subprocess.run(["umount", str(mount)], check=False, capture_output=True)
        subprocess.run(["losetup", "--detach", path], check=True)


def format_disks(**parameters: object) -> FormatDisks:
    return FormatDisks(FormatDisks.Parameters.model_validate(parameters))


def mount_disks(folder: Path, device: str, **parameters: object) -> MountDisks:
    values = {"DiskFilter": f"DiskPath:{device}", "MountLocation": str(folder), **parameters}
    return MountDisks(MountDisks.Parameters.model_validate(values))


@pytest.mark.root
def test_an_empty_disk_is_formatted_and_mounted_and_then_left_alone(
    real_host: RealHost, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fstab = tmp_path / "fstab"
    fstab.write_text("# nothing")
    monkeypatch.setattr("dependencies.disks.mount_disks.FSTAB", fstab)
    name = device.removeprefix("/dev/")
    mount = mount_disks(tmp_path, device, Fstab=True)
    assert f"{device} holds no file system" in mount.plan(real_host.facts.fresh()).nothing_to_do
    assert real_host.apply(format_disks(Disks=device)) == [f"format-{name}"]
    assert real_host.apply(mount) == [f"mount-{name}", f"fstab-{name}"]
    (tmp_path / f"mnt_dev_{name}" / "kept").write_text("data")
    assert fstab.read_text().startswith("# nothing\nUUID=")
    assert f"/mnt_dev_{name} ext4 defaults,nofail 0 2\n" in fstab.read_text()
    assert real_host.apply(format_disks(Disks=device)) == []
    assert real_host.apply(mount) == []
    with pytest.raises(HostError, match=f"is mounted at {tmp_path}"):
        format_disks(Disks=device, FileSystem="xfs").plan(real_host.facts.fresh())
    assert (tmp_path / f"mnt_dev_{name}" / "kept").read_text() == "data"


@pytest.mark.root
def test_what_came_onto_the_disk_after_the_plan_is_not_destroyed(
    real_host: RealHost, device: str, tmp_path: Path
) -> None:
    (step,) = format_disks(Disks=device).plan(real_host.facts.fresh()).steps
    subprocess.run(["mkfs.ext4", "-q", "-L", "precious", device], check=True)
    with pytest.raises(DependencyFailedError, match="traces of ext4"):
        step.run(real_host.context)
    label = ["blkid", "-p", "-s", "LABEL", "-o", "value", device]
    assert subprocess.run(label, capture_output=True, check=True).stdout == b"precious\n"


@pytest.mark.root
def test_a_disk_in_use_is_not_formatted(
    real_host: RealHost, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (step,) = format_disks(Disks=device).plan(real_host.facts.fresh()).steps
    holder = os.open(device, os.O_RDWR | os.O_EXCL)
    try:
        with pytest.raises(DependencyFailedError, match="it is in use"):
            step.run(real_host.context)
    finally:
        os.close(holder)
