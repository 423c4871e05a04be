"""Which driver a profile and a host need: every field of the wish, and every sentence of a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.errors import HostError, LiftedBy
from dependencies.nvidia.driver import DriverWish
from dependencies.nvidia.wish import (
    Choice,
    KernelModule,
    WishParameters,
    wish_of,
    wishes_of_unknown_gpus,
)
from tests.dependencies.test_cases import facts_of

KERNEL = "6.8.0-1-generic"
A100, H100, GH200, V100, P100 = "0x20b0", "0x2330", "0x2342", "0x1db1", "0x15f8"
GB200, BLACKWELL, UNKNOWN = "0x2941", "0x2b80", "0x3f00"
H20_3E = "0x232c"
PLAIN = DriverWish("", KERNEL, prefer_open=True, imex=False)


def gpus(*pci_ids: str, driver: str | None = None) -> list[dict[str, Any]]:
    return [{"bus_id": f"0000:0{i}:00.0", "pci_id": one, "driver": driver} for i, one in enumerate(pci_ids)]


def host(*pci_ids: str, **changes: Any) -> dict[str, Any]:
    return {
        "gpus": gpus(*pci_ids),
        "nvswitch_bridges": 0,
        "nvswitch_count": 0,
        "kernel": KERNEL,
        "secure_boot": False,
        "module_key_enrolled": None,
        "nvidia_module": None,
        "kernel_headers": True,
        "package_manager": "apt",
        "installed_packages": {},
        **changes,
    }


def wish(facts: dict[str, Any], **parameters: Any) -> tuple[DriverWish, str]:
    return wish_of(WishParameters(**parameters), facts_of(facts))


GUARDED = {"secure_boot": True, "module_key_enrolled": False}
WHY = "Secure Boot is on, and no key is enrolled for modules that are built here"


@pytest.mark.parametrize(
    ("facts", "parameters", "changes"),
    [
        (host(), {}, {}),
        (host(UNKNOWN, "not a number"), {}, {}),
        (host(kernel="6.1.0"), {}, {"kernel": "6.1.0"}),
        (host(), {"driver": "559"}, {"version": "559", "prefer_open": False}),
        (host(), {"driver": "560"}, {"version": "560"}),
        (host(), {"driver": "560.35.03"}, {"version": "560.35.03"}),
        (host(), {"open_module": False}, {"open_module": False}),
        (host(), {"open_module": True}, {"open_module": True}),
        (host(nvswitch_count=4), {}, {"fabric_manager": True}),
        (host(nvswitch_count=4), {"fabric_manager": Choice.FALSE}, {}),
        (host(), {"fabric_manager": Choice.TRUE}, {"fabric_manager": True}),
        (host(nvswitch_bridges=2), {}, {"fabric_manager": True, "subnet_manager": True}),
        (host(nvswitch_bridges=2), {"fabric_manager": Choice.FALSE}, {}),
        (host(), {"imex": Choice.TRUE}, {"imex": True}),
        (host(kernel_headers=False), {}, {"headers": False}),
        (host(kernel_headers=None), {}, {}),
        (host(package_manager="dnf"), {}, {"rpm": True}),
        (host(), {"kernel_module": KernelModule.PREBUILT}, {"prebuilt": True}),
        (host(), {"kernel_module": KernelModule.DKMS}, {}),
        (host(secure_boot=True, module_key_enrolled=True), {}, {}),
        (host(secure_boot=None, module_key_enrolled=False), {}, {}),
        (host(**GUARDED, nvidia_module=["550.1", False]), {"kernel_module": KernelModule.DKMS}, {}),
        (host(**GUARDED), {}, {"prebuilt": True}),
        # the minimum, and the component that needs it
        (host(), {"cuda": "12.4"}, {"minimum": "550.54.14", "minimum_for": "CUDA 12.4"}),
        (
            host(),
            {"cuda": "12.4.1", "cuda_driver": "1.1"},
            {"minimum": "550.54.15", "minimum_for": "CUDA 12.4.1"},
        ),
        (host(), {"cuda": "99.1", "cuda_driver": "999.1"}, {"minimum": "999.1", "minimum_for": "CUDA 99.1"}),
        (host(), {"cuda": "99.1"}, {}),
        (
            host(),
            {"cuda": "12.4", "minor_version_compatibility": True},
            {"minimum": "525.60.13", "minimum_for": "CUDA 12.4"},
        ),
        (
            host(),
            {"cuda": "99.1", "cuda_driver": "999.1", "minor_version_compatibility": True},
            {"minimum": "999.1", "minimum_for": "CUDA 99.1"},
        ),
        (host(), {"minimum_driver": "575.1"}, {"minimum": "575.1", "minimum_for": "what is to run"}),
        (
            host(),
            {"minimum_driver": "550.60", "cuda": "12.4"},
            {"minimum": "550.60", "minimum_for": "what is to run"},
        ),
        (
            host(),
            {"minimum_driver": "550.54.9", "cuda": "12.4"},
            {"minimum": "550.54.14", "minimum_for": "CUDA 12.4"},
        ),
        (host(H100), {}, {"minimum": "525.85.05", "minimum_for": "NVIDIA H100 80GB HBM3"}),
        (
            host(H20_3E, GH200),
            {},
            {"minimum": "535.216.03", "minimum_for": "NVIDIA H20-3e", "open_module": True},
        ),
        (
            host(H20_3E),
            {"driver": "550.127.08"},
            {
                "version": "550.127.08",
                "prefer_open": False,
                "minimum": "550.127.08",
                "minimum_for": "NVIDIA H20-3e",
            },
        ),
        (
            host(H20_3E),
            {"driver": "550"},
            {
                "version": "550",
                "prefer_open": False,
                "minimum": "550.127.08",
                "minimum_for": "NVIDIA H20-3e",
            },
        ),
        (
            host(A100, GB200),
            {},
            {"minimum": "570.124.04", "minimum_for": "NVIDIA GB200", "open_module": True, "imex": True},
        ),
        (
            host(GB200),
            {"imex": Choice.FALSE, "open_module": True},
            {"minimum": "570.124.04", "minimum_for": "NVIDIA GB200", "open_module": True},
        ),
        (
            host(V100),
            {"driver": "535"},
            {"version": "535", "prefer_open": False, "open_module": False, "maximum_branch": 580},
        ),
        (host(BLACKWELL), {}, {"minimum": "570", "minimum_for": "a Blackwell GPU", "open_module": True}),
        (
            host(BLACKWELL, H100),
            {},
            {"minimum": "570", "minimum_for": "a Blackwell GPU", "open_module": True},
        ),
        # the limits of the GPUs
        (host(P100, "0x2200"), {}, {"maximum_branch": 580, "open_module": False}),
        (host("0x1eb8"), {"open_module": True}, {"open_module": True}),
        (host(P100), {"open_module": False}, {"maximum_branch": 580, "open_module": False}),
        # a display, and a module that answers
        (host(installed_packages={"xserver-xorg-core": ["1", "ii"]}), {}, {"display": True}),
        (host(installed_packages={"xserver-xorg-core": ["1", "rc"]}), {}, {}),
        (
            host(installed_packages={"python3-xwayland": ["1", "ii"], "xwayland": ["1", "ii"]}),
            {},
            {"display": True},
        ),
        (
            host(installed_packages={"python3-xwayland": ["1", "ii"], "nvidia-driver-cuda": ["1", "ii"]}),
            {},
            {},
        ),
        (host(installed_packages={"nvidia-driver-550": ["1", "ii"]}), {}, {"display": True}),
        (host(gpus=gpus(A100, driver="550.1"), nvidia_module=["550.1", False]), {}, {"loaded": "550.1"}),
        (host(gpus=[*gpus(A100, driver="550.1"), *gpus(A100)], nvidia_module=["550.1", False]), {}, {}),
        (host(nvidia_module=["550.1", False]), {}, {}),
        (host(gpus=gpus(A100, driver="550.1")), {}, {}),
    ],
)
def test_the_wish_of_a_host(
    facts: dict[str, Any], parameters: dict[str, Any], changes: dict[str, Any]
) -> None:
    expected = replace(PLAIN, **changes)
    assert wish(facts, **parameters) == (expected, WHY if facts["secure_boot"] and expected.prebuilt else "")


ALONE = "a GPU here works with the open kernel module alone"
ONE_GENERATION = "use hosts with GPUs of one generation"
OLDER_CUDA = "ask for LinuxDriverVersion={} or newer, or for an older CUDA"


@pytest.mark.parametrize(
    ("facts", "parameters", "refusal"),
    [
        (
            host(),
            {"driver": "535", "cuda": "12.4"},
            (
                "CUDA 12.4 needs driver 550.54.14 or newer, and the profile asks for 535",
                OLDER_CUDA.format(550),
                LiftedBy.NOTHING,
            ),
        ),
        (
            host(),
            {"driver": "550.54", "cuda": "12.4"},
            (
                "CUDA 12.4 needs driver 550.54.14 or newer, and the profile asks for 550.54",
                OLDER_CUDA.format(550),
                LiftedBy.NOTHING,
            ),
        ),
        (
            host(H100),
            {"driver": "525.85.04"},
            (
                "NVIDIA H100 80GB HBM3 needs driver 525.85.05 or newer, and the profile asks for 525.85.04",
                OLDER_CUDA.format(525),
                LiftedBy.NOTHING,
            ),
        ),
        (
            host(GH200),
            {"open_module": False},
            (
                f"{ALONE}, and the closed one is asked for",
                "OpenSourceDriver=true, or none",
                LiftedBy.NOTHING,
            ),
        ),
        *(
            (
                host(GH200, V100),
                {"open_module": asked},
                (f"{ALONE}, another one with the closed one alone", ONE_GENERATION, LiftedBy.NOTHING),
            )
            for asked in (None, True, False)
        ),
        (
            host(V100),
            {"open_module": True},
            (
                "the open kernel module needs Turing or newer, and a GPU here is older",
                "OpenSourceDriver=false, or none",
                LiftedBy.NOTHING,
            ),
        ),
        *(
            (
                host(**GUARDED, package_manager=manager),
                {"kernel_module": KernelModule.DKMS},
                (
                    f'{WHY}: the kernel would answer "Key was rejected by service"',
                    f"enrol one ({command}), turn Secure Boot off, or take KernelModule=prebuilt",
                    None,
                ),
            )
            for manager, command in (
                ("apt", "update-secureboot-policy --enroll-key"),
                ("dnf", "mokutil --import /var/lib/dkms/mok.pub"),
            )
        ),
    ],
)
def test_what_cannot_work_on_a_host(
    facts: dict[str, Any], parameters: dict[str, Any], refusal: tuple[str, str, LiftedBy | None]
) -> None:
    with pytest.raises(HostError) as error:
        wish(facts, **parameters)
    assert (error.value.message, error.value.remedy, error.value.lifted_by) == refusal


@pytest.mark.parametrize("driver", ["550", "550.54.14", "550.127", "560.1"])
def test_a_driver_that_is_new_enough(driver: str) -> None:
    # A branch is new enough if it may have a new enough release.
    found, _ = wish(host(), driver=driver, cuda="12.4")
    assert (found.version, found.minimum) == (driver, "550.54.14")


@pytest.mark.parametrize(
    ("choice", "decisions"),
    [(Choice.AUTO, [True, False]), (Choice.TRUE, [True, True]), (Choice.FALSE, [False, False])],
)
def test_choices(choice: Choice, decisions: list[bool]) -> None:
    assert [choice.decide(True), choice.decide(False)] == decisions


@pytest.mark.parametrize(
    ("parameters", "settings", "common", "kinds"),
    [
        ({}, {"kernel": ""}, {"headers": True}, [(True, True), (True, False), (False, True), (False, False)]),
        (
            {
                "driver": "550",
                "cuda": "12.4",
                "imex": Choice.TRUE,
                "kernel_module": KernelModule.PREBUILT,
                "fabric_manager": Choice.TRUE,
                "open_module": False,
            },
            {"kernel": KERNEL, "rpm": True},
            {
                "version": "550",
                "prebuilt": True,
                "imex": True,
                "headers": False,
                "rpm": True,
                "minimum": "550.54.14",
                "minimum_for": "CUDA 12.4",
            },
            [(False, True)],
        ),
        (
            {"fabric_manager": Choice.FALSE, "open_module": True, "kernel_module": KernelModule.DKMS},
            {"kernel": KERNEL},
            {"headers": False},
            [(True, False)],
        ),
    ],
)
def test_the_wishes_of_unknown_gpus(
    parameters: dict[str, Any],
    settings: dict[str, Any],
    common: dict[str, Any],
    kinds: list[tuple[bool, bool]],
) -> None:
    plain = DriverWish(**{"version": "", "kernel": settings["kernel"], **common})
    assert wishes_of_unknown_gpus(WishParameters(**parameters), **settings) == [
        replace(plain, open_module=is_open, fabric_manager=manager) for is_open, manager in kinds
    ]
