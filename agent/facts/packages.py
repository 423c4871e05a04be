"""The package manager, its installed packages, the names that it knows, and the holder of its lock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host
from agent.facts.rpm_packages import PID_FILES, RPM_LOCKS, RPM_QUERY, pid_file_holder, rpm_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    "--showformat=${Package}\\t${Architecture}\\t${Version}\\t${db:Status-Abbrev}\\t${Provides}\\n",
)
_LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
    *RPM_LOCKS,
)
_LISTS = "/var/lib/apt/lists"
_DNF = "/usr/bin/dnf"
_QUERY_TIMEOUT_S = 60


@dataclass(frozen=True)
class InstalledPackage:
    """A package in dpkg's or rpm's database.

    Args:
        version: its version, with rpm its epoch, version and release; empty for a virtual package that
            another one provides.
        status: dpkg's two letters, wanted and actual state: ``ii`` is installed, ``rc`` was removed and
            left its configuration, ``iF`` is half configured, … (dpkg-query(1)).
        architecture: dpkg's name of it, such as ``amd64`` or ``all``; empty for a virtual package, and
            with rpm.
    """

    version: str
    status: str = "ii"
    architecture: str = ""

    @property
    def installed(self) -> bool:
        """True if it is installed and configured, even if it is held (``hi``)."""
        return self.status[1:2] == "i"

    @property
    def broken(self) -> bool:
        """True after an interrupted installation: half installed, unpacked, half configured."""
        return self.status[1:2] in ("H", "U", "F", "W", "t")


@dataclass(frozen=True)
class PackageLock:
    """The process that holds a lock of the package manager.

    Args:
        pid: the process.
        name: its program, such as ``unattended-upgr``.
        path: the lock.
    """

    pid: int
    name: str
    path: str


def dpkg_packages(text: str, native: str = "") -> dict[str, InstalledPackage]:
    """Read dpkg-query's list: real and virtual packages by name.

    A plain name means the host's architecture or ``all``, as in apt; a package of that kind is listed under
    its name, and also under ``name:architecture`` like every other package.

    Args:
        text: lines of name, architecture, version, state and provided names.
        native: the host's architecture (``dpkg --print-architecture``); if empty, any architecture.
    """
    packages: dict[str, InstalledPackage] = {}
    virtual: dict[str, InstalledPackage] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) < 4:  # noqa: PLR2004 - name, architecture, version, status
            continue
        name, architecture, version, status, provides = (*fields, "")[:5]
        package = InstalledPackage(version, status.strip(), architecture)
        own = native if architecture == "all" and native else architecture
        suffixes = (f":{own}", "") if own == native or not native else (f":{own}",)
        packages.update({name + suffix: package for suffix in suffixes})
        if package.installed:
            for provided in re.findall(r"(?:^|,)\s*([^\s,(]+)", provides):
                virtual.update({provided + suffix: InstalledPackage("", "ii") for suffix in suffixes})
    return {
        **virtual,
        **{name: state for name, state in packages.items() if state.installed or name not in virtual},
    }


def installed_as(name: str, packages: Mapping[str, InstalledPackage]) -> InstalledPackage | None:
    """Return apt's package of a name, plain or with ``:architecture``, ``:native``, ``:all``, ``:any``.

    Names of rpm, plain or with ``.architecture``, are used unchanged.
    """
    plain, _, architecture = name.partition(":")
    if architecture == "native":
        return packages.get(plain)
    if architecture == "all":
        package = packages.get(plain)
        return package if package and package.architecture == "all" else None
    if architecture == "any":
        found = [state for known, state in packages.items() if known.partition(":")[0] == plain]
        return next((package for package in found if package.installed), found[0] if found else None)
    return packages.get(name)


def lists_age_s(names: Iterable[str], changed: Iterable[int], now: int) -> int | None:
    """Return the seconds since apt last fetched its lists, or None if it has none.

    Args:
        names: the names in /var/lib/apt/lists.
        changed: times of last change of that folder and its ``partial``, in epoch seconds.
        now: the current time, in epoch seconds.
    """
    if not any("_Packages" in name for name in names):
        return None
    return max(0, now - max(changed, default=0))


def _manager(host: Host) -> str | None:
    folders = [set(host.names(folder)) for folder in ("/usr/bin", "/bin", "/sbin", "/usr/sbin")]
    return next((name for program, name in _MANAGERS if any(program in folder for folder in folders)), None)


def _dnf_5(host: Host) -> bool:
    if _manager(host) != "dnf":  # a host of Debian may have it
        return False
    # dnf is a link to dnf5 or dnf-3; its own answer takes a third of a second.
    return (host.output(["readlink", "-f", _DNF]) or "").strip().endswith("/dnf5")


def _lock(host: Host) -> PackageLock | None:
    for path in _LOCKS:
        if (pid := host.lock_holder(path)) is not None:
            return PackageLock(pid, _program(host, pid), path)
    files = {path: text for path in PID_FILES if (text := host.text(path))}
    pids = [int(match.group(1)) for text in files.values() if (match := re.match(r"\s*(\d+)", text))]
    named = pid_file_holder(files, {pid: host.text(f"/proc/{pid}/cmdline") or "" for pid in pids})
    return PackageLock(named[0], _program(host, named[0]), named[1]) if named else None


def _program(host: Host, pid: int) -> str:
    return (host.text(f"/proc/{pid}/comm") or "").strip() or "a process"


def _installed(host: Host) -> Mapping[str, InstalledPackage]:
    # A hang is not absence: otherwise all installed packages would be installed again.
    if _manager(host) in RPM_MANAGERS:
        machine = (host.output(["uname", "-m"]) or "").strip()
        found = rpm_packages(
            host.output(RPM_QUERY, timeout_s=_QUERY_TIMEOUT_S, hang_is_error=True) or "", machine
        )
        return {name: InstalledPackage(package.version) for name, package in found.items()}
    native = (host.output(["dpkg", "--print-architecture"]) or "").strip()
    return dpkg_packages(
        host.output(_DPKG_QUERY, timeout_s=_QUERY_TIMEOUT_S, hang_is_error=True) or "", native
    )


def apt_names(start: str) -> Fact[frozenset[str]]:
    """Return the fact of the names that apt knows, virtual ones included; apt may read others as patterns."""
    command = ["apt-cache", "--all-names", "pkgnames", start]
    return Fact(
        f"apt_names[{start}]",
        " ".join(command),
        lambda host: frozenset((host.output(command, timeout_s=60) or "").split()),
    )


def _age_s(host: Host) -> int | None:
    changed = (host.output(["stat", "-c", "%Y", _LISTS, f"{_LISTS}/partial"]) or "").split()
    now = (host.output(["date", "+%s"]) or "0").strip()
    return lists_age_s(host.names(_LISTS), map(int, changed), int(now))


PACKAGE_MANAGER: Fact[str | None] = Fact("package_manager", "/usr/bin", _manager)
DNF_5: Fact[bool] = Fact("dnf_5", f"readlink -f {_DNF}", _dnf_5)
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
PACKAGE_LOCK: Fact[PackageLock | None] = Fact(
    "package_lock", "fcntl(2), F_GETLK; lock files of dnf, zypper and yum", _lock
)
