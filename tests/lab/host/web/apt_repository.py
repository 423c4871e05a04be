"""Signed apt repositories from folders of packages: apt-ftparchive for the index, gpg for the signature."""

from __future__ import annotations

import gzip
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SigningKey", "publish", "publish_flat", "signing_key"]


@dataclass(frozen=True)
class SigningKey:
    """A key with its own gpg home, which ends with the context that made it."""

    home: str

    def public(self, *, armored: bool = True) -> bytes:
        """Return the public key in the form that publishers offer."""
        return self._gpg("--export", *(["--armor"] if armored else []))

    def sign(self, folder: Path) -> None:
        """Write ``InRelease`` and ``Release.gpg`` next to ``Release``."""
        release = folder / "Release"
        self._gpg("--clearsign", "--output", str(folder / "InRelease"), str(release))
        self._gpg("--armor", "--detach-sign", "--output", str(folder / "Release.gpg"), str(release))

    def _gpg(self, *arguments: str) -> bytes:
        command = ["gpg", "--homedir", self.home, "--batch", "--yes", "--quiet", *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


@contextmanager
def signing_key(name: str) -> Iterator[SigningKey]:
    """Make a new key; its agent ends with the context."""
    with TemporaryDirectory(prefix="lab-gpg-") as home:
        key = SigningKey(home)
        key._gpg("--passphrase", "", "--quick-generate-key", name, "rsa2048", "sign", "never")
        try:
            yield key
        finally:
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)


def publish(root: Path, suite: str, component: str, origin: str, key: SigningKey | None) -> None:
    """Index the packages in ``root/pool`` as one suite with one component.

    Args:
        root: the repository.
        suite: such as ``noble``.
        component: such as ``main``.
        origin: the publisher's name in Release.
        key: the signing key; None for an unsigned repository.
    """
    index = root / "dists" / suite / component / "binary-amd64"
    index.mkdir(parents=True)
    _write_packages(root, "pool", index)
    _write_release(root / "dists" / suite, origin, key, suite=suite, component=component)


def publish_flat(root: Path, origin: str, key: SigningKey | None) -> None:
    """Index the packages in ``root`` itself, for ``deb … /``; without a key, it stays unsigned."""
    _write_packages(root, ".", root)
    _write_release(root, origin, key)


def _write_packages(root: Path, pool: str, index: Path) -> None:
    command = ["apt-ftparchive", "packages", pool]
    packages = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    (index / "Packages").write_bytes(packages)
    (index / "Packages.gz").write_bytes(gzip.compress(packages, mtime=0))


def _write_release(
    folder: Path, origin: str, key: SigningKey | None, *, suite: str = "", component: str = ""
) -> None:
    fields = {
        "Origin": origin,
        "Label": origin,
        "Suite": suite,
        "Codename": suite,
        "Components": component,
        "Architectures": "amd64",
    }
    option = "--option=APT::FTPArchive::Release::"
    options = [f"{option}{name}={value}" for name, value in fields.items() if value]
    command = ["apt-ftparchive", *options, "release", "."]
    release = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE).stdout
    (folder / "Release").write_bytes(release)
    if key:
        key.sign(folder)
