"""Docker 26 from Debian trixie, on any machine: its programs are unpacked, not installed.

runc is this machine's own: trixie's requires a newer C library than Debian 12 has.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.lab.debian_packages import unpack
from tests.lab.host.cache import cached_folder, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["newer_docker"]

_SUITE = "trixie"
_PACKAGES = ("docker.io", "containerd")
_PROGRAMS = ("dockerd", "docker-proxy", "containerd", "containerd-shim-runc-v2")


def newer_docker() -> dict[str, Path]:
    """Return the programs by name; apt fetches them once with separate lists, in a few seconds.

    Raises:
        OSError, CalledProcessError: if they cannot be fetched, or do not run here.
    """
    recipe = fingerprint(_SUITE, _PACKAGES)
    folder = cached_folder("docker-trixie", recipe, lambda folder: unpack(folder, _SUITE, _PACKAGES))
    found = {name: next(folder.glob(f"usr/*bin/{name}")) for name in _PROGRAMS}
    subprocess.run([found["dockerd"], "--version"], check=True, capture_output=True)
    return found
