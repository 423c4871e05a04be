"""The package manager, what it has installed, what it knows, and who holds its lock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host
from agent.facts.rpm_packages import PID_FILES, RPM_LOCKS, RPM_QUERY, pid_file_holder, rpm_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "APT_LISTS_AGE_S",
    "AVAILABLE_PACKAGES",
    "INSTALLED_PACKAGES",
    "PACKAGE_LOCK",
    "PACKAGE_MANAGER",
    "RPM_MANAGERS",
    "InstalledPackage",
    "PackageLock",
    "dpkg_packages",
    "lists_age_s",
    "lock_holder",
]

_MANAGERS = (
    ("apt-get", "apt"),
    ("dnf", "dnf"),
    ("yum", "yum"),
    ("zypper", "zypper"),
    ("tdnf", "tdnf"),
    ("apk", "apk"),
)
RPM_MANAGERS = frozenset({"dnf", "yum", "zypper", "tdnf"})
"""Managers whose packages are in rpm's database."""

_DPKG_QUERY = (
    "dpkg-query",
    "--show",
    "--showformat=${binary:Package}\\t${Version}\\t${db:Status-Abbrev}\\t${Provides}\\n",
)
_LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
    *RPM_LOCKS,
)
_LISTS = "/var/lib/apt/lists"


@dataclass(frozen=True)
class InstalledPackage:
    """A package that dpkg or rpm knows of.

    Args:
        version: its version, with rpm its epoch, version and release; empty for a virtual package that
            another one provides.
        status: dpkg's two letters, wanted and actual state: ``ii`` is installed, ``rc`` was removed and
            left its configuration, ``iF`` is half configured, … (dpkg-query(1)).
    """

    version: str
    status: str = "ii"

    @property
    def installed(self) -> bool:
        """Whether it is there and configured; also when it is held (``hi``)."""
        return self.status[1:2] == "i"

    @property
    def broken(self) -> bool:
        """Whether an installation was cut short: half installed, unpacked, half configured."""
        return self.status[1:2] in ("H", "U", "F", "W", "t")


@dataclass(frozen=True)
class PackageLock:
    """Who holds a lock of the package manager.

    Args:
        pid: the process.
        name: its program, such as ``unattended-upgr``.
        path: the lock.
    """

    pid: int
    name: str
    path: str


def dpkg_packages(text: str) -> dict[str, InstalledPackage]:
    """Read dpkg-query's list: real packages by name, and with ``:architecture``, and virtual ones."""
    packages: dict[str, InstalledPackage] = {}
    virtual: dict[str, InstalledPackage] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) < 3:  # noqa: PLR2004 - name, version, status
            continue
        package = InstalledPackage(version=fields[1], status=fields[2].strip())
        names = {fields[0], fields[0].partition(":")[0]}
        for name in names:
            if name not in packages or package.installed:
                packages[name] = package
        if package.installed:
            provided = re.findall(r"(?:^|,)\s*([^\s,(]+)", fields[3] if len(fields) > 3 else "")  # noqa: PLR2004
            virtual.update(dict.fromkeys(provided, InstalledPackage(version="", status="ii")))
    return {
        **virtual,
        **{name: state for name, state in packages.items() if state.installed or name not in virtual},
    }


def lock_holder(proc_locks: str, inodes: Mapping[str, int], names: Mapping[int, str]) -> PackageLock | None:
    """Who holds one of the files.

    Args:
        proc_locks: the text of ``/proc/locks`` (proc(5)).
        inodes: the lock files and their inodes; the device is not compared, for an overlay shows another.
        names: programs by process number.
    """
    by_inode = {inode: path for path, inode in inodes.items()}
    for line in proc_locks.splitlines():
        match = re.match(r"\d+:\s+\w+\s+\w+\s+WRITE\s+(-?\d+)\s+[0-9a-f]+:[0-9a-f]+:(\d+)\s", line)
        if match and (path := by_inode.get(int(match.group(2)))):
            pid = int(match.group(1))
            return PackageLock(pid, names.get(pid, "a process"), path)
    return None


def lists_age_s(names: Iterable[str], changed: Iterable[int], now: int) -> int | None:
    """Seconds since apt last fetched its lists; None where it has none.

    Args:
        names: what is in /var/lib/apt/lists.
        changed: times of last change of that folder and its ``partial``, in epoch seconds.
        now: the time, likewise.
    """
    if not any("_Packages" in name for name in names):
        return None
    return max(0, now - max(changed, default=0))


def _manager(host: Host) -> str | None:
    folders = [set(host.names(folder)) for folder in ("/usr/bin", "/bin", "/sbin", "/usr/sbin")]
    return next((name for program, name in _MANAGERS if any(program in folder for folder in folders)), None)


def _lock(host: Host) -> PackageLock | None:
    inodes = {}
    for line in (
        host.output(["sh", "-c", f"stat -c '%i %n' {' '.join(_LOCKS)} 2>/dev/null || :"]) or ""
    ).splitlines():
        inode, _, path = line.partition(" ")
        inodes[path] = int(inode)
    locks = host.text("/proc/locks") or ""
    if holder := lock_holder(locks, inodes, {}):
        return PackageLock(holder.pid, _program(host, holder.pid), holder.path)
    files = {path: text for path in PID_FILES if (text := host.text(path))}
    pids = [int(match.group(1)) for text in files.values() if (match := re.match(r"\s*(\d+)", text))]
    named = pid_file_holder(files, {pid: host.text(f"/proc/{pid}/cmdline") or "" for pid in pids})
    return PackageLock(named[0], _program(host, named[0]), named[1]) if named else None


def _program(host: Host, pid: int) -> str:
    return (host.text(f"/proc/{pid}/comm") or "a process").strip()


def _installed(host: Host) -> Mapping[str, InstalledPackage]:
    if _manager(host) in RPM_MANAGERS:
        found = rpm_packages(host.output(RPM_QUERY, timeout_s=60) or "")
        return {name: InstalledPackage(package.version) for name, package in found.items()}
    return dpkg_packages(host.output(_DPKG_QUERY, timeout_s=30) or "")


def _age_s(host: Host) -> int | None:
    changed = (host.output(["stat", "-c", "%Y", _LISTS, f"{_LISTS}/partial"]) or "").split()
    now = (host.output(["date", "+%s"]) or "0").strip()
    return lists_age_s(host.names(_LISTS), map(int, changed), int(now))


PACKAGE_MANAGER: Fact[str | None] = Fact("package_manager", "/usr/bin", _manager)
INSTALLED_PACKAGES: Fact[Mapping[str, InstalledPackage]] = Fact(
    "installed_packages",
    "dpkg-query --show, rpm --query --all",
    _installed,
)
AVAILABLE_PACKAGES: Fact[frozenset[str]] = Fact(
    "available_packages",
    "apt-cache pkgnames",
    lambda host: frozenset((host.output(["apt-cache", "pkgnames"], timeout_s=60) or "").split()),
)
APT_LISTS_AGE_S: Fact[int | None] = Fact("apt_lists_age_s", _LISTS, _age_s)
PACKAGE_LOCK: Fact[PackageLock | None] = Fact("package_lock", "/proc/locks", _lock)
