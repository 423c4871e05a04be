"""Docker 26, of Debian trixie, beside whatever this machine has: its programs are unpacked, not installed.

runc is this machine's own: trixie's asks for a newer C library than Debian 12 has.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.lab.host.cache import cached_folder, fingerprint

__all__ = ["newer_docker"]

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_SOURCE = f"deb [signed-by={_KEYRING}] http://deb.debian.org/debian trixie main\n"
_PACKAGES = ("docker.io", "containerd")
_PROGRAMS = ("dockerd", "docker-proxy", "containerd", "containerd-shim-runc-v2")


def newer_docker() -> dict[str, Path]:
    """The programs by name; fetched by apt with lists of its own, a few seconds, once.

    Raises:
        OSError, CalledProcessError: if they cannot be had, or do not run here.
    """
    folder = cached_folder("docker-trixie", fingerprint(_SOURCE, _PACKAGES), _fetch)
    found = {name: next(folder.glob(f"usr/*bin/{name}")) for name in _PROGRAMS}
    subprocess.run([found["dockerd"], "--version"], check=True, capture_output=True)
    return found


def _fetch(folder: Path) -> None:
    root = folder / "apt"
    for name in ("etc/apt/preferences.d", "lists/partial", "archives/partial"):
        (root / name).mkdir(parents=True)
    (root / "status").touch()
    (root / "etc/apt/sources.list").write_text(_SOURCE)
    own = {
        "Dir::Etc::SourceList": root / "etc/apt/sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::Etc::Preferences": "-",
        "Dir::Etc::PreferencesParts": "-",
        "Dir::State::Status": root / "status",
        "Dir::State::Lists": root / "lists",
        "Dir::Cache": root,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    options = [f"--option={name}={value}" for name, value in own.items()]
    for command in (["update"], ["download", *_PACKAGES]):
        subprocess.run(
            ["apt-get", "--quiet", *options, *command], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        package.unlink()
