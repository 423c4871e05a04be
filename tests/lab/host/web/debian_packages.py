"""Debian packages from a few lines of Python: name, version, relations, files and scripts."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["DebianPackage", "build_all"]

STANDINS = Path(__file__).parents[1] / "standins"


@dataclass(frozen=True)
class DebianPackage:
    """A package to build.

    Args:
        name: its name.
        version: its full version.
        relations: fields such as ``Depends`` and ``Conflicts`` (deb-control(5)).
        files: contents by absolute path; files in a ``bin`` folder are executable.
        scripts: maintainer scripts such as ``postinst``.
        tree: a folder whose content goes into the package unchanged, including modes.
        architecture: ``amd64`` or ``all``.
    """

    name: str
    version: str
    relations: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    tree: Path | None = None
    architecture: str = "amd64"

    def build(self, folder: Path) -> Path:
        """Build the package into a folder (deb(5)); the file has the name that repositories use."""
        name = f"{self.name}_{self.version.partition(':')[2] or self.version}_{self.architecture}"
        root = folder / f"{name}.root"
        if self.tree:
            shutil.copytree(self.tree, root, symlinks=True)
        for path, content in self.files.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o755 if target.parent.name in {"bin", "sbin"} else 0o644)
        control = root / "DEBIAN"
        control.mkdir(parents=True)
        (control / "control").write_text(self._control())
        for script, text in self.scripts.items():
            (control / script).write_text(f"#!/bin/sh\nset -e\n{text}")
            (control / script).chmod(0o755)
        target = folder / f"{name}.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", root, target]
        subprocess.run(command, check=True, capture_output=True)
        shutil.rmtree(root)
        return target

    def _control(self) -> str:
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "vcagent tests <nobody@localhost>",
            "Description": "stand-in for tests",
            **self.relations,
        }
        return "".join(f"{name}: {value}\n" for name, value in fields.items())


def build_all(packages: Iterable[DebianPackage], folder: Path) -> None:
    """Build packages in parallel; dpkg-deb starts a process for each."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda package: package.build(folder), packages))
