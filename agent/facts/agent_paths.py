"""Finds the folders for data that outlives a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import LiftedBy
from agent.facts.base import Fact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts.base import Facts


def package_dir(environment: Mapping[str, str], *, root: bool) -> Path:
    """Return the folder of environments, models and downloads.

    It is ``VCAGENT_PACKAGE_DIR``, or the system's cache for root, or the user's (XDG Base Directory
    Specification).
    """
    if chosen := environment.get("VCAGENT_PACKAGE_DIR"):
        return Path(chosen).expanduser().absolute()
    return cache_dir(environment, root=root) / "packages"


def cache_dir(environment: Mapping[str, str], *, root: bool) -> Path:
    """Return the folder of what can be made again: the system's for root, or the user's."""
    if root:
        return Path("/var/cache/vcagent")
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".cache"
    return Path(cache) / "vcagent"


PACKAGE_DIR: Fact[Path] = Fact(
    "package_dir",
    "VCAGENT_PACKAGE_DIR, or the cache folder of the user",
    lambda _host: package_dir(os.environ, root=os.geteuid() == 0),
)


def lift_of_path(facts: Facts, path: Path | None) -> LiftedBy | None:
    """Return what could lift the refusal of a path that is missing or not as it should be.

    Any earlier dependency may make what lies below the package folder; few make anything elsewhere.
    """
    if path is not None and path.absolute().is_relative_to(facts[PACKAGE_DIR]):
        return None
    return LiftedBy.PATH
