"""Packages installed by rpm, and holders of the locks of dnf and zypper."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

RPM_QUERY = (
    "rpm",
    "--query",
    "--all",
    "--queryformat",
    "%{NAME}\\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\\t%{ARCH}\\t[%{PROVIDENAME} ]\\n",
)

RPM_LOCKS = (
    "/var/lib/rpm/.rpm.lock",
    "/usr/lib/sysimage/rpm/.rpm.lock",
    "/run/dnf/rpmtransaction.lock",
    "/var/lib/dnf/system-repo.lock",
    "/run/.tdnf-instance-lockfile",
)
"""Files that rpm, dnf 5 and tdnf before 3.6 lock with fcntl(2)."""

PID_FILES = (
    "/run/zypp.pid",
    "/var/lib/dnf/rpmdb_lock.pid",
    "/var/cache/dnf/metadata_lock.pid",
    "/var/cache/dnf/download_lock.pid",
    "/run/yum.pid",
    "/run/.tdnf-instance-lockfile",
)
"""Files in which zypper (libzypp, ZYppFactory.cc), dnf 4 (dnf/lock.py), yum and tdnf write their process."""

_FOREIGN = re.compile(r"i[3-6]86|athlon|geode")
"""Additional architectures of a 64-bit host."""

_PROGRAMS = re.compile(r"dnf|yum|zypp|packagekit|y2base|yast", re.IGNORECASE)


@dataclass(frozen=True)
class RpmPackage:
    """A package installed by rpm.

    Args:
        version: epoch, version and release, such as ``3:27.3.1-1.el9``; empty if another package provides it.
    """

    version: str


def rpm_packages(text: str, machine: str = "") -> dict[str, RpmPackage]:
    """Read the output of ``RPM_QUERY``: by name, by ``name.architecture``, and by provided names.

    A plain name means the host's architecture, as in dnf. If a package is installed in several versions, as
    kernels are, each is also listed as ``name-version``.

    Args:
        text: lines of name, version, architecture and provided names.
        machine: the host's architecture (``uname -m``); if empty, any architecture.
    """
    packages: dict[str, RpmPackage] = {}
    virtual: dict[str, RpmPackage] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) < 3:  # noqa: PLR2004 - name, version, architecture
            continue
        name, version, architecture = fields[:3]
        package = RpmPackage(version)
        if name == "gpg-pubkey":  # a trusted key, named by the end of its fingerprint
            packages[f"{name}-{version.partition('-')[0]}"] = package
            continue
        packages[f"{name}.{architecture}"] = package
        if machine == "x86_64" and _FOREIGN.fullmatch(architecture):
            continue
        if name in packages:
            for one in (packages[name], package):
                packages[f"{name}-{one.version}"] = one
        packages[name] = package
        for provided in " ".join(fields[3:]).split():
            if "(" not in provided and "/" not in provided:  # libraries and files are never requested by name
                virtual[provided] = RpmPackage("")
    return {**virtual, **packages}


def pid_file_holder(files: Mapping[str, str], commands: Mapping[int, str]) -> tuple[int, str] | None:
    """Return the process in a lock file of zypper, dnf or yum, if it still is one of these programs.

    Args:
        files: the texts of ``PID_FILES``, by path; zypper does not remove its own.
        commands: the command lines of the running processes that they name.
    """
    for path, text in files.items():
        match = re.match(r"\s*(\d+)", text)
        if match and _PROGRAMS.search(commands.get(int(match.group(1)), "")):
            return int(match.group(1)), path
    return None
