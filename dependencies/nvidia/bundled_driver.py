"""Fetches the driver's packages for hosts whose GPUs are not known yet."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from agent.component.downloads import Download
from agent.core.errors import HostError, LiftedBy
from agent.facts import Facts
from agent.facts.linux import KERNEL
from agent.facts.package_versions import package_offers
from agent.facts.packages import PACKAGE_MANAGER
from dependencies.nvidia.candidates import Candidate, candidates
from dependencies.nvidia.packages import driver_package_names
from dependencies.nvidia.wish import wishes_of_unknown_gpus
from dependencies.packages.bundled_debs import OtherApt
from dependencies.packages.bundled_rpms import OtherDnf
from dependencies.packages.holding import VERSION_LOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component.downloads import Fetching
    from agent.facts.package_versions import PackageOffer
    from dependencies.nvidia.repository import NvidiaRepository
    from dependencies.nvidia.wish import WishParameters


_ROUNDS = 3
"""The most rounds of the search. Each pins packages that would otherwise not get the driver's version."""


def driver_download(
    asked: WishParameters,
    origins: frozenset[str] | None,
    repository: NvidiaRepository | None,
    *,
    hold: bool,
) -> Download:
    """Return the download of a driver: with the open kernel module and with the closed one, as hosts need it.

    Args:
        asked: the profile's settings.
        origins: the accepted origins of its packages; None for any.
        repository: NVIDIA's repository; None to use the distribution's alone.
        hold: whether hosts hold the packages at their version, for which dnf needs a plugin.
    """

    def fetch(fetching: Fetching) -> None:
        if fetching.facts[PACKAGE_MANAGER] == "dnf":
            _fetch_rpms(fetching, asked, origins, repository)
            if hold:
                OtherDnf(fetching).fetch([(VERSION_LOCK, None)], recommends=False)
            return
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


def _fetch_rpms(
    fetching: Fetching,
    asked: WishParameters,
    origins: frozenset[str] | None,
    repository: NvidiaRepository | None,
) -> None:
    dnf = OtherDnf(fetching)
    if repository and (wish := repository.rpm_wish(fetching.facts)):
        dnf.add(wish)
    kernel = str(fetching.facts.given(KERNEL.name) or "")
    for one in chosen_drivers(asked, kernel, dnf.driver_offers(), origins, rpm=True):
        fetching.say(f"driver {one}")
        packages = dict(one.packages)
        for _ in range(_ROUNDS):
            names = [*packages.items(), *((name, None) for name in one.unpinned)]
            loose = one.loose(dnf.solution(names))
            if not loose:
                break
            packages |= loose
        dnf.fetch(names, recommends=False)


def chosen_drivers(
    asked: WishParameters,
    kernel: str,
    offers: Sequence[PackageOffer],
    origins: frozenset[str] | None,
    *,
    rpm: bool = False,
) -> list[Candidate]:
    """Return the best driver for each kind of host: for the open kernel module and for the closed one.

    Args:
        asked: the profile's settings.
        kernel: the kernel of the hosts; empty if it is unknown: then they must have its headers.
        offers: the packages in the repositories.
        origins: the accepted origins; None for any.
        rpm: whether these are rpm packages.

    Raises:
        HostError: if no repository has a driver for any of them.
    """
    found: dict[tuple[str, bool], Candidate] = {}
    faults: list[str] = []
    for is_open, wishes in itertools.groupby(
        wishes_of_unknown_gpus(asked, kernel, rpm=rpm), lambda wish: wish.open_module
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
            remedy="correct LinuxDriverVersion, or give repositories that have it: --repositories FILE",
            lifted_by=LiftedBy.NOTHING,
        )
    return list(found.values())
