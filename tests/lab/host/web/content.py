"""Everything that a lab host may fetch from the network: one folder for each host name."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.lab.host.cache import cached_folder, fingerprint
from tests.lab.host.web.apt_repository import SigningKey, publish, publish_flat, signing_key
from tests.lab.host.web.cuda_runfiles import write_runfiles
from tests.lab.host.web.debian_packages import STANDINS, DebianPackage, build_all
from tests.lab.host.web.docker_packages import docker_packages
from tests.lab.host.web.git_repository import SOURCES as RESULTS_SOURCES
from tests.lab.host.web.git_repository import write_results_repository
from tests.lab.host.web.image_registry import busybox_layer, write_image
from tests.lab.host.web.nvidia_packages import (
    DRIVERS,
    NVIDIA,
    NVIDIA_ALONE,
    UBUNTU,
    container_toolkit,
    distribution_packages,
    driver_packages,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HOST_NAMES", "web_folder"]

CUDA_REPOSITORY = "developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64"
TOOLKIT_REPOSITORY = "nvidia.github.io/libnvidia-container"
DOCKER_REPOSITORY = "download.docker.com/linux/ubuntu"
UBUNTU_ARCHIVE = "archive.ubuntu.com/ubuntu"
RESULTS_REPOSITORY = "github.com/mlcommons/inference_results_v4.1.git"
UNSIGNED_REPOSITORY = "unsigned.lab"
OTHER_REPOSITORY = "other.lab"
TOOLKIT_VERSIONS = ("1.16.2", "1.17.4")
HOST_NAMES = (
    "archive.ubuntu.com",
    "developer.download.nvidia.com",
    "nvidia.github.io",
    "download.docker.com",
    "registry-1.docker.io",
    "github.com",
    UNSIGNED_REPOSITORY,
    OTHER_REPOSITORY,
)


def web_folder(base: Path) -> Path:
    """Return the folder with ``srv/``, ``ca.crt``, ``server.crt``, ``server.key``, Ubuntu's ``archive.gpg``.

    Args:
        base: the folder of the base image, with Debian's packages that Docker's packages are made from.
    """
    sources = sorted([*Path(__file__).parent.glob("*.py"), *STANDINS.iterdir(), *RESULTS_SOURCES])
    recipe = fingerprint(base.name, platform.release(), *sources)
    return cached_folder("host-web", recipe, lambda folder: _make(folder, base / "debs"))


def _make(folder: Path, debs: Path) -> None:
    _certificates(folder)
    root = folder / "srv"
    with signing_key("Ubuntu stand-in") as key:
        ubuntu = [package for version in DRIVERS for package in driver_packages(UBUNTU, version)]
        archive = root / UBUNTU_ARCHIVE
        build_all([*ubuntu, *distribution_packages()], archive / "pool")
        publish(archive, "noble", "main", UBUNTU.name, key)
        (folder / "archive.gpg").write_bytes(key.public(armored=False))
    with signing_key("NVIDIA stand-in") as key:
        versions = (*DRIVERS, NVIDIA_ALONE)
        nvidia = [package for version in versions for package in driver_packages(NVIDIA, version)]
        _flat(root / CUDA_REPOSITORY, nvidia, NVIDIA.name, key, "3bf863cc.pub")
    with signing_key("NVIDIA container toolkit stand-in") as key:
        toolkit = [package for version in TOOLKIT_VERSIONS for package in container_toolkit(version)]
        stable = root / TOOLKIT_REPOSITORY / "stable/deb"
        _flat(stable / "amd64", toolkit, NVIDIA.name, key, "../../../gpgkey")
        line = f"deb https://{TOOLKIT_REPOSITORY}/stable/deb/$(ARCH) /\n"
        (stable / "nvidia-container-toolkit.list").write_text(line)
    with signing_key("Docker stand-in") as key, TemporaryDirectory() as work:
        docker = root / DOCKER_REPOSITORY
        packages = docker_packages(debs, Path(work), "ubuntu.24.04~noble")
        build_all(packages, docker / "pool")
        publish(docker, "noble", "stable", "Docker", key)
        (docker / "gpg").write_bytes(key.public())
    second = [DebianPackage("hello", "2.0-1", architecture="all")]
    _flat(root / UNSIGNED_REPOSITORY, second, "Nobody", None)
    with signing_key("Other stand-in") as key:
        _flat(root / OTHER_REPOSITORY, second, "Other", key, "key.asc")
    write_results_repository(root / RESULTS_REPOSITORY)
    write_runfiles(root / "developer.download.nvidia.com")
    with TemporaryDirectory() as work:
        (busybox,) = debs.glob("busybox-static_*.deb")
        subprocess.run(["dpkg-deb", "--extract", busybox, work], check=True)
        layer = busybox_layer(Path(work) / "bin/busybox")
    write_image(root / "registry-1.docker.io", "library/busybox", ("latest",), layer)
    write_image(root / "registry-1.docker.io", "library/ubuntu", ("latest", "22.04", "24.04"), layer)
    write_image(root / "registry-1.docker.io", "nvidia/cuda", ("12.4.1-base-ubuntu22.04",), layer)


def _flat(
    folder: Path, packages: Iterable[DebianPackage], origin: str, key: SigningKey | None, public: str = ""
) -> None:
    build_all(packages, folder)
    publish_flat(folder, origin, key)
    if key:
        (folder / public).write_bytes(key.public())


def _certificates(folder: Path) -> None:
    """Make an authority that lab hosts trust, and a certificate for all names of the web server."""
    names = ",".join(f"DNS:{name}" for name in HOST_NAMES)
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"]
    ca = ["-keyout", folder / "ca.key", "-out", folder / "ca.crt", "-subj", "/CN=vcagent lab"]
    server = ["-keyout", folder / "server.key", "-out", folder / "server.crt", "-subj", "/CN=lab"]
    signed = ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-addext", f"subjectAltName={names}"]
    signed += ["-addext", "basicConstraints=critical,CA:FALSE"]
    for command in ([*new, *ca], [*new, *server, *signed]):
        subprocess.run(command, check=True, capture_output=True)
    (folder / "ca.key").unlink()
