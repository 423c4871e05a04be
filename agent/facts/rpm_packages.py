"""What rpm has installed, and who holds the locks of dnf and zypper."""

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
    "/run/.tdnf-instance-lockfile",
)
"""Files that rpm, dnf 5 and tdnf before 3.6 lock as fcntl(2) has it."""

PID_FILES = (
    "/run/zypp.pid",
    "/var/lib/dnf/rpmdb_lock.pid",
    "/var/cache/dnf/metadata_lock.pid",
    "/var/cache/dnf/download_lock.pid",
    "/run/yum.pid",
    "/run/.tdnf-instance-lockfile",
)
"""Files in which zypper (libzypp, ZYppFactory.cc), dnf 4 (dnf/lock.py), yum and tdnf write who works."""

_FOREIGN = re.compile(r"i[3-6]86|athlon|geode")
"""Architectures that a 64-bit host has besides its own."""

_PROGRAMS = re.compile(r"dnf|yum|zypp|packagekit|y2base|yast", re.IGNORECASE)


@dataclass(frozen=True)
class RpmPackage:
    """A package that rpm has installed.

    Args:
        version: epoch, version and release, such as ``3:27.3.1-1.el9``; empty where another provides it.
    """

    version: str


def rpm_packages(text: str, machine: str = "") -> dict[str, RpmPackage]:
    """Read the answer to ``RPM_QUERY``: by name, by ``name.architecture``, and what they provide.

    A plain name means the host's architecture, as it does to dnf. Of a package that is installed in several
    versions, as kernels are, each is there as ``name-version`` too.

    Args:
        text: lines of name, version, architecture and what it provides.
        machine: the host's architecture (``uname -m``); where it is empty any will do.
    """
    packages: dict[str, RpmPackage] = {}
    virtual: dict[str, RpmPackage] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) < 3:  # noqa: PLR2004 - name, version, architecture
            continue
        name, version, architecture = fields[:3]
        package = RpmPackage(version)
        if name == "gpg-pubkey":  # a key that is trusted, by the end of its fingerprint
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
            if "(" not in provided and "/" not in provided:  # libraries and files are never asked for by name
                virtual[provided] = RpmPackage("")
    return {**virtual, **packages}


def pid_file_holder(files: Mapping[str, str], commands: Mapping[int, str]) -> tuple[int, str] | None:
    """The process that a lock file of zypper, dnf or yum names, if it still is one of these.

    Args:
        files: the texts of ``PID_FILES``, by path; zypper leaves its own behind.
        commands: the command lines of the processes that they name and that run.
    """
    for path, text in files.items():
        match = re.match(r"\s*(\d+)", text)
        if match and _PROGRAMS.search(commands.get(int(match.group(1)), "")):
            return int(match.group(1)), path
    return None
