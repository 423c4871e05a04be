"""Block devices from the output of lsblk, the kernel and wipefs."""

from __future__ import annotations

import json

from agent.facts import LocalHost
from agent.facts.disks import (
    DISKS,
    FILE_SYSTEM_MAKERS,
    BlockDevice,
    Signature,
    block_devices,
    device_named,
    mounted_at,
    signatures_of,
)

# util-linux 2.37 on Ubuntu 22.04, with udev
UBUNTU = """{"blockdevices": [
  {"path":"/dev/nvme0n1", "type":"disk", "size":480103981056, "ro":false, "fstype":null, "uuid":null,
   "pttype":"gpt", "maj:min":"259:0", "mountpoint":null, "children": [
     {"path":"/dev/nvme0n1p1", "type":"part", "size":1127219200, "ro":false, "fstype":"vfat",
      "uuid":"8D3B-11A9", "pttype":"gpt", "maj:min":"259:1", "mountpoint":"/boot/efi"},
     {"path":"/dev/nvme0n1p2", "type":"part", "size":478973788160, "ro":false, "fstype":"ext4",
      "uuid":"d2b1", "pttype":"gpt", "maj:min":"259:2", "mountpoint":"/var/lib/kubelet/pods/x"}]},
  {"path":"/dev/sda", "type":"disk", "size":1000204886016, "ro":false, "fstype":"btrfs", "uuid":"be3a",
   "pttype":null, "maj:min":"  8:0  ", "mountpoint":null}]}"""
MOUNTINFO = r"""
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
90 28 259:2 /x /var/lib/kubelet/pods/x rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
31 28 259:1 / /boot/efi rw,relatime shared:2 - vfat /dev/nvme0n1p1 rw
77 28 0:52 / /srv/my\040data rw shared:3 - btrfs /dev/sda rw,subvol=/
33 28 0:21 / /proc rw - proc proc rw
broken
"""
# util-linux 2.31 on CentOS and Ubuntu 18.04: texts instead of numbers
OLD = """{"blockdevices": [{"path": "/dev/sda", "type": "disk", "size": "64424509440", "ro": "1",
  "maj:min": "8:0", "mountpoint": null, "fstype": null, "uuid": null, "pttype": "dos",
  "children": [{"path": "/dev/sda1", "type": "part", "size": "64423460864", "ro": "0",
    "mountpoint": "[SWAP]"}]}]}"""


def test_mount_points_come_from_the_kernel() -> None:
    system, data = block_devices(UBUNTU, MOUNTINFO)
    assert system.holds_system
    assert system.children[1].mount_points == ("/", "/var/lib/kubelet/pods/x")
    assert data == BlockDevice(
        "/dev/sda", "disk", 1000204886016, "btrfs", "be3a", mount_points=("/srv/my data",)
    )
    assert device_named((system, data), "/dev/nvme0n1p1") is system.children[0]
    assert device_named((system, data), "/dev/nvme0n1p9") is None


def test_without_the_kernel_lsblk_tells_one() -> None:
    system, _ = block_devices(UBUNTU)
    assert system.children[1].mount_points == ("/var/lib/kubelet/pods/x",)


def test_numbers_written_as_texts() -> None:
    (disk,) = block_devices(OLD)
    assert (disk.size_bytes, disk.read_only, disk.partition_table) == (64424509440, True, "dos")
    assert disk.children[0].mount_points == ("[SWAP]",)
    assert not disk.children[0].read_only


def test_no_answer_and_nothing_are_told_apart() -> None:
    assert signatures_of(None) is None
    assert signatures_of("") is None
    assert signatures_of('{"signatures": []}') == ()
    found = {
        "signatures": [{"device": "loop0", "offset": "0x438", "type": "ext4", "uuid": "f3", "label": None}]
    }
    assert signatures_of(json.dumps(found)) == (Signature("ext4", "f3"),)
    assert block_devices("lsblk: unknown column") == ()
    assert mounted_at("") == {}


def test_this_host() -> None:
    host = LocalHost()
    assert all(device.path.startswith("/dev/") for device in DISKS.read(host))
    assert all("." not in name for name in FILE_SYSTEM_MAKERS.read(host))
