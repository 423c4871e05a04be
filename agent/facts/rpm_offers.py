"""A driver's packages in dnf's repositories, each version with its origin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.facts.base import Fact, Host
from agent.facts.package_versions import PackageOffer
from agent.facts.packages import PACKAGE_MANAGER
from agent.facts.repositories import RPM_REPOSITORIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NVIDIA_HOST = "developer.download.nvidia.com"
_NAMES = (
    "*nvidia*",
    "cuda-drivers*",
    "nvlsm",
    "kernel*-devel",
    "dkms",
    "epel-release",
    "oracle-epel-release-el*",
)
_FORMAT = "%{name}\t%{epoch}:%{version}-%{release}\t%{arch}\t%{repoid}\n"
"""With the end of the line, which dnf 5 does not add; dnf 4 adds another one."""
_FIELDS = 4
_TIMEOUT_S = 180


def repoquery(text: str | None, origins: Mapping[str, str]) -> tuple[PackageOffer, ...]:
    """Read dnf's output: lines of name, epoch with version and release, architecture, repository.

    Kernel headers have the kernel's release in their name here, as in apt's repositories, so that each
    kernel's headers are a separate package.

    Args:
        text: the lines.
        origins: the publisher of each repository, by its identifier; the identifier itself is the default.
    """
    offers: dict[PackageOffer, None] = {}
    for line in (text or "").splitlines():
        fields = line.split("\t")
        if len(fields) != _FIELDS:
            continue
        name, version, architecture, repository = fields
        if re.fullmatch(r"kernel\S*-devel", name):
            name = f"{name}-{version.partition(':')[2]}.{architecture}"
        offers[PackageOffer(name, version, origins.get(repository, repository))] = None
    return tuple(offers)


def every_stream(repositories: Iterable[str]) -> list[str]:
    """Return options that make dnf offer packages of streams that are not enabled (dnf.conf(5))."""
    return [f"--setopt={name}.module_hotfixes=1" for name in sorted(repositories)]


def _command(machine: str, repositories: Iterable[str]) -> Sequence[str]:
    return [
        "dnf", "--quiet", *every_stream(repositories), "--disableplugin=versionlock", "repoquery",
        f"--arch={machine},noarch", f"--queryformat={_FORMAT}", *_NAMES,
    ]  # fmt: skip


def _read(host: Host) -> tuple[PackageOffer, ...]:
    if PACKAGE_MANAGER.read(host) != "dnf":
        return ()
    hosts = {
        repository.identifier: urlsplit(address).hostname or ""
        for repository in RPM_REPOSITORIES.read(host)
        for address in repository.addresses[:1]
    }
    machine = (host.output(["uname", "-m"]) or "").strip()
    command = _command(machine, (name for name, server in hosts.items() if server == NVIDIA_HOST))
    # dnf waits for its lock; a hang is not absence.
    answer = host.output(command, timeout_s=_TIMEOUT_S, hang_is_error=True)
    return repoquery(answer, {name: server for name, server in hosts.items() if server})


RPM_DRIVER_OFFERS: Fact[tuple[PackageOffer, ...]] = Fact("rpm_driver_offers", "dnf repoquery", _read)
