"""Releases of ROCm on repo.radeon.com, the amdgpu driver of each, and the folders of distributions.

Sources: ROCm/rocm-install-on-linux and ROCm/amdgpu-docs (pages of the package managers, ``conf.py``); the
versions of packages as public logs of installations show them, such as
``amdgpu-dkms 1:6.16.6.30200100-2255209.24.04`` and ``amdgpu-dkms-6.16.6-2255209.el10``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import HostError, LiftedBy

if TYPE_CHECKING:
    from agent.facts.linux import Distribution

RADEON = "https://repo.radeon.com"
ORIGIN = "repo.radeon.com"
KEY_FINGERPRINT = "CA8B B472 7A47 B4D0 9B4E  E896 9386 B48A 1A69 3C5C"
"""AMD's key for repo.radeon.com (also in Azure/AKSFlexNode, which checks it)."""
NEWEST = "7.2.4"
"""The ROCm that is installed if no version is requested."""

_OWN_DRIVER_SINCE = (7, 0)
"""Since then the driver has release numbers of its own; before, its folder was ROCm's version."""
_GRAPHICS_SINCE = (7, 0, 2)
_LAST = (7, 2)
"""Later releases are elsewhere, under other names (ROCm Core SDK)."""

_DRIVERS = {
    "7.0.0": "30.10",
    "7.0.1": "30.10.1",
    "7.0.2": "30.10.2",
    "7.1.0": "30.20",
    "7.1.1": "30.20.1",
    "7.2.0": "30.30",
    "7.2.1": "30.30.2",
    "7.2.3": "30.30.3",
    "7.2.4": "30.30.4",
}
_MODULES = {
    "6.2": "6.8.5",
    "6.3": "6.10.5",
    "6.4": "6.12.12",
    "30.10": "6.14.14",
    "30.20": "6.16.6",
    "30.30": "6.16.13",
}
"""The version of the module amdgpu by the first two numbers of its release."""

_FAILING_KERNELS = {"6.12.12": (6, 14), "6.16.13": (6, 18)}
"""The first kernel that a module does not build for (ROCm/ROCm 5085, 5074, 6193; ROCm/amdgpu 192, 209)."""

_CODENAMES = {
    ("ubuntu", "20.04"): "focal",
    ("ubuntu", "22.04"): "jammy",
    ("ubuntu", "24.04"): "noble",
    ("debian", "12"): "jammy",
    ("debian", "13"): "noble",
}
"""AMD has Ubuntu's folders only, and names for Debian the one to take."""
_FOCAL_UNTIL = (6, 2)
_NOBLE_SINCE = (6, 2)
_RHEL = ("rhel", "rocky", "almalinux", "ol")


