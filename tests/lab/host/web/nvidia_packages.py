"""Stand-ins for the packages of NVIDIA's driver: real names, versions and relations, with little inside.

Two publishers offer them. Ubuntu's packages have its suffix and the flavour ``-server``; NVIDIA's have
neither. Both offer the fabric manager under the same name. Source of names and relations: Ubuntu's archive
(nvidia-graphics-drivers-550-server, fabric-manager-550) and developer.download.nvidia.com/compute/cuda/repos.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.lab.host.web.debian_packages import STANDINS, DebianPackage
from tests.lab.host.web.kernel_module import kernel_module

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "DRIVERS",
    "NVIDIA",
    "NVIDIA_ALONE",
    "UBUNTU",
    "Publisher",
    "container_toolkit",
    "distribution_packages",
    "driver_packages",
]

DRIVERS = ("550.90.07", "550.127.05", "570.86.15")
"""Versions in every repository: two of one branch, one of the next."""
NVIDIA_ALONE = "550.54.15"
"""A version that the distribution no longer has."""


@dataclass(frozen=True)
class Publisher:
    """A publisher of the driver's packages.

    Args:
        name: the repository's Origin.
        flavour: the suffix of the branch in names: ``nvidia-driver-550-server``.
        revision: the suffix of the version of the driver's packages.
        fabric_revision: the suffix of the version of the fabric manager.
    """

    name: str
    flavour: str
    revision: str
    fabric_revision: str


UBUNTU = Publisher("Ubuntu", "-server", "0ubuntu0.24.04.1", "0ubuntu0.24.04.1")
NVIDIA = Publisher("NVIDIA", "", "0ubuntu1", "1")

_BUILD_MODULE = """
folder=/lib/modules/$(uname -r)/updates/dkms
mkdir -p $folder
cp /usr/src/{name}/nvidia.ko $folder/
depmod -a 2>/dev/null || :
"""
_REMOVE_MODULE = """
if [ "$1" = remove ]; then
  rm -f /lib/modules/$(uname -r)/updates/dkms/nvidia.ko
  depmod -a 2>/dev/null || :
fi
"""
_RELOAD = "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n"
_STOP = 'if [ -d /run/systemd/system ] && [ "$1" = remove ]; then systemctl stop nvidia-fabricmanager; fi\n'


def _one_of(kind: str) -> dict[str, str]:
    """Return relations of packages that exclude each other: one branch or flavour replaces another."""
    return {"Provides": kind, "Conflicts": kind, "Replaces": kind}


def driver_packages(publisher: Publisher, version: str) -> Iterator[DebianPackage]:
    """Yield all packages of one version of the driver."""
    branch = version.partition(".")[0]
    suffix = f"{branch}{publisher.flavour}"
    full = f"{version}-{publisher.revision}"

    def same(*names: str) -> str:
        return ", ".join(f"{name} (= {full})" for name in names)

    common = (f"nvidia-kernel-common-{suffix}", f"nvidia-utils-{suffix}", f"libnvidia-compute-{suffix}")
    yield DebianPackage(common[0], full, _one_of("nvidia-kernel-common"))
    yield DebianPackage(
        common[1],
        full,
        {**_one_of("nvidia-utils"), "Depends": same(common[2])},
        {"/usr/bin/nvidia-smi": (STANDINS / "nvidia-smi").read_bytes()},
    )
    yield DebianPackage(
        common[2],
        full,
        _one_of("libnvidia-compute"),
        {"/usr/share/lab-nvidia/library-version": f"{version}\n".encode()},
    )
    for opening, licence in (("", "NVIDIA"), ("-open", "Dual MIT/GPL")):
        dkms = f"nvidia-dkms-{suffix}{opening}"
        source = f"nvidia-{version}"
        yield DebianPackage(
            dkms,
            full,
            {**_one_of("nvidia-dkms-kernel"), "Depends": f"dkms, {same(common[0])}"},
            {f"/usr/src/{source}/nvidia.ko": kernel_module("nvidia", version, licence)},
            {"postinst": _BUILD_MODULE.format(name=source), "prerm": _REMOVE_MODULE},
        )
        yield DebianPackage(
            f"nvidia-driver-{suffix}{opening}",
            full,
            {**_one_of("nvidia-driver-binary"), "Depends": same(dkms, *common)},
        )
    yield from _fabric_manager(publisher, version, branch)
    if publisher is NVIDIA:
        pins = {"cuda-drivers": "", "nvidia-open": "-open"}
        for name, opening in pins.items():
            depends = f"nvidia-driver-{branch}{opening} (= {full})"
            yield DebianPackage(f"{name}-{branch}", f"{version}-1", {"Depends": depends})
            yield DebianPackage(name, f"{version}-1", {"Depends": f"{name}-{branch} (= {version}-1)"})


def _fabric_manager(publisher: Publisher, version: str, branch: str) -> Iterator[DebianPackage]:
    full = f"{version}-{publisher.fabric_revision}"
    name = f"nvidia-fabricmanager-{branch}"
    yield DebianPackage(
        name,
        full,
        _one_of("nvidia-fabricmanager"),
        {
            "/usr/bin/nv-fabricmanager": (STANDINS / "nv-fabricmanager").read_bytes(),
            "/usr/share/lab-nvidia/fabricmanager-version": f"{version}\n".encode(),
            "/lib/systemd/system/nvidia-fabricmanager.service": (
                STANDINS / "nvidia-fabricmanager.service"
            ).read_bytes(),
        },
        {"postinst": _RELOAD, "prerm": _STOP, "postrm": _RELOAD},
    )
    yield DebianPackage(f"cuda-drivers-fabricmanager-{branch}", full, {"Depends": f"{name} (= {full})"})


def container_toolkit(version: str) -> Iterator[DebianPackage]:
    """Yield the container toolkit and its library (nvidia.github.io/libnvidia-container)."""
    full = f"{version}-1"
    programs = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook")
    contents = {
        f"/usr/bin/{name}": (STANDINS / name).read_bytes().replace(b"@VERSION@", version.encode())
        for name in programs
    }
    hook = contents.pop("/usr/bin/nvidia-container-runtime-hook")
    yield DebianPackage("libnvidia-container1", full)
    yield DebianPackage("libnvidia-container-tools", full, {"Depends": f"libnvidia-container1 (= {full})"})
    yield DebianPackage("nvidia-container-toolkit-base", full, files=contents)
    yield DebianPackage(
        "nvidia-container-toolkit",
        full,
        {"Depends": f"nvidia-container-toolkit-base (= {full}), libnvidia-container-tools (= {full})"},
        {"/usr/bin/nvidia-container-runtime-hook": hook},
    )


def distribution_packages() -> Iterator[DebianPackage]:
    """Yield empty packages of the distribution that driver, profiles and tests require."""
    kernel = platform.release()
    headers = {f"/lib/modules/{kernel}/build/Makefile": b"# headers of the running kernel\n"}
    yield DebianPackage(f"linux-headers-{kernel.replace('_', '-').lower()}", "1", files=headers)
    tools = ("dkms", "build-essential", "gcc", "make", "sshpass", "python3-pip", "nvidia-common", "hello")
    for name in tools:
        yield DebianPackage(name, "1.0-1", architecture="all")
    # Docker's packages need them; every host has newer ones, and only a bundle takes these.
    for name in ("iptables", "libdevmapper1.02.1"):
        yield DebianPackage(name, "0", architecture="all")
