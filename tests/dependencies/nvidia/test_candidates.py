"""Which drivers the repositories offer, which packages each consists of, and what it replaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.facts.package_solutions import PackageSolution
from agent.facts.package_versions import PackageOffer
from agent.facts.packages import InstalledPackage
from dependencies.nvidia.candidates import Candidate, candidates, superseded
from dependencies.nvidia.driver import DriverWish, InstalledDriver
from dependencies.nvidia.packages import LAYOUTS, SUBNET_MANAGER

KERNEL = "6.8.0-1-generic"
HEADERS = f"linux-headers-{KERNEL}"
V, OLD = "580.65.06", "580.65.05"
FULL = f"{V}-0ubuntu1"
LAYOUT = {layout.name: layout for layout in LAYOUTS}
COMPUTE, DKMS = "libnvidia-compute-580-server", "nvidia-dkms-580-server"
SIGNED = f"linux-modules-nvidia-580-server-{KERNEL}"
HEADLESS = "nvidia-headless-no-dkms-580-server"


def offer(name: str, version: str = FULL, depends: str = "", origin: str = "Ubuntu") -> PackageOffer:
    return PackageOffer(name, version, origin, depends)


def wish(version: str = "580", kernel: str = KERNEL, **more: Any) -> DriverWish:
    return DriverWish(version, kernel, **{"open_module": False, **more})


def driver(layout: str = "server", version: str = V, **packages: str) -> InstalledDriver:
    return InstalledDriver(version, LAYOUT[layout], open_module=False, packages=packages)


def one(found: list[Candidate]) -> Candidate:
    (candidate,) = found
    return candidate


def test_a_candidate_is_one_line() -> None:
    candidate = Candidate(V, "Ubuntu", LAYOUT["server"], open_module=True)
    line = f"{V} from Ubuntu (server packages, open kernel module)"
    assert str(candidate) == line
    assert str(replace(candidate, open_module=False, problems=("no a", "no b"))) == (
        f"{V} from Ubuntu (server packages, closed kernel module): no a; no b"
    )


def test_packages_in_another_version_than_the_drivers_are_loose() -> None:
    pins = {"same": "1", "epoch": "0:1", "bare": "1", "loose": "2", "suffix": "1-0:"}
    changes = {"same": "1", "epoch": "1", "bare": "0:1", "loose": "3", "suffix": "1-", "other": "9"}
    candidate = Candidate(V, "Ubuntu", LAYOUT["rpm"], open_module=False, pins=pins)
    assert candidate.loose(PackageSolution(changes)) == {"loose": "2", "suffix": "1-0:"}


def test_a_solution_adds_the_drivers_packages_and_all_changes() -> None:
    candidate = Candidate(V, "Ubuntu", LAYOUT["server"], open_module=False, packages={DKMS: FULL})
    changes = {COMPUTE: FULL, "libc6": V, "nvidia-modprobe": "1.0", "dkms": "3"}
    assert candidate.solved(PackageSolution(changes)) == replace(
        candidate, packages={DKMS: FULL, COMPUTE: FULL}, changes=changes
    )
    refused = candidate.solved(PackageSolution(changes, problem=("E: no", "E: not")))
    assert refused == replace(candidate, problems=("E: no", "E: not"))


WHOLE = [offer(COMPUTE), offer(DKMS)]
BOTH = {COMPUTE: FULL, DKMS: FULL}
UTILS, SMALL = "nvidia-utils-580-server", "libnvidia-gl-580-server"

Selected = tuple[DriverWish, list[PackageOffer], InstalledDriver | None, dict[str, str], tuple[str, ...]]
SELECTED: dict[str, Selected] = {
    "a driver and its module": (wish(), WHOLE, None, BOTH, ()),
    "tools too, in the same version": (
        wish(),
        [*WHOLE, offer(UTILS), offer("nvidia-persistenced", "1.0-1"), offer(SMALL)],
        None,
        {**BOTH, UTILS: FULL},
        (),
    ),
    "a tool that needs its own branch": (
        wish(),
        [*WHOLE, offer(UTILS, depends=f"{COMPUTE} (= {FULL})")],
        None,
        {**BOTH, UTILS: FULL},
        (),
    ),
    "a tool that leads to the next branch": (
        wish(),
        [*WHOLE, offer(UTILS, depends="nvidia-utils-590-server")],
        None,
        BOTH,
        (),
    ),
    "the driver's own revision first": (
        wish(),
        [
            offer(COMPUTE, f"{V}-2"),
            offer(DKMS, f"{V}-1"),
            offer(DKMS, f"{V}-2"),
            offer(DKMS, f"{V}-3"),
            offer(UTILS, f"{V}-1"),
            offer(UTILS, f"{V}-3"),
        ],
        None,
        {COMPUTE: f"{V}-2", DKMS: f"{V}-2", UTILS: f"{V}-1"},
        (),
    ),
    "no module": (wish(), [offer(COMPUTE)], None, {COMPUTE: FULL}, (f"no kernel module {V}",)),
    "a module of other versions": (
        wish(),
        [offer(COMPUTE), offer(DKMS, f"{OLD}-1"), offer(DKMS, "580.65.04-1")],
        None,
        {COMPUTE: FULL},
        (f"no kernel module {V}, only 580.65.04, {OLD}",),
    ),
    "a driver that leads to the next branch": (
        wish(),
        [offer(COMPUTE, depends="libnvidia-compute-590-server"), offer(DKMS)],
        None,
        {},
        (f"{COMPUTE} only leads to libnvidia-compute-590-server",),
    ),
    "a version that does not do": (
        wish(minimum="580.70", minimum_for="CUDA"),
        WHOLE,
        None,
        {COMPUTE: FULL},
        ("CUDA needs 580.70 or newer",),
    ),
    "services": (
        wish(fabric_manager=True, imex=True, subnet_manager=True),
        [
            *WHOLE,
            offer("nvidia-fabricmanager-580"),
            offer("nvidia-imex"),
            offer(SUBNET_MANAGER, "2025.6-1"),
            offer(SUBNET_MANAGER, "2025.5-1"),
        ],
        None,
        {**BOTH, "nvidia-fabricmanager-580": FULL, "nvidia-imex": FULL, SUBNET_MANAGER: "2025.6-1"},
        (),
    ),
    "no services": (
        wish(fabric_manager=True, imex=True, subnet_manager=True),
        [*WHOLE, offer("nvidia-imex", f"{OLD}-1")],
        None,
        BOTH,
        (f"no fabric manager {V}", f"no IMEX service {V}, only {OLD}", f"Ubuntu has no {SUBNET_MANAGER}"),
    ),
    "a signed module": (
        wish(prebuilt=True),
        [offer(HEADLESS), offer(DKMS), offer(SIGNED, "6.8.0-2", f"nvidia-kernel-common (>= {V})")],
        None,
        {HEADLESS: FULL, SIGNED: "6.8.0-2"},
        (),
    ),
    "a signed module of the exact revision": (
        wish(prebuilt=True),
        [
            offer(HEADLESS),
            offer(SIGNED, "6.8.0-3", f"nvidia-kernel-common (>= {OLD})"),
            offer(SIGNED, "6.8.0-2", f"nvidia-kernel-common (= {FULL})"),
        ],
        None,
        {HEADLESS: FULL, SIGNED: "6.8.0-2"},
        (),
    ),
    "a signed module of another version": (
        wish(prebuilt=True),
        [offer(HEADLESS), offer(SIGNED, "6.8.0-3", f"nvidia-kernel-common (>= {OLD})")],
        None,
        {HEADLESS: FULL},
        (f"no signed kernel module {V} for {KERNEL}",),
    ),
    "no signed module": (
        wish(prebuilt=True),
        [offer(HEADLESS)],
        None,
        {HEADLESS: FULL},
        (f"no signed kernel module {V} for {KERNEL}",),
    ),
    "installed packages move along": (
        wish(),
        [
            *WHOLE,
            offer(SMALL),
            offer("nvidia-driver-580-server"),
            offer("cuda-drivers"),
            offer("libnvsdm-580"),
            offer("nvidia-dkms-580-server-open"),
            offer("nvidia-driver-580-server-open"),
            offer("nvidia-open"),
            offer("nvidia-kernel-source-580-server-open"),
            offer("libnvidia-fbc1-580-server"),
            offer("libnvidia-extra-580-server", depends="libnvidia-extra-590-server"),
            offer("dkms"),
            offer("libnvidia-common-580-server", depends=f"{COMPUTE}"),
            offer(f"{SIGNED}"),
        ],
        driver(
            version=OLD,
            **dict.fromkeys(
                (
                    SMALL,
                    "nvidia-driver-580-server",
                    "cuda-drivers",
                    "libnvsdm-580",
                    "nvidia-dkms-580-server-open",
                    "nvidia-driver-580-server-open",
                    "nvidia-kernel-source-580-server-open",
                    "dkms",
                    "libnvidia-extra-580-server",
                    "libnvidia-common-580-server",
                    "libnvidia-decode-580-server",
                    "libnvidia-nscq",
                ),
                f"{OLD}-1",
            ),
        ),
        {
            **BOTH,
            SMALL: FULL,
            "nvidia-driver-580-server": FULL,
            "cuda-drivers": FULL,
            "libnvsdm-580": FULL,
            "libnvidia-common-580-server": FULL,
        },
        (f"no libnvidia-decode-580-server {V}",),
    ),
    "with a signed module no package that builds one moves along": (
        wish(prebuilt=True),
        [
            offer(HEADLESS),
            offer(SIGNED, "6.8.0-2", f"(>= {V})"),
            offer("nvidia-driver-580-server"),
            offer(DKMS),
            offer("nvidia-kernel-source-580-server"),
            offer("nvidia-kernel-source-580"),
            offer("libnvsdm-580"),
        ],
        driver(
            version=OLD,
            **dict.fromkeys(
                (
                    "nvidia-driver-580-server",
                    DKMS,
                    "nvidia-kernel-source-580-server",
                    "nvidia-kernel-source-580",
                    "libnvsdm-580",
                ),
                f"{OLD}-1",
            ),
        ),
        {
            HEADLESS: FULL,
            SIGNED: "6.8.0-2",
            "libnvsdm-580": FULL,
            "nvidia-kernel-source-580-server": FULL,
        },
        (),
    ),
}


@pytest.mark.parametrize("case", SELECTED)
def test_the_packages_of_a_driver(case: str) -> None:
    asked, offers, installed, packages, problems = SELECTED[case]
    found = [
        candidate
        for candidate in candidates(asked, offers, installed=installed)
        if candidate.layout.name == "server"
    ]
    assert len(found) == 1
    assert (dict(found[0].packages), found[0].problems) == (packages, problems)
    assert found[0].unpinned == ()


def test_every_field_of_a_candidate() -> None:
    extra = offer(SMALL)
    others = offer("nvidia-settings", f"{OLD}-1")
    assert candidates(wish(), [*WHOLE, extra, others]) == [
        Candidate(V, "Ubuntu", LAYOUT["server"], open_module=False, packages=BOTH, pins={**BOTH, SMALL: FULL})
    ]
    signed = [offer(HEADLESS), offer(SIGNED, "6.8.0-2", f"(>= {V})")]
    assert one(candidates(wish(prebuilt=True), signed)).prebuilt


@pytest.mark.parametrize(
    ("have", "offered", "unpinned", "problems"),
    [
        (True, False, (), ()),
        (False, True, (HEADERS,), ()),
        (False, False, (), (f"no headers of the kernel {KERNEL} to build its module with",)),
    ],
)
def test_a_module_needs_the_headers_of_any_repository(
    have: bool,  # noqa: FBT001
    offered: bool,  # noqa: FBT001
    unpinned: tuple[str, ...],
    problems: tuple[str, ...],
) -> None:
    offers = [*WHOLE, *([offer(HEADERS, "6.8.0", origin="Kernels")] if offered else [])]
    found = one(candidates(wish(headers=have), offers, origins=frozenset({"Ubuntu"})))
    assert (found.unpinned, found.problems, found.packages) == (unpinned, problems, BOTH)


def test_other_origins_are_left_out_and_a_driver_is_of_one_origin() -> None:
    offers = [*WHOLE, *(replace(one, origin="NVIDIA") for one in WHOLE)]
    assert [one.origin for one in candidates(wish(), offers)] == ["Ubuntu", "NVIDIA"]
    assert [one.origin for one in candidates(wish(), offers, origins=frozenset({"NVIDIA"}))] == ["NVIDIA"]
    split = [offer(COMPUTE), offer(DKMS, origin="NVIDIA")]
    assert one(candidates(wish(), split)).problems == (f"no kernel module {V}",)


def test_desktop_packages_of_a_fabric_manager_for_servers() -> None:
    offers = [
        offer("libnvidia-compute-580"),
        offer("nvidia-dkms-580"),
        offer("nvidia-fabricmanager-580", depends="nvidia-kernel-common-580-server-open"),
    ]
    found = one(candidates(wish(fabric_manager=True), offers))
    assert found.problems == ("nvidia-fabricmanager-580 goes with the server packages alone",)
    server = [*WHOLE, offers[2]]
    assert one(candidates(wish(fabric_manager=True), server)).problems == ()


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, [COMPUTE]),
        ({"display": True}, ["nvidia-driver-580-server"]),
        ({"display": True, "open_module": True}, ["nvidia-driver-580-server-open"]),
        ({"prebuilt": True}, [HEADLESS]),
        ({"version": V}, [COMPUTE]),
        ({"version": ""}, [COMPUTE]),
        ({"version": "575"}, []),
        ({"version": "580.65.01"}, [COMPUTE]),
    ],
)
def test_the_main_package_depends_on_the_wish(more: dict[str, Any], names: list[str]) -> None:
    opened = "nvidia-driver-580-server-open"
    offers = [offer(COMPUTE, "580-1")]
    offers += [offer(name) for name in ("nvidia-driver-580-server", opened, HEADLESS, COMPUTE)]
    found = candidates(wish(**more), offers)
    assert [next(iter(one.packages)) for one in found] == names


def test_the_order_of_candidates() -> None:
    def whole(version: str, suffix: str, flavour: str = "", origin: str = "Ubuntu") -> list[PackageOffer]:
        branch = version.partition(".")[0]
        suffix = suffix.format(branch)
        return [
            offer(f"libnvidia-compute{suffix}", f"{version}-1", origin=origin),
            offer(f"nvidia-dkms{suffix}{flavour}", f"{version}-1", origin=origin),
        ]

    offers = [
        *whole("580.9.1", "-{}-server", origin="NVIDIA"),
        *whole("580.9.1", "-{}-server"),
        *whole("580.65.06", "-{}-server", "-open"),
        *whole("580.100.2", "-{}-server"),
        *whole("590.1.1", "-{}"),
        *whole("595.1.1", ""),
    ]

    def order(installed: InstalledDriver | None = None, **more: Any) -> list[tuple[str, str, str, bool]]:
        found = candidates(wish(**{"version": "", "open_module": None, **more}), offers, installed=installed)
        return [(a.version, a.origin, a.layout.name, a.open_module) for a in found if not a.problems]

    closed = [
        ("580.100.2", "Ubuntu", "server", False),
        ("580.9.1", "Ubuntu", "server", False),
        ("580.9.1", "NVIDIA", "server", False),
    ]
    opened = ("580.65.06", "Ubuntu", "server", True)
    rest = [("590.1.1", "Ubuntu", "branch", False), ("595.1.1", "Ubuntu", "plain", False)]
    assert order() == [*closed, opened, *rest]
    assert order(prefer_open=True) == [opened, *closed, *rest]
    assert order(open_module=True) == [opened]
    assert order(driver(version="580.9.1")) == [*closed[1:], closed[0], opened, *rest]
    assert order(driver("branch", "580.9.1")) == [*closed, opened, *rest]
    assert order(driver("plain", "595.1.1"), prefer_open=True) == [rest[1], opened, *closed, rest[0]]


def test_the_flavour_of_the_installed_module_is_kept() -> None:
    offers = [offer(COMPUTE), offer(DKMS), offer(f"{DKMS}-open")]
    both: dict[str, Any] = {"open_module": None, "prefer_open": True}
    assert [a.open_module for a in candidates(wish(**both), offers)] == [True, False]
    kept = candidates(wish(**both), offers, installed=driver())
    assert [a.open_module for a in kept] == [False, True]


def test_installed_packages_of_the_other_module_do_not_move_along() -> None:
    names = ("nvidia-driver-580-server", "nvidia-driver-580-server-open", "nvidia-kernel-source-580-server")
    offers = [offer(name) for name in (COMPUTE, f"{DKMS}-open", *names)]
    installed = driver(version=OLD, **dict.fromkeys(names, f"{OLD}-1"))
    found = one(candidates(wish(open_module=True), offers, installed=installed))
    assert list(found.packages) == [COMPUTE, f"{DKMS}-open", "nvidia-driver-580-server-open"]


def test_debians_packages_have_one_name_for_both_modules() -> None:
    names = (
        "libcuda1",
        "nvidia-kernel-dkms",
        "nvidia-driver",
        "nvidia-driver-cuda",
        "nvidia-open-kernel-dkms",
    )
    installed = driver("debian", OLD, **dict.fromkeys(names, f"{OLD}-1"))
    found = one(candidates(wish(), [offer(name) for name in names], installed=installed))
    assert set(found.packages) == {*names} - {"nvidia-open-kernel-dkms"}


RPM_KERNEL = "5.14.0-503.33.1.el9_5.x86_64"
RPM = [
    PackageOffer("nvidia-driver-cuda", f"3:{V}-1.el9", "NVIDIA"),
    PackageOffer("nvidia-kmod-common", f"3:{V}-1.el9", "NVIDIA"),
    PackageOffer("kmod-nvidia-latest-dkms", f"3:{V}-1.el9", "NVIDIA"),
    PackageOffer(f"kmod-nvidia-{V}-5.14.0-503.33.1", f"3:{V}-2.el9", "NVIDIA"),
    PackageOffer(f"kmod-nvidia-{V}-5.14.0-503.33.1", f"3:{V}-1.el9", "NVIDIA"),
    PackageOffer(f"kmod-nvidia-open-{V}-5.14.0-503.33.1", f"3:{V}-1.el9", "NVIDIA"),
    PackageOffer(f"kmod-nvidia-{OLD}-5.14.0-503.33.1", f"3:{OLD}-1.el9", "NVIDIA"),
    PackageOffer(f"kmod-nvidia-{V}-5.14.0-427.1.1", f"3:{V}-1.el9", "NVIDIA"),
]
READY = f"kmod-nvidia-{V}-5.14.0-503.33.1"


@pytest.mark.parametrize(
    ("has", "kernel", "module"),
    [
        (None, RPM_KERNEL, "kmod-nvidia-latest-dkms"),
        (("kmod-nvidia-latest-dkms",), RPM_KERNEL, "kmod-nvidia-latest-dkms"),
        (("nvidia-xconfig", f"kmod-nvidia-{OLD}-5.14.0-503.33.1"), RPM_KERNEL, READY),
        ((f"kmod-nvidia-{OLD}-5.14.0-503.33.1",), "5.14.0-999.el9.x86_64", "kmod-nvidia-latest-dkms"),
    ],
)
def test_the_module_of_rpm_packages(has: tuple[str, ...] | None, kernel: str, module: str) -> None:
    # A host with a precompiled module gets one again, if there is one for its kernel.
    installed = has and InstalledDriver(OLD, LAYOUT["rpm"], False, dict.fromkeys(has, OLD))
    found = one(candidates(wish(kernel=kernel, rpm=True), RPM, installed=installed or None))
    revision = 2 if module == READY else 1
    assert found.packages == {
        "nvidia-driver-cuda": f"3:{V}-1.el9",
        "nvidia-kmod-common": f"3:{V}-1.el9",
        module: f"3:{V}-{revision}.el9",
    }
    assert found.problems == ()


@pytest.mark.parametrize(
    ("version", "precompiled", "module"),
    [
        (V, ("kmod",), ()),
        (OLD, ("kmod",), ("kmod-nvidia-latest-dkms",)),
        (V, (), ("kmod-nvidia-latest-dkms",)),
    ],
)
def test_a_module_that_fits_stays(
    version: str, precompiled: tuple[str, ...], module: tuple[str, ...]
) -> None:
    there = InstalledDriver(version, LAYOUT["rpm"], False, {"kmod": V}, precompiled)
    found = one(candidates(wish(kernel=RPM_KERNEL, rpm=True), RPM, installed=there))
    assert list(found.packages) == ["nvidia-driver-cuda", *module, "nvidia-kmod-common"]


CHOSEN = Candidate(
    V, "Ubuntu", LAYOUT["server"], open_module=False, packages={COMPUTE: FULL}, pins={"kept": FULL}
)
BRANCH = replace(CHOSEN, layout=LAYOUT["branch"])


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        # another branch, or another kernel module
        (CHOSEN, ["nvidia-utils-575-server", "libnvidia-gl-575", "nvidia-dkms-580-server-open"]),
        (CHOSEN, ["nvidia-kernel-source-580-server-open", f"linux-modules-nvidia-580-server-open-{KERNEL}"]),
        (
            replace(CHOSEN, open_module=True),
            ["nvidia-dkms-580-server", f"linux-modules-nvidia-580-server-{KERNEL}"],
        ),
        (replace(CHOSEN, prebuilt=True), ["nvidia-dkms-580-server", "nvidia-driver-580-server"]),
        (replace(CHOSEN, prebuilt=True, open_module=True), ["nvidia-dkms-580-server-open"]),
        # another family
        (CHOSEN, ["nvidia-utils-580", "libnvidia-gl-580"]),
        (BRANCH, ["nvidia-utils-580-server", "libnvidia-gl-580-server"]),
        (CHOSEN, ["nvidia-fabricmanager-575", "nvidia-imex-575", "cuda-drivers-575"]),
    ],
)
def test_packages_of_another_driver_are_replaced(chosen: Candidate, names: list[str]) -> None:
    installed = {name: InstalledPackage(FULL) for name in names}
    assert superseded(installed, chosen, KERNEL) == tuple(sorted(names))


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (CHOSEN, [COMPUTE, "nvidia-utils-580-server", "nvidia-dkms-580-server", "nvidia-container-toolkit"]),
        (CHOSEN, ["nvidia-fabricmanager-580", "nvidia-imex-580", "cuda-drivers-580", SIGNED]),
        (CHOSEN, ["libnvidia-gl-575:i386", "nvidia-utils-575-server:i386"]),
        (CHOSEN, ["linux-modules-nvidia-580-server-open-6.8.0-2-generic"]),
        (
            BRANCH,
            ["nvidia-utils-580", "libnvidia-gl-580", "nvidia-fabricmanager-580", "nvidia-driver-pinning-575"],
        ),
        (replace(CHOSEN, prebuilt=True), [SIGNED, "nvidia-utils-580-server"]),
    ],
)
def test_other_packages_stay(chosen: Candidate, names: list[str]) -> None:
    installed = {name: InstalledPackage(FULL) for name in names}
    assert superseded(installed, chosen, KERNEL) == ()


def test_a_package_that_stays_hides_no_other() -> None:
    names = ["nvidia-utils-575:i386", "nvidia-utils-575", "libc6", "nvidia-dkms-575"]
    installed = {name: InstalledPackage(FULL) for name in names}
    assert superseded(installed, CHOSEN, KERNEL) == ("nvidia-dkms-575", "nvidia-utils-575")


@pytest.mark.parametrize(("status", "replaced"), [("ii", True), ("iF", True), ("hi", True), ("rc", False)])
def test_only_packages_that_are_there_are_replaced(status: str, *, replaced: bool) -> None:
    installed = {"nvidia-utils-575": InstalledPackage("575.1-1", status)}
    assert bool(superseded(installed, CHOSEN, KERNEL)) is replaced


@pytest.mark.parametrize(
    ("name", "version", "before", "gone"),
    [
        ("libcuda1", f"{OLD}-1", OLD, True),
        ("libcuda1", f"{OLD}-1", None, False),
        ("libcuda1", f"{OLD}-1", "580.1.1", False),
        ("libcuda1", f"{V}-1", V, False),
        ("kept", f"{OLD}-1", OLD, False),
        ("unrelated", f"{OLD}-1", OLD, False),
    ],
)
def test_packages_that_the_new_driver_does_not_have_go_with_the_old_one(
    name: str, version: str, before: str | None, *, gone: bool
) -> None:
    old = before and driver(version=before, libcuda1=version, kept=version)
    assert bool(superseded({name: InstalledPackage(version)}, CHOSEN, KERNEL, old or None)) is gone
