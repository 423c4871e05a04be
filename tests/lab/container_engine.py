"""A separate engine for tests of containers, with a small image and a stand-in for NVIDIA's hook."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.restartable_docker import RestartableDocker, restartable_docker

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BUSYBOX", "C_LIBRARY", "HOOK", "container_engine"]

BUSYBOX = "vcagent-test-busybox:1"
"""An image of busybox: sh, cat, echo, env, id, ls, setsid, sleep, true."""

C_LIBRARY = "vcagent-test-c-library:1"
"""The same image with this host's C library, and no other library."""

HOOK = "nvidia-container-runtime-hook"

_HOOK = """\
bundle=$(sed 's/.*"bundle":"\\([^"]*\\)".*/\\1/')
grep -o 'NVIDIA_[A-Z_]*=[^"]*' "$bundle/config.json" > {seen}
exit 0"""
"""The engine's request to NVIDIA's hook (moby, daemon/nvidia_linux.go: by variables of the container)."""

_PROGRAMS = ("dockerd", "unshare", "nsenter", "ip", "busybox")


@pytest.fixture(scope="session")
def container_engine() -> Iterator[RestartableDocker]:
    """Start a Docker engine that ends with the tests; it needs root, and may be restarted.

    ``folder / "gpus"`` has the last request to the stand-in hook.
    """
    if os.geteuid() != 0 or not all(map(shutil.which, _PROGRAMS)):
        reason = f"containers need root and {', '.join(_PROGRAMS)}"
        (pytest.fail if os.environ.get("VCAGENT_TEST_LAB") == "required" else pytest.skip)(reason)
    with tempfile.TemporaryDirectory(prefix="vcagent-engine-") as name:
        folder = Path(name)
        programs = {
            HOOK: _HOOK.format(seen=folder / "gpus"),
            "nvidia-container-runtime": 'exec runc "$@"',
        }
        runtimes = {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}
        with restartable_docker(folder, programs=programs, settings={"runtimes": runtimes}) as engine:
            engine.import_busybox(BUSYBOX)
            engine.import_busybox(C_LIBRARY, _c_library())
            yield engine


def _c_library() -> list[Path]:
    """Return the loader and the C library of this host, with the files that belong to it."""
    told = subprocess.run(["ldd", sys.executable], capture_output=True, text=True, check=True).stdout
    loader, library = (
        Path(re.findall(pattern, told)[0]) for pattern in (r"\s(/\S*/ld-linux\S*)", r"(/\S*/libc\.so\.6)\s")
    )
    names = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
    return [loader, *(path for name in names if (path := library.with_name(name)).exists())]
