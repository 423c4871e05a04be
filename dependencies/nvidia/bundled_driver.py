"""Fetches the driver's packages for hosts whose GPUs are not known yet."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from agent.component.downloads import Download
from agent.core.errors import HostError, LiftedBy
from agent.facts import Facts
from agent.facts.linux import KERNEL
from agent.facts.package_versions import package_offers
from dependencies.nvidia.candidates import Candidate, candidates
from dependencies.nvidia.packages import driver_package_names
from dependencies.nvidia.wish import wishes_of_unknown_gpus
from dependencies.packages.bundled_debs import OtherApt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component.downloads import Fetching
    from agent.facts.package_versions import PackageOffer
    from dependencies.nvidia.repository import NvidiaRepository
    from dependencies.nvidia.wish import WishParameters


def driver_download(
    asked: WishParameters, origins: frozenset[str] | None, repository: NvidiaRepository | None
) -> Download:
    """Return the download of a driver: with the open kernel module and with the closed one, as hosts need it.

    Args:
        asked: the profile's settings.
        origins: the accepted origins of its packages; None for any.
        repository: NVIDIA's repository; None to use the distribution's alone.
    """

    def fetch(fetching: Fetching) -> None:
        apt = OtherApt(fetching)
        if repository and (wish := repository.apt_wish(fetching.facts)):
            apt.add(wish)
        kernel = str(fetching.facts.given(KERNEL.name) or "")
        offers = Facts(apt.host)[package_offers("nvidia", driver_package_names(kernel))]
        found = chosen_drivers(asked, kernel, offers, origins)
        for one in found:
            fetching.say(f"driver {one}")
            names = [f"{name}={version}" for name, version in one.packages.items()]
            apt.fetch([*names, *one.unpinned], recommends=False, pins=one.pins)

    return Download("driver", (asked.driver or "newest",), fetch)


def chosen_drivers(
    asked: WishParameters, kernel: str, offers: Sequence[PackageOffer], origins: frozenset[str] | None
) -> list[Candidate]:
    """Return the best driver for each kind of host: for the open kernel module and for the closed one.

    Args:
        asked: the profile's settings.
        kernel: the kernel of the hosts; empty if it is unknown: then they must have its headers.
        offers: the packages in the repositories.
        origins: the accepted origins; None for any.

    Raises:
        HostError: if no repository has a driver for any of them.
    """
    found: dict[tuple[str, bool], Candidate] = {}
    faults: list[str] = []
    for is_open, wishes in itertools.groupby(
        wishes_of_unknown_gpus(asked, kernel), lambda wish: wish.open_module
    ):
        for wish in wishes:
            offered = candidates(wish, offers, origins=origins)
            faults += [str(one) for one in offered if one.problems]
            if whole := next((one for one in offered if not one.problems), None):
                found[whole.version, bool(is_open)] = whole
                break
    if not found:
        raise HostError(
            f"no repository has the driver {asked.driver or 'of any version'} as a whole",
            details=tuple(f"not {line}" for line in dict.fromkeys(faults))[:8],
            remedy="correct LinuxDriverVersion, or give repositories that have it: --apt-sources FILE",
            lifted_by=LiftedBy.NOTHING,
        )
    return list(found.values())
