"""dnf's versionlock: packages that stay at their version; vcagent's entries are kept separate.

dnf 4 reads ``versionlock.list``, and dnf 5 ``versionlock.toml``.

Source: dnf-plugins-core, versionlock. A line of ``versionlock.list`` is a pattern for
    ``name-epoch:version-release.architecture``; with ``!`` before it, matching packages are never installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dependencies.packages.version_lock_toml import foreign_entries, with_entries, with_epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

NVIDIA_LOCKS = "# Written by vcagent: a driver works only in one version."
AMD_LOCKS = "# Written by vcagent: amdgpu and ROCm stay at their versions."
_END = "# The end of what vcagent wrote."


def _block(begin: str) -> re.Pattern[str]:
    return re.compile(rf"^{re.escape(begin)}\n.*?^{re.escape(_END)}\n", re.MULTILINE | re.DOTALL)


def lock_line(name: str, version: str) -> str:
    """Return the line for a package: ``nvidia-driver-cuda-3:550.90.07-1.el9.*``."""
    return f"{name}-{with_epoch(version)}.*"


def with_locks(text: str | None, packages: Mapping[str, str], begin: str = NVIDIA_LOCKS) -> str:
    """Return a list with vcagent's part replaced.

    Args:
        text: the list; None if there is none.
        packages: versions by name; empty removes vcagent's part.
        begin: the first line of the part: each driver has its own.
    """
    others = _block(begin).sub("", text or "")
    if not packages:
        return others
    gap = "\n" if others and not others.endswith("\n") else ""
    lines = "".join(f"{lock_line(name, version)}\n" for name, version in sorted(packages.items()))
    return f"{others}{gap}{begin}\n{lines}{_END}\n"


def foreign_locks(text: str | None, installed: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Return others' lines that prevent packages from changing, or exclude wanted versions.

    Args:
        text: the list.
        installed: the packages that would change, with their current versions.
        wanted: the same packages with their new versions.
    """
    found = []
    others = text or ""
    for begin in (NVIDIA_LOCKS, AMD_LOCKS):
        others = _block(begin).sub("", others)
    for line in others.splitlines():
        pattern, packages = line.strip(), installed
        if pattern.startswith("!"):
            pattern, packages = pattern[1:], wanted
        if not pattern.startswith("#") and pattern and _matches(pattern, packages):
            found.append(line.strip())
    return found


@dataclass(frozen=True)
class VersionLock:
    """The file of a host's dnf.

    Args:
        path: the file; the suffix ``.toml`` is dnf 5's.
    """

    path: Path

    def with_locks(self, text: str | None, packages: Mapping[str, str], begin: str = NVIDIA_LOCKS) -> str:
        """Return the file's text with vcagent's part replaced; see ``with_locks``."""
        if self._is_toml:
            return with_entries(text, packages, _comment_of(begin))
        return with_locks(text, packages, begin)

    def foreign_locks(
        self, text: str | None, installed: Mapping[str, str], wanted: Mapping[str, str]
    ) -> list[str]:
        """Return others' locks that prevent packages from changing; see ``foreign_locks``."""
        if self._is_toml:
            return foreign_entries(text, installed, wanted, map(_comment_of, (NVIDIA_LOCKS, AMD_LOCKS)))
        return foreign_locks(text, installed, wanted)

    @property
    def without(self) -> str:
        """The option with which dnf ignores the file."""
        # dnf 5 knows no other option; it also ignores excludepkgs= then.
        return "--setopt=disable_excludes=*" if self._is_toml else "--disableplugin=versionlock"

    @property
    def _is_toml(self) -> bool:
        return self.path.suffix == ".toml"


def _comment_of(begin: str) -> str:
    return begin.removeprefix("# ")


def _matches(pattern: str, packages: Mapping[str, str]) -> bool:
    spellings: Iterable[str] = (
        lock_line(name, version).removesuffix("*") + "any" for name, version in packages.items()
    )
    return any(fnmatchcase(text, pattern) or text.startswith(f"{pattern}.") for text in spellings)
