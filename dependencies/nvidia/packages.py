"""The package names of a driver: Ubuntu's, Debian's and NVIDIA's, for apt and dnf.

Sources: Ubuntu's archive (nvidia-graphics-drivers-580-server, fabric-manager-580); NVIDIA's Driver
Installation Guide: "Ubuntu 590 and later packages" (names without the branch), "Version locking" and
"Compute-only (Headless)"; the packages of Amazon's AMIs with NVIDIA's driver (EKS release notes), where the
fabric manager is ``nvidia-fabric-manager`` until branch 575 and ``nvidia-fabricmanager`` since.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.kernel_headers import rpm_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

NVIDIA_ORIGINS = frozenset({"NVIDIA", "developer.download.nvidia.com"})
"""The marks of offers from NVIDIA's own repositories: apt's ``Origin``, and the server."""

SUBNET_MANAGER = "nvlsm"
"""The NVLink subnet manager; it has its own versions and belongs to fourth-generation NVSwitches."""

_LIBRARIES = ("cfg1", "common", "compute", "decode", "encode", "extra", "fbc1", "gl", "gpucomp")
_TOOLS = ("nvidia-kernel-common", "nvidia-utils", "nvidia-compute-utils", "xserver-xorg-video-nvidia")
_BRANCH = r"-(\d{3})(?![\d.])"
_NOT_OF_A_DRIVER = (
    r"nvidia-(?:container|docker|cuda|gds|fs|cudnn|driver-pinning|texture|visual|profiler)(?:[-\d]|$)"
)
_WITHOUT_ITS_NAME = (
    r"libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libnvsdm.*|nvlsm|nvlink5.*|cuda-drivers.*"
)


def _computing(suffix: str) -> tuple[str, ...]:
    """Return the packages of a compute-only host, without an X driver, in Ubuntu's and NVIDIA's names.

    Source: NVIDIA's Driver Installation Guide, "Compute-only (Headless)"; Ubuntu's nvidia-headless packages.
    """
    tools = ("nvidia-utils", "nvidia-compute-utils")
    libraries = ("libnvidia-cfg1", "libnvidia-decode", "libnvidia-encode")
    suffixed = (f"{name}{suffix}" for name in ("libnvidia-compute", *tools, *libraries))
    return (*suffixed, "nvidia-persistenced")


def _of_one_version(suffix: str) -> tuple[str, ...]:
    libraries = tuple(f"libnvidia-{name}{suffix}" for name in _LIBRARIES)
    return (*libraries, *(f"{name}{suffix}" for name in _TOOLS), f"nvidia-kernel-source{suffix}{{open}}")


@dataclass(frozen=True)
class Layout:
    """One naming scheme of a driver's packages, with placeholders such as ``{branch}`` and ``{kernel}``.

    Args:
        name: the name of the scheme.
        drivers: the main driver packages; the first also supports displays, the last ones only compute.
        compute: packages for a host without a display: the first is required, the others are optional.
        without_dkms: the package to install with a prebuilt module: the others bring the sources of an
            unsigned module, which would be loaded instead.
        dkms: the kernel module that is built on the host.
        prebuilt: the kernel module that the distribution built and signed for one kernel.
        companions: packages that must have the driver's version, whatever the repositories offer.
        fabric_managers: the names of the fabric manager, the newest scheme last.
        imex: the names of the IMEX service, the newest scheme last.
        rpm: whether these are rpm packages.
    """

    name: str
    drivers: tuple[str, ...]
    compute: tuple[str, ...]
    without_dkms: str
    dkms: tuple[str, ...]
    prebuilt: str
    companions: tuple[str, ...]
    fabric_managers: tuple[str, ...] = ("nvidia-fabricmanager-{branch}", "nvidia-fabricmanager")
    imex: tuple[str, ...] = ("nvidia-imex-{branch}", "nvidia-imex")
    rpm: bool = False

    def headers(self, kernel: str) -> str:
        """Return the package that is needed to build modules for a kernel."""
        return rpm_headers(kernel) if self.rpm else f"linux-headers-{kernel}"

    def fill(self, names: Iterable[str], branch: str, kernel: str, *, is_open: bool) -> tuple[str, ...]:
        """Return the names with their placeholders filled in, in order."""
        suffix, flavour = ("-open", "-open") if is_open else ("", "-latest")
        return tuple(
            name.format(branch=branch, open=suffix, flavour=flavour, kernel=kernel) for name in names
        )


LAYOUTS = (
    Layout(
        name="server",  # Ubuntu, for data centre GPUs; its fabric manager goes with these alone
        drivers=(
            "nvidia-driver-{branch}-server{open}",
            "nvidia-headless-{branch}-server{open}",
            "nvidia-headless-no-dkms-{branch}-server{open}",
            "libnvidia-compute-{branch}-server",
        ),
        compute=_computing("-{branch}-server"),
        without_dkms="nvidia-headless-no-dkms-{branch}-server{open}",
        dkms=("nvidia-dkms-{branch}-server{open}",),
        prebuilt="linux-modules-nvidia-{branch}-server{open}-{kernel}",
        companions=_of_one_version("-{branch}-server"),
    ),
    Layout(
        name="branch",  # Ubuntu, for desktops, and NVIDIA until branch 580
        drivers=(
            "nvidia-driver-{branch}{open}",
            "nvidia-headless-{branch}{open}",
            "nvidia-headless-no-dkms-{branch}{open}",
            "libnvidia-compute-{branch}",
        ),
        compute=_computing("-{branch}"),
        without_dkms="nvidia-headless-no-dkms-{branch}{open}",
        dkms=("nvidia-dkms-{branch}{open}",),
        prebuilt="linux-modules-nvidia-{branch}{open}-{kernel}",
        companions=_of_one_version("-{branch}"),
    ),
    Layout(
        name="plain",  # NVIDIA for Ubuntu, since branch 590
        drivers=("nvidia-driver{open}", "libnvidia-compute"),
        compute=_computing(""),
        without_dkms="",
        dkms=("nvidia-dkms{open}",),
        prebuilt="",
        companions=_of_one_version(""),
    ),
    Layout(
        name="debian",  # Debian, and NVIDIA for Debian
        drivers=("nvidia-driver", "nvidia-driver-cuda", "libcuda1"),
        compute=(
            "libcuda1",
            "nvidia-driver-cuda",
            "nvidia-smi",
            "libnvidia-cfg1",
            "libnvcuvid1",
            "libnvidia-encode1",
            "libcudadebugger1",
            "nvidia-opencl-icd",
            "nvidia-persistenced",
        ),
        without_dkms="",
        dkms=("nvidia-kernel{open}-dkms", "nvidia{open}-kernel-dkms"),
        prebuilt="",
        companions=("nvidia-kernel-support", "nvidia-driver-cuda", "nvidia-smi", "libcuda1", "libnvidia-ml1"),
    ),
    Layout(
        name="rpm",  # NVIDIA for RHEL's family and Amazon Linux: what computes, without a display
        drivers=("nvidia-driver-cuda", "nvidia-driver"),
        compute=("nvidia-driver-cuda",),
        without_dkms="",
        dkms=("kmod-nvidia{flavour}-dkms",),
        prebuilt="",
        companions=(
            "nvidia-driver-cuda-libs",
            "nvidia-kmod-common",
            "nvidia-modprobe",
            "nvidia-persistenced",
            "libnvidia-cfg",
            "libnvidia-ml",
        ),
        fabric_managers=("nvidia-fabric-manager", "nvidia-fabricmanager"),
        rpm=True,
    ),
)


@dataclass(frozen=True)
class PrecompiledModule:
    """A kernel module in an rpm package that was built, and possibly signed, for one kernel.

    Args:
        version: the driver's full version; empty if the package's name does not contain it.
        kernel: the start of the kernel's release; empty for several kernels.
        open: whether it is the open kernel module.
    """

    version: str
    kernel: str
    open: bool

    def serves(self, kernel: str) -> bool:
        """Return True if it works with a kernel such as ``5.14.0-503.33.1.el9_5.x86_64``."""
        return not self.kernel or f"{kernel}.".startswith(f"{self.kernel}.")


def precompiled_module(name: str) -> PrecompiledModule | None:
    """Parse the name of a precompiled module's package; return None for any other name.

    NVIDIA's are ``kmod-nvidia-570.124.06-5.14.0-503.33.1`` (NVIDIA/yum-packaging-precompiled-kmod), RHEL's
    own ``kmod-nvidia-open-580.178.04-6.12.0-…``; AlmaLinux has one ``kmod-nvidia-open`` for several kernels.
    """
    match = re.fullmatch(r"kmod(?:-64k)?-nvidia(-open)?(?:-(\d{3,}(?:\.\d+)+)-(\d.*))?", name)
    if not match or name == "kmod-nvidia":
        return None
    return PrecompiledModule(match.group(2) or "", match.group(3) or "", match.group(1) is not None)


def upstream(version: str) -> str:
    """Return the driver's version in a package version: ``550.90.07`` for ``1:550.90.07-0ubuntu1``.

    Ubuntu reverts a version as ``515.76+really.515.65.01-0ubuntu1``: the version after ``really`` counts.
    """
    text = version.partition(":")[2] or version
    text = text.partition("+really")[2].lstrip(".") or text
    return re.split(r"[-+~]", text, maxsplit=1)[0]


def branch_of(version: str) -> str:
    """Return the branch of a driver's version: ``550`` for ``550.90.07`` and for ``550``."""
    return version.partition(".")[0]


