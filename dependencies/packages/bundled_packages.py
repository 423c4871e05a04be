"""Packages in a bundle, for the package manager of its hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.component.downloads import Download, not_carried
from dependencies.packages.apt_repository import AptRepositoryWish
from dependencies.packages.bundled_debs import deb_downloads
from dependencies.packages.bundled_rpms import rpm_downloads
from dependencies.packages.rpm_repository import RpmRepositoryWish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dependencies.packages.package_managers import PackageWish


def package_downloads(
    manager: str | None,
    wishes: Sequence[PackageWish],
    *,
    recommends: bool = False,
    repository: AptRepositoryWish | RpmRepositoryWish | None = None,
) -> tuple[Download, ...]:
    """Return the download of packages with everything that they need; none without packages.

    Args:
        manager: the package manager of the hosts.
        wishes: the packages.
        recommends: whether recommended packages are installed, too.
        repository: a repository that the profile adds first.

    Raises:
        HostError: if bundles do not support the package manager.
    """
    if not wishes:
        return ()
    if manager == "apt" and not isinstance(repository, RpmRepositoryWish):
        return deb_downloads(wishes, recommends=recommends, repository=repository)
    if manager == "dnf" and not isinstance(repository, AptRepositoryWish):
        return rpm_downloads(wishes, recommends=recommends, repository=repository)
    raise not_carried(f"packages of {manager}")
