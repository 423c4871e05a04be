"""A driver's packages in dnf's repositories, each version with its origin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.facts.base import Fact, Host
from agent.facts.bundle import bundle_of
from agent.facts.package_versions import PackageOffer
from agent.facts.packages import PACKAGE_MANAGER
from agent.facts.repositories import RPM_REPOSITORIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.facts.base import Facts
    from agent.facts.repositories import RpmRepository

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


def publishers(repositories: Iterable[RpmRepository]) -> dict[str, str]:
    """Return the server of each repository that has one, by its identifier."""
    return {
        repository.identifier: server
        for repository in repositories
        for address in repository.addresses[:1]
        if (server := urlsplit(address).hostname)
    }


def driver_query(machine: str, servers: Mapping[str, str], options: Sequence[str] = ()) -> list[str]:
    """Return the dnf command that lists a driver's packages.

    Args:
        machine: the architecture.
        servers: the repositories' servers, from ``publishers``.
        options: options with which dnf knows other repositories than the host's.
    """
    ours = (name for name, server in servers.items() if server == NVIDIA_HOST)
    return [
        "dnf", *options, "--quiet", *every_stream(ours), "--disableplugin=versionlock", "repoquery",
        f"--arch={machine},noarch", f"--queryformat={_FORMAT}", *_NAMES,
    ]  # fmt: skip


def _read(host: Host, options: Sequence[str] = ()) -> tuple[PackageOffer, ...]:
    if PACKAGE_MANAGER.read(host) != "dnf":
        return ()
    servers = publishers(RPM_REPOSITORIES.read(host))
    machine = (host.output(["uname", "-m"]) or "").strip()
    # dnf waits for its lock; a hang is not absence.
    command = driver_query(machine, servers, options)
    return repoquery(host.output(command, timeout_s=_TIMEOUT_S, hang_is_error=True), servers)


RPM_DRIVER_OFFERS: Fact[tuple[PackageOffer, ...]] = Fact("rpm_driver_offers", "dnf repoquery", _read)


def rpm_driver_offers(facts: Facts) -> tuple[PackageOffer, ...]:
    """Return a driver's packages in the repositories of a host; with a bundle, those in the bundle."""
    bundle = bundle_of(facts)
    if bundle is None:
        return facts[RPM_DRIVER_OFFERS]
    options = bundle.dnf_options
    return facts[Fact("rpm_driver_offers_of_bundle", "dnf repoquery", lambda host: _read(host, options))]
