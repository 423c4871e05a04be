from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agent.facts import Facts, file_locks
from agent.facts.file_locks import posix_writer, record_lock_holder
from agent.facts.packages import (
    PACKAGE_LOCK,
    InstalledPackage,
    PackageLock,
    dpkg_packages,
    installed_as,
    lists_age_s,
)
from tests.agent.facts.recorded_host import RecordedHost

if TYPE_CHECKING:
    from pathlib import Path

DPKG = """\
bash\tamd64\t5.2\tii \t
apache2\tamd64\t2.4\trc \t
libc6\tamd64\t2.36\tii \tlibc6-2.36
libc6\ti386\t2.35\trc \t
docker.io\tamd64\t20\tiF \t
linux-image\tamd64\t6.1\thi \t
mawk\tamd64\t1.3\tii \tawk, editor (= 1)
awk\tamd64\t\tun \t
adduser\tall\t3.1\tii \t
libgomp1\ti386\t12\tii \tlibgomp
"""


def test_dpkg_states() -> None:
    packages = dpkg_packages(DPKG, "amd64")
    installed = {name for name, package in packages.items() if package.installed and ":" not in name}
    assert installed == {"bash", "libc6", "libc6-2.36", "linux-image", "mawk", "awk", "editor", "adduser"}
    assert packages["libc6"] == InstalledPackage("2.36", "ii", "amd64")
    assert packages["docker.io"].broken
    assert not packages["apache2"].broken


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("bash", "5.2"),
        ("bash:amd64", "5.2"),
        ("bash:any", "5.2"),
        ("bash:native", "5.2"),
        ("bash:i386", None),
        ("bash:all", None),
        ("adduser:amd64", "3.1"),
        ("adduser:all", "3.1"),
        ("adduser:any", "3.1"),
        ("libgomp1", None),
        ("libgomp1:amd64", None),
        ("libgomp1:native", None),
        ("libgomp1:i386", "12"),
        ("libgomp1:any", "12"),
        ("libgomp", None),
        ("libgomp:i386", ""),
        ("none:any", None),
    ],
)
def test_a_plain_name_is_of_this_architecture(name: str, version: str | None) -> None:
    package = installed_as(name, dpkg_packages(DPKG, "amd64"))
    assert (package and package.version) == version


def test_where_the_architecture_is_not_known_any_will_do() -> None:
    assert dpkg_packages(DPKG)["libgomp1"].installed


def test_a_lock_is_told_by_device_and_inode_and_kind() -> None:
    locks = (
        "1: FLOCK  ADVISORY  WRITE 11 fe:00:4242 0 EOF\n"
        "2: POSIX  ADVISORY  READ 12 fe:00:4242 0 EOF\n"
        "3: POSIX  ADVISORY  WRITE 4242 00:2f:777 0 EOF\n"
        "4: POSIX  ADVISORY  WRITE 4711 fe:00:777 0 EOF\n"
        "4: -> POSIX  ADVISORY  WRITE 9 fe:00:4242 0 EOF\n"
    )
    assert posix_writer(locks, os.makedev(0xFE, 0), 777) == 4711
    assert posix_writer(locks, os.makedev(0xFE, 1), 777) is None
    assert posix_writer(locks, os.makedev(0xFE, 0), 4242) is None


def test_the_holder_of_a_package_lock_has_a_name() -> None:
    lock = "/var/lib/dpkg/lock-frontend"
    host = RecordedHost({"/proc/4711/comm": "apt-get\n"}, locks={lock: 4711})
    assert Facts(host)[PACKAGE_LOCK] == PackageLock(4711, "apt-get", lock)
    assert Facts(RecordedHost())[PACKAGE_LOCK] is None


@pytest.mark.parametrize(
    ("names", "changed", "age"),
    [
        (["deb.debian.org_dists_x_main_binary-amd64_Packages", "lock"], [100, 900], 100),
        (["x_Packages.lz4"], [2000], 0),
        (["lock", "partial"], [900], None),
        ([], [], None),
    ],
)
def test_age_of_apt_lists(names: list[str], changed: list[int], age: int | None) -> None:
    assert lists_age_s(names, changed, 1000) == age


LOCKER = """
import fcntl, sys
with open(sys.argv[2], "r+") as file:
    getattr(fcntl, sys.argv[1])(file, fcntl.LOCK_EX)
    print(flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("kind", "counts"), [("lockf", True), ("flock", False)])
def test_the_lock_of_another_process_is_seen(tmp_path: Path, kind: str, counts: bool) -> None:  # noqa: FBT001
    lock, link = tmp_path / "lock", tmp_path / "link"
    lock.touch()
    link.symlink_to(lock)
    assert record_lock_holder(str(lock)) is None
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, kind, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        assert record_lock_holder(str(lock)) == (process.pid if counts else None)
        told = file_locks._told_by_proc(str(lock))
        assert told in ((process.pid, None) if counts else (None,)), "an overlay shows another device"
        assert record_lock_holder(str(link)) is None
        process.kill()
    assert record_lock_holder(str(lock)) is None
    assert record_lock_holder(str(tmp_path / "none")) is None
