"""unattended-upgrades: whether it is active, and the packages that it excludes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class UnattendedUpgrades:
    """Packages that apt's daily timer may upgrade.

    Args:
        enabled: True if it upgrades anything.
        excluded: regular expressions of packages that it excludes; each matches from the name's start.
    """

    enabled: bool
    excluded: tuple[str, ...] = ()

    def leaves_alone(self, packages: Iterable[str]) -> bool:
        """Return True if it would not upgrade any of the packages."""
        return not self.enabled or all(
            any(_matches(pattern, package) for pattern in self.excluded) for package in packages
        )


def _matches(pattern: str, package: str) -> bool:
    try:
        return re.match(pattern, package) is not None
    except re.error:
        return pattern == package


def apt_config(text: str | None) -> UnattendedUpgrades:
    """Read ``apt-config dump``: the interval in days (0 is never), and the list of exclusions."""
    values = re.findall(r'^([\w:.-]+) "(.*)";$', text or "", re.MULTILINE)
    interval = next((value for name, value in values if name == "APT::Periodic::Unattended-Upgrade"), "0")
    excluded = tuple(
        value for name, value in values if name == "Unattended-Upgrade::Package-Blacklist::" and value
    )
    return UnattendedUpgrades(interval not in ("", "0"), excluded)


def _read(host: Host) -> UnattendedUpgrades:
    told = apt_config(host.output(["apt-config", "dump"]))
    installed = "unattended-upgrade" in host.names("/usr/bin")
    return UnattendedUpgrades(told.enabled and installed, told.excluded)


UNATTENDED_UPGRADES: Fact[UnattendedUpgrades] = Fact("unattended_upgrades", "apt-config dump", _read)