def other_branch(depends: str, branch: str) -> str | None:
    """Return the package of another branch that a transitional package depends on; None for other packages.

    Ubuntu ends a branch by letting its packages, under the old version, depend on those of the next branch.
    """
    for name in re.findall(r"(?:lib)?nvidia-[a-z0-9.-]+", depends):
        found = re.search(_BRANCH, name)
        if found and found.group(1) != branch:
            return str(name)
    return None


def belongs_to_driver(name: str) -> bool:
    """Return True if a package is part of an NVIDIA driver of any distributor, and may be replaced."""
    if re.search(_NOT_OF_A_DRIVER, name):
        return False
    return "nvidia" in name or re.fullmatch(rf"{_WITHOUT_ITS_NAME}|libxnvctrl\d*", name) is not None


def of_another_branch(name: str, branch: str) -> bool:
    """Return True if a package's name contains another branch than a driver's.

    In a precompiled module's name the number can be the kernel's, as in ``…-4.18.0-553``.
    """
    found = re.search(_BRANCH, name)
    return found is not None and found.group(1) != branch and precompiled_module(name) is None


def driver_package_names(kernel: str) -> str:
    """Return a regular expression for all packages of a driver on a host with this kernel."""
    names = (
        rf"(?!.*{_NOT_OF_A_DRIVER})(?!linux-)(?!kmod-)(?!xserver-xorg-video-nvidia-legacy).*nvidia.*",
        _WITHOUT_ITS_NAME,
        rf"linux-modules-nvidia-.*-{re.escape(kernel)}",
        rf"linux-headers-{re.escape(kernel)}",
    )
    return "|".join(names)