@dataclass(frozen=True)
class RocmRelease:
    """One release of ROCm and its driver.

    Args:
        version: three numbers, such as ``7.0.0``.
        driver: the driver's release, such as ``30.10``.
    """

    version: str
    driver: str

    @classmethod
    def of(cls, version: str, driver: str = "") -> RocmRelease:
        """Find a release.

        Args:
            version: such as ``7.0`` or ``7.0.2``.
            driver: the driver's release, where the profile names one.

        Raises:
            HostError: if the release is not on repo.radeon.com, or its driver is not known.
        """
        numbers = _numbers(version)
        if numbers[:2] > _LAST:
            raise HostError(
                f"ROCm {version} has other packages in another repository, which vcagent does not install",
                remedy=f"ask for {NEWEST} or older; or install it as AMD's page says, and take Version out: "
                "vcagent accepts a ROCm that is there",
                lifted_by=LiftedBy.PROGRAM,
            )
        whole = ".".join(map(str, numbers))
        found = driver or (_folder(whole) if numbers[:2] < _OWN_DRIVER_SINCE else _DRIVERS.get(whole, ""))
        if not found:
            raise HostError(
                f"the release of amdgpu for ROCm {version} is not known",
                remedy=f"ask for one of {', '.join(_DRIVERS)}; or give DriverRelease, a folder of "
                f"{RADEON}/amdgpu",
                lifted_by=LiftedBy.NOTHING,
            )
        return cls(whole, found)

    @property
    def folder(self) -> str:
        """The folder's name: ``7.0`` for 7.0.0."""
        return _folder(self.version)

    @property
    def code(self) -> str:
        """The release in the version of each of its packages: ``70002`` for 7.0.2."""
        major, minor, patch = _numbers(self.version)
        return f"{major}{minor:02}{patch:02}"

    @property
    def driver_code(self) -> str:
        """The driver's release in the version of its Debian package: ``30100200`` for 30.10.2."""
        if _numbers(self.driver)[:2] < (30, 0):
            return RocmRelease(".".join(map(str, _numbers(self.driver))), "").code
        major, minor, patch = _numbers(self.driver)
        return f"{major}{minor:02}{patch:02}00"

    @property
    def module(self) -> str:
        """The version of the module amdgpu; empty if unknown."""
        return _MODULES.get(".".join(map(str, _numbers(self.driver)[:2])), "")

    def apt_folders(self, distribution: Distribution) -> dict[str, str]:
        """Return the repositories for apt: addresses below repo.radeon.com by a short name."""
        graphics = _numbers(self.version) >= _GRAPHICS_SINCE
        return (
            {
                "amdgpu": f"amdgpu/{self.driver}/ubuntu",
                "rocm": f"rocm/apt/{self.folder}",
                **({"graphics": f"graphics/{self.folder}/ubuntu"} if graphics else {}),
            }
            if self.codename(distribution)
            else {}
        )

    def codename(self, distribution: Distribution) -> str:
        """Return a distribution's suite in AMD's repositories; empty if AMD has none for it."""
        release = distribution.version
        if distribution.id == "debian":
            release = release.partition(".")[0]
        name, minor = _CODENAMES.get((distribution.id, release), ""), _numbers(self.version)[:2]
        wrong = (name == "focal" and minor > _FOCAL_UNTIL) or (name == "noble" and minor < _NOBLE_SINCE)
        return "" if wrong else name

    def rpm_folders(self, distribution: Distribution) -> dict[str, str]:
        """Return the repositories for dnf; empty if AMD has none for this distribution."""
        major = distribution.version.partition(".")[0]
        if distribution.id not in _RHEL or major not in ("8", "9", "10"):
            return {}
        minor = major if major == "10" else distribution.version
        if major != "10" and not re.fullmatch(r"\d+\.\d+", minor):
            return {}
        graphics = _numbers(self.version) >= _GRAPHICS_SINCE
        return {
            "amdgpu": f"amdgpu/{self.driver}/el/{minor}/main/x86_64",
            "rocm": f"rocm/el{major}/{self.folder}/main",
            **({"graphics": f"graphics/{self.folder}/el/{minor}/main/x86_64"} if graphics else {}),
        }

    def kernel_problem(self, kernel: str) -> str:
        """Return why the module does not build for a kernel; empty if nothing is known against it."""
        first = _FAILING_KERNELS.get(self.module)
        if first is None or _numbers(kernel)[:2] < first:
            return ""
        return (
            f"amdgpu {self.module} of ROCm {self.version} does not build for the kernel {kernel}: "
            f"it needs one before {first[0]}.{first[1]}"
        )


def release_in_file(address: str) -> str:
    """Return the ROCm in the name of AMD's installer package; empty if it names none.

    Args:
        address: such as ``…/amdgpu-install_6.3.60303-1_all.deb``, which is 6.3.3.
    """
    found = re.search(r"amdgpu-install[_-](?:[\d.]*\.)?(\d)(\d\d)(\d\d)-\d", address.rpartition("/")[2])
    return ".".join(str(int(number)) for number in found.groups()) if found else ""


def module_version(package: str) -> str:
    """Return the module's version in that of its package: ``1:6.16.13.30300400-2341068.24.04``."""
    plain = package.partition(":")[2] or package
    return re.sub(r"\.\d{5,}$", "", plain.partition("-")[0])


def version_key(version: str) -> tuple[int, ...]:
    """Return a version as numbers, for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _numbers(version: str) -> tuple[int, int, int]:
    parts = [int(part) for part in re.findall(r"\d+", version)[:3]]
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return major, minor, patch


def _folder(version: str) -> str:
    return version.removesuffix(".0") if version.count(".") == 2 else version  # noqa: PLR2004 - three numbers
