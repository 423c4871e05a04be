"""An engine for tests of containers: its own, with a small image and a stand-in for NVIDIA's hook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.restartable_docker import RestartableDocker, restartable_docker

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BUSYBOX", "HOOK", "container_engine"]

BUSYBOX = "vcagent-test-busybox:1"
"""An image of busybox: sh, cat, echo, env, id, ls, setsid, sleep, true."""

HOOK = "nvidia-container-runtime-hook"

_HOOK = """\
bundle=$(sed 's/.*"bundle":"\\([^"]*\\)".*/\\1/')
grep -o 'NVIDIA_[A-Z_]*=[^"]*' "$bundle/config.json" > {seen}
exit 0"""
"""What the engine asks NVIDIA's hook for (moby, daemon/nvidia_linux.go: by variables of the container)."""

_PROGRAMS = ("dockerd", "unshare", "nsenter", "ip", "busybox")


@pytest.fixture(scope="session")
def container_engine() -> Iterator[RestartableDocker]:
    """A Docker engine that ends with the tests; needs root, and may be restarted.

    ``folder / "gpus"`` has what the stand-in hook was asked for last.
    """
    if os.geteuid() != 0 or not all(map(shutil.which, _PROGRAMS)):
        reason = f"containers need root and {', '.join(_PROGRAMS)}"
        (pytest.fail if os.environ.get("VCAGENT_TEST_LAB") == "required" else pytest.skip)(reason)
    with (
        tempfile.TemporaryDirectory(prefix="vcagent-engine-") as folder,
        restartable_docker(Path(folder)) as engine,
    ):
        engine.put_program(HOOK, _HOOK.format(seen=engine.folder / "gpus"))
        engine.put_program("nvidia-container-runtime", 'exec runc "$@"')
        settings = json.loads(engine.config.read_text())
        settings["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}
        engine.config.write_text(json.dumps(settings))
        subprocess.run([engine.restart], check=True)
        engine.wait()
        engine.import_busybox(BUSYBOX)
        yield engine
