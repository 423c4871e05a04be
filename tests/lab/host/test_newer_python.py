"""The README's first command on a bare host with a Python newer than LoadGen's wheels (``make lab``)."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.lab.conftest import unavailable
from tests.lab.host.debian_root import DebianRoot

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.environ.get("VCAGENT_LAB") != "all", reason="takes minutes: make lab runs it"),
]
REPOSITORY = Path(__file__).parents[3]
PASSED_ON = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy")
AUTHORITIES = "/etc/ssl/certs/of-this-machine.crt"


def bare_host(folder: Path) -> DebianRoot:
    """Return Debian sid with Python, venv and make, and this repository in /root/vcagent; no compiler."""
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        unavailable("needs root and mmdebstrap")
    mirror = "http://deb.debian.org/debian"
    command = [
        "mmdebstrap", "--quiet", "--variant=apt", '--aptopt=Acquire::Check-Valid-Until "false"',
        "--include=ca-certificates,python3,python3-venv,make,procps", "sid", str(folder),
        f"deb [trusted=yes] {mirror} sid main",
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
    assert host.run("sh", "-c", "command -v g++", check=False).returncode != 0
    passed_on = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(PASSED_ON)]
    passed_on += [f"{name}={AUTHORITIES}" for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")]
    result = host.run("env", *passed_on, "make", "-C", "/root/vcagent", "run", check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    latest = host.path / "root/vcagent/results/latest"
    assert json.loads((latest / "run.json").read_text())["verdict"]["validity"] == "VALID"
    assert host.run("sh", "-c", "command -v g++").stdout.strip()
