"""The origins of the packages that a GPU host depends on: driver, CUDA, Docker, container toolkit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host
from agent.facts.package_versions import package_offers
from agent.facts.packages import INSTALLED_PACKAGES, PACKAGE_MANAGER, RPM_MANAGERS

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATTERN = (
    r"(?:lib|kmod-)?nvidia-.*|libcuda1|nvlsm|cuda-.*|docker.*|moby-.*|containerd.*|linux-modules-nvidia-.*"
)
_FROM = "%{name}\t%{from_repo}\n"
"""With the end of the line, which dnf 5 does not add."""


def _read(host: Host) -> Mapping[str, str | None]:
    installed = {
        name: package.version
        for name, package in INSTALLED_PACKAGES.read(host).items()
        if package.installed and package.version and re.fullmatch(_PATTERN, name) and ":" not in name
    }
    if not installed:
        return {}
    if PACKAGE_MANAGER.read(host) in RPM_MANAGERS:
        command = ["dnf", "--quiet", "--cacheonly", "repoquery", "--installed", f"--queryformat={_FROM}"]
        lines = (line.split("\t") for line in (host.output(command, timeout_s=60) or "").splitlines())
        told = {fields[0]: fields[-1] for fields in lines}
        return {name: told.get(name) or None for name in installed if name in told}
    offers = package_offers("installed", "|".join(map(re.escape, installed))).read(host)
    told = {offer.name: offer.origin for offer in offers if installed[offer.name] == offer.version}
    return {name: told.get(name) for name in sorted(installed)}


PACKAGE_ORIGINS: Fact[Mapping[str, str | None]] = Fact(
    "package_origins", "apt-cache madison and policy, dnf repoquery --installed", _read
)
"""Origins by package; None if no repository of the host has that version any more."""
