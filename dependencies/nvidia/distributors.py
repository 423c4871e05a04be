"""Recognises drivers that others than NVIDIA, Ubuntu and Debian package; they are used as they are.

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

_BY_HAND = (
    (
        r"sles|sled|opensuse.*|suse",
        (
            "zypper install nvidia-open-driver-G06-signed-cuda-kmp-default, then nvidia-compute-utils-G06 of "
            "the version that rpm -q prints for it up to the first _"
        ),
    ),
    (r"azurelinux|mariner", "tdnf install cuda-open, which holds driver and signed modules for the kernel"),
    (
        r"fedora",
        (
            "use Fedora 42 to 44, for which NVIDIA has a repository; or add the repository that your release "
            "has by now (dnf config-manager addrepo), then dnf install kernel-devel-matched nvidia-open"
        ),
    ),
    (r"amzn", "move to Amazon Linux 2023, or take an image with the driver"),
    (
        r"ubuntu",
        "use an LTS release, whose packages NVIDIA and Ubuntu keep; or ubuntu-drivers install --gpgpu",
    ),
)
"""Source: NVIDIA's Driver Installation Guide; Azure/azhpc-images; openSUSE/nvidia-open-driver-G06."""

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
    """The distributor of the installed driver.

    Args:
        name: the distributor's usual name.
        package: the package that identifies the distributor.
        removal: the command that removes the driver.
    """

    name: str
    package: str
    removal: str


def by_hand(identifier: str) -> str:
    """Return how to install a driver on a distribution that vcagent does not support."""
    guide = "install it as NVIDIA's Driver Installation Guide says"
    return next((told for pattern, told in _BY_HAND if re.fullmatch(pattern, identifier)), guide)


def other_distributor(installed: Mapping[str, InstalledPackage]) -> Distributor | None:
    """Return the distributor of the installed driver; None if it is none of the above."""
    for distributor, pattern, removal in _DISTRIBUTORS:
        for name, package in installed.items():
            if package.installed and package.version and re.fullmatch(pattern, name):
                return Distributor(distributor, name, removal)
    return None
