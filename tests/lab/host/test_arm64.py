"""The README's first command on a bare arm64 host, emulated by qemu if necessary (``make lab``).

LoadGen has no wheel for arm64, so it is compiled there. An emulated processor answers about one sample in ten
seconds: the test asks for few samples, and leaves out Server, whose latency limits it cannot meet, and
SingleStream, which needs 64 queries.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.conftest import require_tools
from tests.lab.host.bare_host import bare_host, run_first_command

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.environ.get("VCAGENT_LAB") != "all", reason="takes minutes: make lab runs it"),
]
BINFMT = Path("/proc/sys/fs/binfmt_misc")
NAME = "vcagent-lab-arm64"
ARM64 = (
    rb":M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:"
    rb"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:"
)
"""The head of a 64-bit ELF file for AArch64, and its mask; 2 and 3 are its types for programs."""


def runs_arm64() -> bool:
    """Return whether this machine runs a program for arm64."""
    return subprocess.run(["arch-test", "arm64"], capture_output=True, check=False).returncode == 0


@contextmanager
def arm64() -> Iterator[None]:
    """Let this kernel run programs for arm64 within the block, by qemu if necessary (binfmt_misc).

    Skips the test if this machine cannot.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root")
    require_tools({"arch-test": "arch-test"}, otherwise=pytest.skip)
    if runs_arm64():
        yield
        return
    require_tools({"qemu-aarch64-static": "qemu-user-static"}, otherwise=pytest.skip)
    if runs_arm64():  # the package may have registered it
        yield
        return
    if not (BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], check=False)
    if not (BINFMT / "register").exists():
        pytest.skip("this kernel has no binfmt_misc")
    program = str(shutil.which("qemu-aarch64-static")).encode()
    (BINFMT / "register").write_bytes(b":" + NAME.encode() + ARM64 + program + b":F")
    try:
        if not runs_arm64():
            pytest.skip("qemu runs no program for arm64 here")
        yield
    finally:
        (BINFMT / NAME).write_text("-1")


@pytest.mark.timeout(3 * 3600)
def test_make_run_is_valid_on_arm64(tmp_path: Path) -> None:
    with arm64():
        host = bare_host(tmp_path / "root", "bookworm", "--architectures=arm64")
        assert host.run("python3", "-c", "import platform; print(platform.machine())").stdout == "aarch64\n"
        run_first_command(
            host,
            "--scenarios=offline-performance",
            "--parameters=OfflineMinQueryCount=4,,,MaxOutputTokens=2,,,Threads=1,,,SampleTimeout=01:00:00",
        )
