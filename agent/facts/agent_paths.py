"""Finds the folders for data that outlives a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agent.facts.base import Fact

if TYPE_CHECKING:
    from collections.abc import Mapping


def package_dir(environment: Mapping[str, str], *, root: bool) -> Path:
    """Return the folder of environments, models and downloads.

    It is ``VCAGENT_PACKAGE_DIR``, or the system's cache for root, or the user's (XDG Base Directory
    Specification).
    """
    if chosen := environment.get("VCAGENT_PACKAGE_DIR"):
        return Path(chosen).expanduser().absolute()
    if root:
        return Path("/var/cache/vcagent/packages")
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".cache"
    return Path(cache) / "vcagent" / "packages"


PACKAGE_DIR: Fact[Path] = Fact(
    "package_dir",
    "VCAGENT_PACKAGE_DIR, or the cache folder of the user",
    lambda _host: package_dir(os.environ, root=os.geteuid() == 0),
)
