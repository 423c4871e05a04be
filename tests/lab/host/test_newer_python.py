"""The README's first command on bare hosts for which LoadGen has no wheel (``make lab``).

One has a newer Python; the other is an emulated arm64, on which the command takes half an hour.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.conftest import unavailable
from tests.lab.host.debian_root import DebianRoot

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.environ.get("VCAGENT_LAB") != "all", reason="takes minutes: make lab runs it"),
]
REPOSITORY = Path(__file__).parents[3]
PASSED_ON = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy")
REGISTER = Path("/proc/sys/fs/binfmt_misc/register")
ARM64 = (
    rb":M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:"
    rb"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:"
)
"""The head of a 64-bit ELF file for AArch64, and its mask; 2 and 3 are its types for programs."""
AUTHORITIES = "/etc/ssl/certs/of-this-machine.crt"


@contextmanager
def emulated_arm64() -> Iterator[None]:
    """Let this kernel run programs of arm64 by qemu within the block (binfmt_misc, its documentation)."""
    program = shutil.which("qemu-aarch64-static")
    if os.geteuid() != 0 or not program:
        unavailable("needs root and qemu-user-static")
    if not REGISTER.exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", REGISTER.parent], check=False)
    if not REGISTER.exists():
        unavailable("this kernel has no binfmt_misc")
    ours = REGISTER.with_name("vcagent-lab-arm64")
    known = any("qemu-aarch64" in path.read_text() for path in REGISTER.parent.glob("*[!r]"))
    if not known:
        REGISTER.write_bytes(b":" + ours.name.encode() + ARM64 + str(program).encode() + b":F")
    try:
        yield
    finally:
        if not known:
            ours.write_text("-1")


def bare_host(folder: Path, suite: str = "sid", *options: str) -> DebianRoot:
    """Return a Debian with Python, venv and make, and this repository in /root/vcagent; no compiler.

    Args:
        folder: its folder.
        suite: the release of Debian.
        options: further options of mmdebstrap.
    """
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        unavailable("needs root and mmdebstrap")
    mirror = "http://deb.debian.org/debian"
    command = [
        "mmdebstrap", "--quiet", "--variant=apt", '--aptopt=Acquire::Check-Valid-Until "false"', *options,
        "--include=ca-certificates,python3,python3-venv,make,procps", suite, str(folder),
        f"deb [trusted=yes] {mirror} {suite} main",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    shutil.copy(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt",
                folder / AUTHORITIES.lstrip("/"))  # fmt: skip
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        target = folder / "root/vcagent" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).is_file():
            shutil.copy(REPOSITORY / name, target)
    return DebianRoot(folder, "")


def test_make_run_brings_a_compiler_and_is_valid(tmp_path: Path) -> None:
    host = bare_host(tmp_path / "root")
    version = host.run("python3", "-c", "import sys; print(sys.version_info >= (3, 14))").stdout.strip()
    if version != "True":
        unavailable("Debian sid's Python is not newer than LoadGen's wheels")
    run_first_command(host)


def test_make_run_is_valid_on_arm64(tmp_path: Path) -> None:
    with emulated_arm64():
        host = bare_host(tmp_path / "root", "bookworm", "--architectures=arm64")
        assert host.run("python3", "-c", "import platform; print(platform.machine())").stdout == "aarch64\n"
        run_first_command(host)


def run_first_command(host: DebianRoot) -> None:
    """Run ``make run``, and check that it brought a compiler and that its result is valid."""
    assert host.run("sh", "-c", "command -v g++", check=False).returncode != 0
    passed_on = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(PASSED_ON)]
    passed_on += [f"{name}={AUTHORITIES}" for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")]
    result = host.run("env", *passed_on, "make", "-C", "/root/vcagent", "run", check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    latest = host.path / "root/vcagent/results/latest"
    assert json.loads((latest / "run.json").read_text())["verdict"]["validity"] == "VALID"
    assert host.run("sh", "-c", "command -v g++").stdout.strip()
