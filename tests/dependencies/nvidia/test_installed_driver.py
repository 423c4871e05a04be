"""The driver that is installed: its version, its packages and its faults."""

from __future__ import annotations

from typing import Any

import pytest

from agent.facts.packages import InstalledPackage
from dependencies.nvidia.driver import DriverWish, InstalledDriver, faults, find_installed, needed_services
from dependencies.nvidia.packages import LAYOUTS, PrecompiledModule, precompiled_module

KERNEL, RPM_KERNEL = "6.8.0-1-generic", "5.14.0-503.33.1.el9_5.x86_64"
V, OLD = "580.65.06", "580.65.05"
LAYOUT = {layout.name: layout for layout in LAYOUTS}
DRIVER, COMPUTE, DKMS = "nvidia-driver-580-server", "libnvidia-compute-580-server", "nvidia-dkms-580-server"
OPEN, SIGNED = f"{DKMS}-open", f"linux-modules-nvidia-580-server-{KERNEL}"
READY = f"kmod-nvidia-{V}-5.14.0-503.33.1"


def installed(
    *names: str, version: str = f"{V}-1", status: str = "ii", **others: str
) -> dict[str, InstalledPackage]:
    found = dict.fromkeys(names, InstalledPackage(version, status))
    return found | {name.replace("_", "-"): InstalledPackage(other) for name, other in others.items()}


@pytest.mark.parametrize(
    ("wish", "version", "objection"),
    [
        ({"version": ""}, V, ""),
        ({"version": V}, V, ""),
        ({"version": "580"}, V, ""),
        ({"version": OLD}, V, f"it is not {OLD}"),
        ({"version": "570"}, V, "it is not 570"),
        ({"version": "580.65"}, V, "it is not 580.65"),
        ({"version": "", "minimum": V, "minimum_for": "CUDA 13.0"}, V, ""),
        ({"version": "", "minimum": V, "minimum_for": "CUDA 13.0"}, OLD, f"CUDA 13.0 needs {V} or newer"),
        ({"version": "", "maximum_branch": 580}, V, ""),
        ({"version": "", "maximum_branch": 579}, V, "the GPUs here are known until branch 579"),
        ({"version": "", "maximum_branch": 0}, V, "the GPUs here are known until branch 0"),
    ],
)
def test_objections_to_a_version(wish: dict[str, Any], version: str, objection: str) -> None:
    assert DriverWish(kernel=KERNEL, **wish).objection(version) == objection


