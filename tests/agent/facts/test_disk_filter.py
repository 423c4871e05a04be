"""VirtualClient's disk filters, on the disks of a typical GPU host."""

from __future__ import annotations

import pytest

from agent.facts.disk_filter import filter_disks, parse_disk_filter, size_of
from agent.facts.disks import BlockDevice

GIB = 2**30
ROOT = BlockDevice("/dev/nvme0n1p2", "part", 446 * GIB, "ext4", mount_points=("/",))
DATA = BlockDevice("/dev/sda1", "part", 999 * GIB, "xfs", mount_points=("/scratch/data",))
VOLUME = BlockDevice("/dev/mapper/vg-models", "lvm", 500 * GIB, "ext4")
DEVICES = (
    BlockDevice("/dev/nvme0n1", "disk", 447 * GIB, children=(ROOT,)),
    BlockDevice("/dev/nvme1n1", "disk", 3577 * GIB),
    BlockDevice("/dev/nvme2n1", "disk", 3577 * GIB),
    BlockDevice("/dev/sda", "disk", 1000 * GIB, children=(DATA,)),
    BlockDevice("/dev/vdb", "disk", 600 * GIB, "LVM2_member", children=(VOLUME,)),
    BlockDevice("/dev/loop0", "loop", GIB),
    BlockDevice("/dev/sr0", "rom", GIB),
    BlockDevice("/dev/zram0", "disk", GIB),
    BlockDevice("/dev/sdz", "disk", 0),
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "nvme1n1 nvme2n1"),
        ("none", "nvme0n1 nvme1n1 nvme2n1 sda vdb"),
        ("BiggestSize", "nvme1n1 nvme2n1"),
        ("biggestsize&OSDisk:false", "nvme1n1 nvme2n1"),
        ("OsDisk:false & SmallestSize", "vdb"),
        ("SmallestSize", "nvme0n1"),
        ("OSDisk", "nvme0n1"),
        ("OSDisk:true", "nvme0n1"),
        ("OSDisk:false", "nvme1n1 nvme2n1 sda vdb"),
        ("SizeGreaterThan:1000gb", "nvme1n1 nvme2n1 sda"),
        ("SizeGreaterThan:1TB", "nvme1n1 nvme2n1"),
        ("SizeLessThan:600gb", "nvme0n1 vdb"),
        ("SizeEqualTo:995 GB", "sda"),
        ("SizeEqualTo:980gb", ""),
        ("SizeGreaterThan:500gb&SizeLessThan:2tb", "sda vdb"),
        ("DiskPath:/dev/sda", "sda"),
        ("DiskPath:/dev/sda, /dev/nvme2n1,", "nvme2n1 sda"),
        ("DiskPath:/scratch/data", "sda"),
        ("DiskPath:/dev/loop0", "loop0"),
        ("DiskPath:/dev/sdq", ""),
        ("AccessPath:SCRATCH", "sda"),
        ("Logical", "mapper/vg-models"),
        ("IncludeOffline&OSDisk:true", "nvme0n1"),
    ],
)
def test_a_filter_leaves(text: str, names: str) -> None:
    assert [disk.name for disk in filter_disks(DEVICES, text)] == names.split()


def test_no_disk_at_all() -> None:
    assert filter_disks((), "BiggestSize") == ()


@pytest.mark.parametrize(
    ("text", "size"),
    [("100kb", 102400), ("1mb", 2**20), ("1 GiB", 2**30), ("1.5tb", 1.5 * 2**40), ("7", 7), (".5k", 512)],
)
def test_sizes_count_by_1024(text: str, size: float) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["SizeGreaterThan:much", "SizeLessThan:", "OSDisk:perhaps", "BigestSize"])
def test_what_is_wrong_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size|true or false|did you mean biggestsize"):
        parse_disk_filter(text)
