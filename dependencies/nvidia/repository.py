"""NVIDIA's CUDA repository for a distribution, added if no repository of the host has the driver.

Source: NVIDIA's Driver Installation Guide, "Network Repository" of each distribution; the keys are those of
NVIDIA/cuda-repo-management, README, "GPG keys".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.bundle import bundle_of
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION
from agent.facts.packages import PACKAGE_MANAGER
from agent.facts.repositories import APT_REPOSITORIES
from dependencies.packages.apt_repository import AptRepositoryWish, deb_architecture
from dependencies.packages.rpm_repository import RpmRepositoryWish
from dependencies.packages.signing_key import SigningKey

if TYPE_CHECKING:
    from agent.component.component import Step
    from agent.facts import Facts
    from agent.facts.linux import Distribution

CUDA_REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}
_RHEL = ("rhel", "rocky", "almalinux", "ol", "centos")
_FEDORA = ("42", "43", "44")
"""NVIDIA's folders; each has packages for one release."""
_KEYS = {"debian13": "8793F200", "rhel10": "CDF6BA43", "fedora43": "1940C73E", "fedora44": "73CD9B30"}
"""The keys of folders that are not signed with the usual key of their format."""
_USUAL_KEYS = {"apt": "3bf863cc", "dnf": "D42D0685"}
_SPLIT_SINCE = 12
"""Since Debian 12 firmware has its own component."""

_FINGERPRINTS = {
    "3bf863cc": "EB69 3B30 35CD 5710 E231  E123 A4B4 6996 3BF8 63CC",
    "8793F200": "0218 2E60 104F CDC2 6EAE  1B85 97A5 D4CB 8793 F200",
    "D42D0685": "610C 7B14 E068 A878 070D  A4E9 9CD0 A493 D42D 0685",
}
"""The known fingerprints; a key without one is trusted as received over HTTPS."""


def repository_folder(distribution: Distribution) -> str:
    """Return the folder of a distribution's packages: ``ubuntu2404``, ``rhel9``; empty if it has none."""
    release = distribution.version.partition(".")[0]
    if distribution.id == "ubuntu" and re.fullmatch(r"2[02468]\.04", distribution.version):
        return f"ubuntu{distribution.version.replace('.', '')}"
    if distribution.id == "debian" and release in ("11", "12", "13"):
        return f"debian{release}"
    if distribution.id in _RHEL and release in ("8", "9", "10"):
        return f"rhel{release}"
    if distribution.id == "fedora" and release in _FEDORA:
        return f"fedora{release}"
    return "amzn2023" if distribution.id == "amzn" and release == "2023" else ""


def debian_components(facts: Facts, lock_timeout_s: float) -> list[Step]:
    """Return the steps that enable Debian's components with the driver; none if enabled, or on other hosts.

    The components are added beside the entry of ``main``, with its address and its key.
    """
    distribution = facts[DISTRIBUTION]
    if distribution.id != "debian" or facts[PACKAGE_MANAGER] != "apt":
        return []
    entries = [one for one in facts[APT_REPOSITORIES] if one.enabled and one.kind == "deb"]
    suites = {distribution.codename, "stable", "oldstable", "testing", "sid", "unstable"}
    main = next((one for one in entries if "main" in one.components and one.suite in suites), None)
    if main is None:
        return []
    release = int(release) if (release := distribution.version.partition(".")[0]).isdigit() else _SPLIT_SINCE
    wanted = ("non-free", "contrib", *(("non-free-firmware",) if release >= _SPLIT_SINCE else ()))
    there = {
        component
        for one in entries
        if one.is_of(main.uri, main.suite, deb_architecture(facts[ARCHITECTURE]))
        for component in one.components
    }
    missing = tuple(component for component in wanted if component not in there)
    if not missing:
        return []
    machine = deb_architecture(facts[ARCHITECTURE])
    wish = AptRepositoryWish("vcagent-debian-non-free", main.uri, main.suite, missing, machine, None)
    return wish.steps(facts, lock_timeout_s)


@dataclass(frozen=True)
class NvidiaRepository:
    """The location of NVIDIA's packages for all distributions.

    Args:
        uri: the address above the distributions' folders.
        key: the signing key; None for NVIDIA's own key.
    """

    uri: str = CUDA_REPOSITORIES
    key: SigningKey | None = None

    def steps(self, facts: Facts, lock_timeout_s: float) -> list[Step]:
        """Return the steps that add the repository and fetch its lists.

        There are none if that is done, or if NVIDIA has no repository for this host.
        """
        folder = repository_folder(facts[DISTRIBUTION])
        machine, manager = facts[ARCHITECTURE], facts[PACKAGE_MANAGER]
        if not folder or machine not in _ARCHITECTURES or manager not in _USUAL_KEYS:
            return []
        if bundle_of(facts):
            return []  # the bundle has the packages
        if wish := self.apt_wish(facts):
            steps = wish.steps(facts, lock_timeout_s)
            return steps or ([] if wish.is_listed(facts) else [wish.refresh_step(facts, lock_timeout_s)])
        rpm = self.rpm_wish(facts)
        release = facts[DISTRIBUTION].version.partition(".")[0]
        return rpm.steps(facts, {"releasever": release, "basearch": machine}) if rpm else []

    def apt_wish(self, facts: Facts) -> AptRepositoryWish | None:
        """Return the repository for a host with apt; None if there is none for the host."""
        folder, machine = repository_folder(facts[DISTRIBUTION]), facts[ARCHITECTURE]
        if facts[PACKAGE_MANAGER] != "apt" or not folder or machine not in _ARCHITECTURES:
            return None
        uri, key = self._address(folder, machine, "apt")
        return AptRepositoryWish("vcagent-nvidia-cuda", uri, "/", (), deb_architecture(machine), key)

    def rpm_wish(self, facts: Facts) -> RpmRepositoryWish | None:
        """Return the repository for a host with dnf; None if there is none for the host."""
        folder, machine = repository_folder(facts[DISTRIBUTION]), facts[ARCHITECTURE]
        if facts[PACKAGE_MANAGER] != "dnf" or not folder or machine not in _ARCHITECTURES:
            return None
        uri, key = self._address(folder, machine, "dnf")
        return RpmRepositoryWish(
            "vcagent-nvidia-cuda",
            uri,
            key,
            signed_packages=True,
            signed_index=False,
            manager="dnf",
            module_hotfixes=True,
        )

    def _address(self, folder: str, machine: str, manager: str) -> tuple[str, SigningKey]:
        """Return the address of a distribution's folder, and its key."""
        uri = f"{self.uri.rstrip('/')}/{folder}/{_ARCHITECTURES[machine]}"
        name = _KEYS.get(folder, _USUAL_KEYS[manager])
        return uri, self.key or SigningKey.of(f"{uri}/{name}.pub", _FINGERPRINTS.get(name, ""))
