"""Why no offered driver is taken: every sentence of the refusals, and what the package manager solves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import HostError
from agent.facts.package_solutions import PackageSolution
from dependencies.nvidia.driver import DriverWish
from dependencies.nvidia.driver_packages import DriverPackages
from tests.dependencies.nvidia.test_nvidia_driver_steps import facts

if TYPE_CHECKING:
    from agent.facts import Facts

ROOT = Path("/host")
KERNEL = "6.8.0-1021-azure"
OFFERS = "package_offers[nvidia]"
NEW, NEXT = "550.163.01-0ubuntu0.22.04.2", "570.86.15-0ubuntu0.22.04.1"
HAS, HEADERS = f"server {NEW} Ubuntu", f"linux-headers-{KERNEL} 6.8.0-1021.25 Ubuntu"
CLOSED = "550.163.01 from Ubuntu (server packages, closed kernel module)"
NO_MANAGER = f"not {CLOSED}: no fabric manager 550.163.01"
REPOSITORIES = "; NVIDIA's repository has more versions than the distribution's"
ASK = "ask for one that is whole, such as {}; or add the repository that has it"
POLICY = f"see apt-cache policy{REPOSITORIES}"
DEBIAN = {
    "distribution": {"id": "debian", "version": "12", "codename": "bookworm", "name": "Debian 12"},
    "apt_repositories": {"debian.list": "deb http://deb.debian.org/debian bookworm main"},
    "keyring[/etc/apt/keyrings/vcagent-debian-non-free.gpg]": None,
}
GUARDED = {"why_prebuilt": "Secure Boot is on"}


def asked(version: str = "550", **more: Any) -> DriverWish:
    return DriverWish(version, KERNEL, **{"open_module": False, **more})


def case(
    remedy: str,
    *details: str,
    what: str = "no repository has driver 550 as a whole for this host",
    offers: tuple[str, ...] = (),
    settings: dict[str, Any] | None = None,
    host: dict[str, Any] | None = None,
    **wish: Any,
) -> tuple[DriverPackages, Facts, tuple[str, str, tuple[str, ...]]]:
    there = facts("fresh", ROOT, **{OFFERS: [*offers], **(host or {})})
    return DriverPackages(asked(**wish), **(settings or {})), there, (what, remedy, details)


REFUSED = {
    "nothing is offered": case(
        POLICY, what="no repository has a driver as a whole for this host", version=""
    ),
    "nothing is offered to dnf": case(
        f"see dnf --showduplicates list 'nvidia-driver*'{REPOSITORIES}", rpm=True
    ),
    "of some origins": case(
        POLICY,
        what="no repository of a, b has driver 550 as a whole for this host",
        offers=(HAS,),
        settings={"origins": frozenset({"b", "a"})},
    ),
    "only another branch is whole": case(
        ASK.format("570.86.15"),
        NO_MANAGER,
        "whole: 570.86.15 from Ubuntu (server packages, closed kernel module)",
        offers=(HAS, f"server {NEXT} Ubuntu", f"nvidia-fabricmanager-570 {NEXT} Ubuntu"),
        fabric_manager=True,
    ),
    "with Debian's components": case(POLICY, settings={"non_free": True}, host=DEBIAN),
    "without Debian's components": case(
        "give NonFree=true: Debian has the driver in contrib and non-free, which are not enabled", host=DEBIAN
    ),
    "another branch is whole on Debian": case(
        ASK.format("550.163.01"),
        f"whole: {CLOSED}",
        what="no repository has driver 535 as a whole for this host",
        offers=(HAS,),
        host=DEBIAN,
        version="535",
    ),
    "no headers": case(
        f"install the headers of the kernel {KERNEL}, or boot one whose headers are offered",
        f"not {CLOSED}: no headers of the kernel {KERNEL} to build its module with",
        what=f"driver 550 needs the headers of the kernel {KERNEL}, which no repository has",
        offers=(HAS,),
        headers=False,
    ),
    "headers are offered": case(
        POLICY, NO_MANAGER, offers=(HAS, HEADERS), headers=False, fabric_manager=True
    ),
    "no signed module": case(
        "Secure Boot is on: enrol a key (update-secureboot-policy --enroll-key), or turn Secure Boot off",
        settings=GUARDED,
        prebuilt=True,
    ),
    "no signed module for dnf": case(
        "Secure Boot is on: enrol a key (mokutil --import /var/lib/dkms/mok.pub), or turn Secure Boot off",
        settings=GUARDED,
        prebuilt=True,
        rpm=True,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    packages, host, expected = REFUSED[name]
    error = packages.refusal(host)
    assert (error.message, error.remedy, error.details) == expected


def unsolved(host: Facts, packages: DriverPackages, *problem: str) -> Facts:
    """Model a package manager that finds no solution for any candidate."""
    for candidate in packages._candidates(host, replace(packages.wish, version="")):
        host._modelled[packages._solution(host, candidate).name] = PackageSolution(problem=problem)
    return host


@pytest.mark.parametrize(
    ("lines", "remedy"),
    [
        (
            ("E: Unable to locate package nvidia-x", "a strange line"),
            "no repository of this host has nvidia-x; correct its name or add its repository",
        ),
        (
            ("a strange line",),
            f"see above what the package manager lacks; {POLICY}",
        ),
    ],
)
def test_a_driver_that_the_package_manager_cannot_install(lines: tuple[str, ...], remedy: str) -> None:
    packages = DriverPackages(asked())
    host = unsolved(facts("fresh", ROOT, **{OFFERS: [HAS, HEADERS]}), packages, *lines)
    error = packages.refusal(host)
    assert (error.remedy, error.details) == (remedy, (f"not {CLOSED}: {'; '.join(lines)}",))
    assert packages.chosen(host) is None


def test_a_refusal_shows_eight_of_each_kind() -> None:
    offers = [f"libnvidia-compute-550-server 550.{number}.1-1 Ubuntu" for number in range(20)]
    offers += [f"server 570.{number}.1-1 Ubuntu" for number in range(20)]
    error = DriverPackages(asked()).refusal(facts("fresh", ROOT, **{OFFERS: offers}))
    assert [line.partition(" from")[0] for line in error.details] == [
        *(f"not 550.{number}.1" for number in range(19, 11, -1)),
        *(f"whole: 570.{number}.1" for number in range(19, 11, -1)),
    ]


def test_half_installed_packages_are_no_reason_for_a_refusal() -> None:
    """Take the candidate as it is: apt finds no solution before the repair."""
    packages = DriverPackages(asked())
    broken = {"somebody-s-tool": ["1", "iU"]}
    host = facts("fresh", ROOT, installed_packages=broken, **{OFFERS: [HAS, HEADERS]})
    chosen = packages.chosen(unsolved(host, packages, "E: unmet dependencies"))
    assert chosen
    assert (chosen.version, chosen.problems) == ("550.163.01", ())


def test_the_fifth_candidate_is_not_tried() -> None:
    packages = DriverPackages(asked())
    host = facts("fresh", ROOT, **{OFFERS: [f"server 550.{number}.1-1 Ubuntu" for number in range(6)]})
    first, *_, fifth, _ = packages._candidates(host, packages.wish)
    host._modelled |= {
        packages._solution(host, one).name: PackageSolution(problem=("E: no",))
        for one in packages._candidates(host, packages.wish)
        if one != fifth
    }
    assert packages.chosen(host) is None
    del host._modelled[packages._solution(host, first).name]
    assert packages.chosen(host)


def test_packages_of_another_version_are_named_until_none_is_left() -> None:
    """Name what the package manager would take from another version, four times at most."""
    packages = DriverPackages(asked())
    loose = ("nvidia-settings", "nvidia-x1", "nvidia-x2", "nvidia-x3")
    host = facts("fresh", ROOT, **{OFFERS: [HAS, *(f"{name} {NEW} Ubuntu" for name in loose)]})
    (candidate,) = packages._candidates(host, packages.wish)
    asking = candidate
    for name in loose[:3]:
        host._modelled[packages._solution(host, asking).name] = PackageSolution({name: "9"})
        asking = replace(asking, packages={**asking.packages, name: NEW})
    last = packages._solution(host, asking).name
    host._modelled[last] = PackageSolution({"nvidia-x3": "9", "gcc": "13"})
    chosen = packages.chosen(host)
    assert chosen
    assert dict(chosen.packages) == {**asking.packages, "nvidia-x3": NEW}
    host._modelled[last] = PackageSolution({"gcc": "13"})
    chosen = packages.chosen(host)
    assert chosen
    assert (dict(chosen.packages), chosen.changes) == (dict(asking.packages), {"gcc": "13"})


def test_sources_that_apt_cannot_read_are_refused_though_the_driver_is_known() -> None:
    entry = "deb [signed-by=/{}.gpg] https://example.com/ubuntu noble main"
    sources = {"one.list": entry.format("one"), "two.list": entry.format("two")}
    with pytest.raises(HostError, match="apt cannot read its sources") as error:
        DriverPackages(asked()).steps(facts("fresh", ROOT, apt_repositories=sources))
    told = "remove it from /etc/apt/sources.list.d/two.list, or write the same Signed-By in both"
    assert error.value.remedy == told
