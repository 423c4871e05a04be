"""A bare Debian on which the README's first command is run: Python, venv and make, but no compiler."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from pathlib import Path

from tests.lab.conftest import require_tools, unavailable
from tests.lab.host.cache import cached_folder, fingerprint
from tests.lab.host.debian_root import DebianRoot

REPOSITORY = Path(__file__).parents[3]
PASSED_ON = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy")
AUTHORITIES = "/etc/ssl/certs/of-this-machine.crt"
_MIRROR = "http://deb.debian.org/debian"
_PACKAGES = "ca-certificates,python3,python3-venv,make,procps"


def bare_host(folder: Path, suite: str, *options: str) -> DebianRoot:
    """Unpack a Debian with this repository in /root/vcagent.

    Args:
        folder: a folder that does not exist yet.
        suite: the release of Debian.
        options: further options of mmdebstrap; the name of the cached archive contains them.
    """
    if os.geteuid() != 0:
        unavailable("needs root")
    require_tools({"mmdebstrap": "mmdebstrap"})
    kind = "-".join(("bare", suite, *(option.rpartition("=")[2] for option in options)))
    command = [
        "mmdebstrap", "--quiet", "--variant=apt", '--aptopt=Acquire::Check-Valid-Until "false"', *options,
        f"--include={_PACKAGES}", suite,
    ]  # fmt: skip
    source = f"deb [trusted=yes] {_MIRROR} {suite} main"

    def make(part: Path) -> None:
        subprocess.run([*command, part / "root.tar", source], check=True)

    cached = cached_folder(kind, fingerprint(command, source), make)
    folder.mkdir()
    subprocess.run(["tar", "--extract", f"--directory={folder}", f"--file={cached / 'root.tar'}"], check=True)
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


def run_first_command(host: DebianRoot, *arguments: str) -> None:
    """Run ``make run``, and check that it installed a compiler and that its result is valid.

    Args:
        host: a bare host.
        arguments: further arguments of vcagent.
    """
    assert host.run("sh", "-c", "command -v g++", check=False).returncode != 0
    passed_on = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(PASSED_ON)]
    passed_on += [
        "PIP_NO_COMPILE=1",
        *(f"{name}={AUTHORITIES}" for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")),
    ]
    more = [f"ARGS={' '.join(arguments)}"] if arguments else []
    result = host.run("env", *passed_on, "make", "-C", "/root/vcagent", "run", *more, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    latest = host.path / "root/vcagent/results/latest"
    assert json.loads((latest / "run.json").read_text())["verdict"]["validity"] == "VALID"
    assert host.run("sh", "-c", "command -v g++").stdout.strip()
