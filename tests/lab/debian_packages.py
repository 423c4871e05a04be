"""Programs of another Debian release on this machine: unpacked, not installed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["unpack"]

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def unpack(folder: Path, suite: str, packages: Sequence[str], *, dependencies: bool = False) -> None:
    """Unpack packages into a folder; apt fetches them with separate lists in a few seconds.

    Args:
        folder: an empty folder.
        suite: the release, such as ``trixie``.
        packages: their names.
        dependencies: whether to unpack all their dependencies too, the C library included.

    Raises:
        OSError, CalledProcessError: if they cannot be fetched.
    """
    root = folder / "apt"
    for name in ("etc/apt/preferences.d", "lists/partial", "archives/partial"):
        (root / name).mkdir(parents=True)
    (root / "status").touch()
    source = f"deb [signed-by={_KEYRING}] http://deb.debian.org/debian {suite} main\n"
    (root / "etc/apt/sources.list").write_text(source)
    own = {
        "Dir::Etc::SourceList": root / "etc/apt/sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::Etc::Preferences": "-",
        "Dir::Etc::PreferencesParts": "-",
        "Dir::State::Status": root / "status",
        "Dir::State::Lists": root / "lists",
        "Dir::Cache": root,
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "true",
    }
    options = [f"--option={name}={value}" for name, value in own.items()]
    fetch = ["install", "--download-only", "--yes"] if dependencies else ["download"]
    for command in (["update"], [*fetch, *packages]):
        subprocess.run(
            ["apt-get", "--quiet", *options, *command], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
    for package in (*folder.glob("*.deb"), *root.glob("archives/*.deb")):
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        package.unlink()
