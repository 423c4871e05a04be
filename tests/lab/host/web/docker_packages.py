"""Docker's packages with Debian's engine inside: real programs under the names of download.docker.com."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.lab.host.web.debian_packages import DebianPackage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["DOCKER_VERSIONS", "SOURCES", "docker_packages"]

SOURCES = ("docker.io", "containerd", "runc", "tini")
"""Debian's packages that provide the programs."""

DOCKER_VERSIONS = ("26.1.4", "27.3.1")
CONTAINERD_VERSION = "1.7.22"

_CLIENT = "usr/bin/docker"
_ENABLE = """
getent group docker >/dev/null || groupadd --system docker
systemctl daemon-reload
systemctl enable --quiet containerd.service docker.service docker.socket
systemctl restart containerd.service docker.socket docker.service
"""
_STOP = 'if [ "$1" = remove ]; then systemctl disable --now --quiet docker.service docker.socket; fi\n'


def docker_packages(debs: Path, work: Path, suffix: str) -> Iterator[DebianPackage]:
    """Yield Docker's packages.

    Args:
        debs: the folder of Debian's packages.
        work: the folder to unpack them in.
        suffix: the suffix of the version, such as ``ubuntu.24.04~noble``.
    """
    engine, client, runtime = (work / name for name in ("docker-ce", "docker-ce-cli", "containerd.io"))
    for folder, names in ((engine, ("docker.io", "tini")), (runtime, ("containerd", "runc"))):
        for name in names:
            (deb,) = debs.glob(f"{name}_*.deb")
            subprocess.run(["dpkg-deb", "--extract", deb, folder], check=True)
        shutil.rmtree(folder / "usr/share")
    for path in ("usr/bin/dnet", "usr/sbin/ovrouter", "etc/init.d/docker"):
        (engine / path).unlink()
    (client / _CLIENT).parent.mkdir(parents=True)
    (engine / _CLIENT).rename(client / _CLIENT)
    conflicts = {"Conflicts": "docker.io, containerd, runc", "Replaces": "docker.io, containerd, runc"}
    yield DebianPackage("containerd.io", f"{CONTAINERD_VERSION}-1", conflicts, tree=runtime)
    for version in DOCKER_VERSIONS:
        full = f"5:{version}-1~{suffix}"
        yield DebianPackage("docker-ce-cli", full, {"Conflicts": "docker.io"}, tree=client)
        yield DebianPackage(
            "docker-ce",
            full,
            {
                "Depends": "containerd.io (>= 1.6.4), docker-ce-cli, iptables, libdevmapper1.02.1",
                "Conflicts": "docker.io",
            },
            scripts={"postinst": _ENABLE, "prerm": _STOP},
            tree=engine,
        )
        for name in ("docker-buildx-plugin", "docker-compose-plugin", "docker-ce-rootless-extras"):
            yield DebianPackage(name, full)