SERVER = (DRIVER, COMPUTE, DKMS)
RPM = ("nvidia-driver-cuda", "nvidia-kmod-common")
HEADLESS = "nvidia-headless-no-dkms-580-server"
Found = tuple[str, str, bool, dict[str, str], tuple[str, ...]]
FOUND: dict[str, tuple[dict[str, InstalledPackage], str, Found | None]] = {
    "nothing": ({}, KERNEL, None),
    "other packages": (installed("gcc", "libc6"), KERNEL, None),
    "packages that were removed": (installed(*SERVER, status="rc"), KERNEL, None),
    "a driver": (installed(*SERVER), KERNEL, (V, "server", False, dict.fromkeys(SERVER, f"{V}-1"), ())),
    "the open module": (
        installed(COMPUTE, OPEN),
        KERNEL,
        (V, "server", True, dict.fromkeys((COMPUTE, OPEN), f"{V}-1"), ()),
    ),
    "the open module and a display": (
        installed(f"{DRIVER}-open", OPEN),
        KERNEL,
        (V, "server", True, dict.fromkeys((f"{DRIVER}-open", OPEN), f"{V}-1"), ()),
    ),
    "a library alone": (installed(COMPUTE), KERNEL, None),
    "a module alone": (installed(DKMS), KERNEL, None),
    "a library and the module of another kernel": (
        installed(COMPUTE, f"{SIGNED}x", version=f"{V}-1"),
        KERNEL,
        None,
    ),
    "main packages without a module": (
        installed(HEADLESS),
        KERNEL,
        (V, "server", False, {HEADLESS: f"{V}-1"}, ()),
    ),
    "main packages without a module for the display": (
        installed("nvidia-driver"),
        KERNEL,
        None,
    ),
    "a signed module": (
        {**installed(COMPUTE), **installed(SIGNED, f"{SIGNED}x", version="6.8.0-1.2")},
        KERNEL,
        (V, "server", False, {COMPUTE: f"{V}-1", SIGNED: "6.8.0-1.2"}, ()),
    ),
    "a signed module that was removed": (
        {**installed(COMPUTE), **installed(SIGNED, version="6.8.0-1.2", status="rc")},
        KERNEL,
        None,
    ),
    "the newest branch": (
        {
            **installed(*SERVER),
            **installed("nvidia-driver-570-server", "nvidia-dkms-570-server", version="570.1.2-1"),
        },
        KERNEL,
        (V, "server", False, dict.fromkeys(SERVER, f"{V}-1"), ()),
    ),
    "two layouts": (
        {**installed(*SERVER), **installed("nvidia-driver-590", "nvidia-dkms-590", version="590.1.2-1")},
        KERNEL,
        (V, "server", False, dict.fromkeys(SERVER, f"{V}-1"), ()),
    ),
    "what goes with it": (
        installed(
            *SERVER,
            libnvidia_gl_570_server=f"{OLD}-1",
            libnvidia_gl_580_server=f"{OLD}-1",
            libcuda1="570.1.2-1",
            gcc=f"{V}-1",
            nvlsm="2025.03.1-1",
            nvidia_modprobe="1.0",
        ),
        KERNEL,
        (
            V,
            "server",
            False,
            {
                **dict.fromkeys(SERVER, f"{V}-1"),
                "libnvidia-gl-580-server": f"{OLD}-1",
                "libcuda1": "570.1.2-1",
                "nvlsm": "2025.03.1-1",
            },
            (),
        ),
    ),
    "a subnet manager that was removed": (
        {**installed(*SERVER), **installed("nvlsm", version="2025.03.1-1", status="rc")},
        KERNEL,
        (V, "server", False, dict.fromkeys(SERVER, f"{V}-1"), ()),
    ),
    "packages of one name and version": (
        installed(
            *SERVER,
            "libnvidia-gl-580-server:i386",
            f"nvidia-settings-{V}-1",
            "libnvidia-ml.noarch",
            "libnvidia-ml.x86_64",
            "libnvidia-ml.aarch64",
            "libnvidia-ml.i686",
            "libnvidia-ml.i686-x",
        ),
        KERNEL,
        (V, "server", False, dict.fromkeys((*SERVER, "libnvidia-ml.i686-x"), f"{V}-1"), ()),
    ),
    "rpm packages": (
        installed(*RPM, "kmod-nvidia-latest-dkms", version=f"3:{V}-1.el9"),
        RPM_KERNEL,
        (V, "rpm", False, dict.fromkeys((*RPM, "kmod-nvidia-latest-dkms"), f"3:{V}-1.el9"), ()),
    ),
    "rpm packages without a module": (installed(*RPM, version=f"3:{V}-1.el9"), RPM_KERNEL, None),
    "rpm packages and modules for several kernels": (
        installed(
            *RPM,
            READY,
            f"kmod-nvidia-{V}-5.14.0-1.1",
            f"kmod-nvidia-open-{V}-5.14.0-503.33.1",
            f"kmod-nvidia-{OLD}-5.14.0-503.33.1",
            version=f"3:{V}-1.el9",
        ),
        RPM_KERNEL,
        (
            V,
            "rpm",
            False,
            dict.fromkeys(
                (
                    *RPM,
                    READY,
                    f"kmod-nvidia-{V}-5.14.0-1.1",
                    f"kmod-nvidia-open-{V}-5.14.0-503.33.1",
                    f"kmod-nvidia-{OLD}-5.14.0-503.33.1",
                ),
                f"3:{V}-1.el9",
            ),
            (READY,),
        ),
    ),
    "a module for a kernel whose release has three digits": (
        installed(*RPM, f"kmod-nvidia-{V}-4.18.0-553", version=f"3:{V}-1.el8"),
        "4.18.0-553.el8_10.x86_64",
        (
            V,
            "rpm",
            False,
            dict.fromkeys((*RPM, f"kmod-nvidia-{V}-4.18.0-553"), f"3:{V}-1.el8"),
            (f"kmod-nvidia-{V}-4.18.0-553",),
        ),
    ),
    "an open signed module": (
        {
            **installed(COMPUTE),
            **installed(SIGNED.replace("server-", "server-open-", 1), version="6.8.0-1.2"),
        },
        KERNEL,
        (
            V,
            "server",
            True,
            {COMPUTE: f"{V}-1", SIGNED.replace("server-", "server-open-", 1): "6.8.0-1.2"},
            (),
        ),
    ),
    "one open module for several kernels": (
        installed(*RPM, "kmod-nvidia-open", version=f"3:{V}-1.el9"),
        RPM_KERNEL,
        (V, "rpm", True, dict.fromkeys((*RPM, "kmod-nvidia-open"), f"3:{V}-1.el9"), ("kmod-nvidia-open",)),
    ),
    "one open module of another version": (
        {
            **installed(*RPM, version=f"3:{V}-1.el9"),
            **installed("kmod-nvidia-open", version=f"3:{OLD}-1.el9"),
        },
        RPM_KERNEL,
        (V, "rpm", True, {**dict.fromkeys(RPM, f"3:{V}-1.el9"), "kmod-nvidia-open": f"3:{OLD}-1.el9"}, ()),
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_the_installed_driver(case: str) -> None:
    packages, kernel, expected = FOUND[case]
    found = find_installed(packages, kernel)
    if expected is None or found is None:
        assert found is expected
        return
    version, layout, is_open, belonging, precompiled = expected
    assert found == InstalledDriver(version, LAYOUT[layout], is_open, belonging, precompiled)


def driver(
    *names: str,
    layout: str = "server",
    is_open: bool = False,
    precompiled: tuple[str, ...] = (),
    **others: str,
) -> InstalledDriver:
    packages = dict.fromkeys(names, f"{V}-1") | {
        name.replace("_", "-"): other for name, other in others.items()
    }
    return InstalledDriver(V, LAYOUT[layout], is_open, packages, precompiled)


MANAGER = "nvidia-fabricmanager-580"
FAULTS: dict[str, tuple[dict[str, Any], InstalledDriver | None, frozenset[str], list[str]]] = {
    "none": ({}, None, frozenset(), ["no driver is installed"]),
    "whole": ({}, driver(COMPUTE, DKMS), frozenset(), []),
    "another version": (
        {"version": OLD},
        driver(COMPUTE, DKMS),
        frozenset(),
        [f"driver {V} is installed: it is not {OLD}"],
    ),
    "closed, not open": (
        {"open_module": True},
        driver(COMPUTE, DKMS),
        frozenset(),
        ["the closed kernel module is installed, not the open one"],
    ),
    "open, not closed": (
        {"open_module": False},
        driver(COMPUTE, OPEN, is_open=True),
        frozenset(),
        ["the open kernel module is installed, not the closed one"],
    ),
    "either": ({"open_module": None}, driver(COMPUTE, OPEN, is_open=True), frozenset(), []),
    "no module": ({}, driver(COMPUTE), frozenset(), [f"there is no kernel module for {KERNEL}"]),
    "a module of the other flavour": (
        {},
        driver(COMPUTE, OPEN),
        frozenset(),
        [f"there is no kernel module for {KERNEL}"],
    ),
    "a signed module": ({"prebuilt": True}, driver(HEADLESS, SIGNED), frozenset(), []),
    "an open signed module": (
        {"prebuilt": True},
        driver(f"{HEADLESS}-open", SIGNED.replace("server-", "server-open-", 1), is_open=True),
        frozenset(),
        [],
    ),
    "a signed module where any will do": ({}, driver(HEADLESS, SIGNED), frozenset(), []),
    "a module that is not signed": (
        {"prebuilt": True},
        driver(COMPUTE, DKMS),
        frozenset(),
        [f"there is no signed kernel module for {KERNEL}", f"{DKMS} builds a module that is not signed"],
    ),
    "both modules": (
        {"prebuilt": True},
        driver(COMPUTE, DKMS, SIGNED),
        frozenset(),
        [f"{DKMS} builds a module that is not signed"],
    ),
    "a precompiled module": ({}, driver(COMPUTE, precompiled=(READY,)), frozenset(), []),
    "a module that is loaded": ({"loaded": V}, driver(COMPUTE), frozenset(), []),
    "another module that is loaded": (
        {"loaded": OLD},
        driver(COMPUTE),
        frozenset(),
        [f"there is no kernel module for {KERNEL}"],
    ),
    "companions in another version": (
        {},
        driver(
            COMPUTE,
            DKMS,
            nvidia_utils_580_server=f"{OLD}-1",
            nvidia_kernel_common_580_server="1:570.1-1",
            nvidia_settings=f"{OLD}-1",
            libcuda1="1.2-1",
        ),
        frozenset({"libcuda1"}),
        [
            f"libcuda1 is 1.2, the driver {V}",
            f"nvidia-kernel-common-580-server is 570.1, the driver {V}",
            f"nvidia-utils-580-server is {OLD}, the driver {V}",
        ],
    ),
    "the source of the open module in another version": (
        {},
        driver(COMPUTE, OPEN, is_open=True, nvidia_kernel_source_580_server_open=f"{OLD}-1"),
        frozenset(),
        [f"nvidia-kernel-source-580-server-open is {OLD}, the driver {V}"],
    ),
    "a module in another version": (
        {},
        driver(COMPUTE, nvidia_dkms_580_server=f"{OLD}-1"),
        frozenset(),
        [f"{DKMS} is {OLD}, the driver {V}"],
    ),
    "a fabric manager that nobody needs": (
        {},
        driver(COMPUTE, DKMS, nvidia_fabricmanager_580=f"{OLD}-1"),
        frozenset(),
        [],
    ),
    "a fabric manager in another version": (
        {"fabric_manager": True},
        driver(COMPUTE, DKMS, nvidia_fabricmanager_580=f"{OLD}-1"),
        frozenset(),
        [f"{MANAGER} is {OLD}, the driver {V}"],
    ),
    "services that are there": (
        {"fabric_manager": True, "imex": True, "subnet_manager": True},
        driver(COMPUTE, DKMS, "nvidia-fabricmanager", "nvidia-imex-580", nvlsm="1"),
        frozenset(),
        [],
    ),
    "no services": (
        {"fabric_manager": True, "imex": True, "subnet_manager": True},
        driver(COMPUTE, DKMS),
        frozenset(),
        [
            "the fabric manager is not installed",
            "the IMEX service is not installed",
            "the NVLink subnet manager is not installed",
        ],
    ),
    "everything": (
        {"version": OLD, "open_module": True, "fabric_manager": True},
        driver(COMPUTE, nvidia_utils_580_server="1.2-1"),
        frozenset(),
        [
            f"driver {V} is installed: it is not {OLD}",
            "the closed kernel module is installed, not the open one",
            f"there is no kernel module for {KERNEL}",
            f"nvidia-utils-580-server is 1.2, the driver {V}",
            "the fabric manager is not installed",
        ],
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_the_faults_of_a_driver(case: str) -> None:
    wish, there, offered, expected = FAULTS[case]
    assert faults(DriverWish(**{"version": "", "kernel": KERNEL, **wish}), there, offered) == expected


def test_the_names_of_services() -> None:
    wish = DriverWish("", KERNEL, fabric_manager=True, imex=True)
    assert needed_services(DriverWish("", KERNEL), LAYOUT["server"], "580") == []
    assert needed_services(wish, LAYOUT["server"], "580") == [
        ("fabric manager", ("nvidia-fabricmanager-580", "nvidia-fabricmanager")),
        ("IMEX service", ("nvidia-imex-580", "nvidia-imex")),
    ]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        (READY, PrecompiledModule(V, "5.14.0-503.33.1", open=False)),
        (f"kmod-64k-nvidia-open-{V}-6.12.0-1.el10", PrecompiledModule(V, "6.12.0-1.el10", open=True)),
        ("kmod-nvidia-open", PrecompiledModule("", "", open=True)),
        ("kmod-64k-nvidia", PrecompiledModule("", "", open=False)),
        ("kmod-nvidia", None),
        ("kmod-nvidia-latest-dkms", None),
        (f"x-{READY}", None),
    ],
)
def test_the_names_of_precompiled_modules(name: str, module: PrecompiledModule | None) -> None:
    assert precompiled_module(name) == module


@pytest.mark.parametrize(
    ("kernel", "serves"),
    [
        ("", True),
        ("5.14.0-503.33.1", True),
        (RPM_KERNEL, True),
        ("5.14.0-503.33", True),
        ("5.14.0-503.3", False),
    ],
)
def test_the_kernels_of_a_precompiled_module(kernel: str, *, serves: bool) -> None:
    assert PrecompiledModule(V, kernel, open=False).serves(RPM_KERNEL) is serves
