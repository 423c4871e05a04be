"""The names and versions of a driver's packages: what each distributor calls them, and which are none."""

from __future__ import annotations

import re

import pytest

from dependencies.nvidia.packages import (
    LAYOUTS,
    belongs_to_driver,
    branch_of,
    driver_package_names,
    of_another_branch,
    other_branch,
    upstream,
)

KERNEL = "6.8.0-1021-azure"
LAYOUT = {layout.name: layout for layout in LAYOUTS}


@pytest.mark.parametrize(("layout", "suffix"), [("server", "-550-server"), ("branch", "-550"), ("plain", "")])
def test_the_packages_of_ubuntus_layouts(layout: str, suffix: str) -> None:
    found = LAYOUT[layout]
    computing = ("libnvidia-compute", "nvidia-utils", "nvidia-compute-utils", "libnvidia-cfg1")
    assert found.fill(found.compute, "550", KERNEL, is_open=True) == (
        *(f"{name}{suffix}" for name in (*computing, "libnvidia-decode", "libnvidia-encode")),
        "nvidia-persistenced",
    )
    libraries = ("cfg1", "common", "compute", "decode", "encode", "extra", "fbc1", "gl", "gpucomp")
    tools = ("kernel-common", "utils", "compute-utils")
    for is_open, flavour in ((True, "-open"), (False, "")):
        assert found.fill(found.companions, "550", KERNEL, is_open=is_open) == (
            *(f"libnvidia-{name}{suffix}" for name in libraries),
            *(f"nvidia-{name}{suffix}" for name in tools),
            f"xserver-xorg-video-nvidia{suffix}",
            f"nvidia-kernel-source{suffix}{flavour}",
        )


def test_placeholders() -> None:
    names = ("a-{branch}-{kernel}", "b{open}", "c{flavour}")
    assert LAYOUT["server"].fill(names, "550", KERNEL, is_open=True) == (
        f"a-550-{KERNEL}",
        "b-open",
        "c-open",
    )
    assert LAYOUT["server"].fill(names, "550", KERNEL, is_open=False) == (f"a-550-{KERNEL}", "b", "c-latest")


@pytest.mark.parametrize(("layout", "name"), [("debian", "linux-headers-6.1"), ("rpm", "kernel-devel-6.1")])
def test_headers(layout: str, name: str) -> None:
    assert LAYOUT[layout].headers("6.1") == name


@pytest.mark.parametrize(
    ("version", "driver"),
    [
        ("550.90.07", "550.90.07"),
        ("3:550.90.07-1.el9", "550.90.07"),
        ("1:550.90.07+x", "550.90.07"),
        ("550.90.07~beta-1+x", "550.90.07"),
        ("515.76+really.515.65.01-0ubuntu1", "515.65.01"),
        ("515.76+really515.65.01-0ubuntu1", "515.65.01"),
        ("2:515.76+really1.2+really3.4-1", "1.2"),
        ("", ""),
    ],
)
def test_the_drivers_version(version: str, driver: str) -> None:
    assert upstream(version) == driver


def test_the_branch_of_a_version() -> None:
    assert [branch_of(version) for version in ("550.90.07", "550", "")] == ["550", "550", ""]


@pytest.mark.parametrize(
    ("depends", "leads"),
    [
        ("", None),
        ("libc6, nvidia-driver-550", None),
        ("nvidia-driver-550, nvidia-driver-570-server | nvidia-driver-580", "nvidia-driver-570-server"),
        ("libnvidia-compute-570 (>= 1)", "libnvidia-compute-570"),
        ("nvidia-firmware-570-server-570.1, other-570, nvidia-x-5701", "nvidia-firmware-570-server-570.1"),
        ("nvidia-kernel-570.1, nvidia-x-5701", None),
    ],
)
def test_packages_that_lead_to_another_branch(depends: str, leads: str | None) -> None:
    assert other_branch(depends, "550") == leads


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("nvidia-utils-550", False),
        ("nvidia-utils-570", True),
        ("nvidia-utils", False),
        ("a-570.1", False),
        ("kmod-nvidia-550.90.07-4.18.0-553", False),
        ("kmod-nvidia-open", False),
    ],
)
def test_names_of_another_branch(name: str, *, other: bool) -> None:
    assert of_another_branch(name, "550") is other


OURS = (
    *("libcuda1", "libcudadebugger1", "libnvcuvid1", "libnvoptix1", "libnvsdm-580", "nvlsm", "nvlink5-580"),
    *("cuda-drivers", "cuda-drivers-fabricmanager-550", "nvidia-driver-550", "xserver-xorg-video-nvidia-550"),
)
FOREIGN = (
    *(
        "libnvidia-container1",
        "nvidia-container-toolkit",
        "nvidia-docker2",
        "nvidia-cuda-toolkit",
        "nvidia-gds",
    ),
    *("nvidia-fs", "nvidia-fs-dkms", "nvidia-cudnn", "nvidia-driver-pinning-550", "nvidia-texture-tools"),
    *("nvidia-visual-profiler", "nvidia-profiler", "cuda-12-4", "libcuda10", "xlibcuda1", "gcc"),
)


def test_packages_of_a_driver() -> None:
    assert [name for name in (*OURS, "libxnvctrl0", "libxnvctrl", *FOREIGN) if belongs_to_driver(name)] == [
        *OURS,
        "libxnvctrl0",
        "libxnvctrl",
    ]


def test_packages_that_are_asked_for() -> None:
    pattern = driver_package_names("6.8.0")
    ours = (*OURS, "linux-modules-nvidia-550-open-6.8.0", "linux-headers-6.8.0")
    others = (
        *("linux-modules-nvidia-550-6.8.1", "linux-headers-6x8.0", "linux-modules-nvidia-550-6x8.0"),
        *(
            "linux-headers-6.8.1",
            "linux-objects-nvidia-550",
            "kmod-nvidia",
            "xserver-xorg-video-nvidia-legacy-340xx",
        ),
        "my-nvidia-container",
    )
    assert [name for name in (*ours, *FOREIGN, *others) if re.fullmatch(pattern, name)] == [*ours]
