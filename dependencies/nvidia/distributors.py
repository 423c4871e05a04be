"""Drivers that others pack than NVIDIA, Ubuntu and Debian: known by a package, used as they are.

Sources: elrepo/packages; rpmfusion/xorg-x11-drv-nvidia and nvidia-kmod; openSUSE/nvidia-driver-G06 and
nvidia-open-driver-G06; Azure/azhpc-images; negativo17/nvidia-driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts.packages import InstalledPackage

__all__ = ["Distributor", "other_distributor"]

_DISTRIBUTORS = (
    ("ELRepo", r"nvidia-x11-drv(?:-\d+xx)?", "dnf remove 'nvidia-x11-drv*' 'kmod-nvidia*'"),
    ("RPM Fusion", r"xorg-x11-drv-nvidia(?:-\d+xx)?|akmod-nvidia", "dnf remove '*nvidia*'"),
    ("SUSE", r"nvidia-(?:open-)?driver-G0\d.*-kmp.*", "zypper remove 'nvidia-*-G0*'"),
    ("Azure Linux", r"cuda-open(?:-hwe)?|nvidia-vgpu-guest-driver", "tdnf remove cuda-open"),
    (
        "Debian's Tesla packages",
        r"nvidia-tesla-(?:\d+-)?(?:driver|kernel-dkms)",
        "apt-get remove 'nvidia-tesla-*'",
    ),
    ("Debian's legacy packages", r"nvidia-legacy-\d+xx-driver", "apt-get remove 'nvidia-legacy-*'"),
)


@dataclass(frozen=True)
class Distributor:
    """Who packed the driver that is installed.

    Args:
        name: as people call it.
        package: the package that tells.
        removal: the command that removes the driver.
    """

    name: str
    package: str
    removal: str


def other_distributor(installed: Mapping[str, InstalledPackage]) -> Distributor | None:
    """The distributor of the installed driver; None where it is none of those above."""
    for distributor, pattern, removal in _DISTRIBUTORS:
        for name, package in installed.items():
            if package.installed and package.version and re.fullmatch(pattern, name):
                return Distributor(distributor, name, removal)
    return None
