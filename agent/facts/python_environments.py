"""Virtual environments that the agent made: whether one is whole, and is still what it was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["ENVIRONMENT_MARKER", "PythonEnvironment", "environment_of", "inventory_of", "python_environment"]

ENVIRONMENT_MARKER = "vcagent-environment.json"
"""The file that is written last: a folder without it is half-made."""

_INVENTORY = """\
import importlib.metadata as m, json, platform
print(json.dumps({
    "version": platform.python_version(),
    "distributions": {d.metadata["Name"]: d.version for d in m.distributions() if d.metadata["Name"]},
}))
"""
"""What an environment's own interpreter is asked: its version and what is installed."""


@dataclass(frozen=True)
class PythonEnvironment:
    """A finished environment.

    Args:
        key: what it was made from.
        version: the version of its interpreter; None where that does not run any more.
        changed: distributions that are missing now, or have another version than when it was made.
    """

    key: str
    version: str | None
    changed: tuple[str, ...] = ()


def environment_of(marker: str | None, inventory: str | None) -> PythonEnvironment | None:
    """Compare what was noted when an environment was finished with what its interpreter says now.

    Args:
        marker: the text of its ``vcagent-environment.json``.
        inventory: the interpreter's answer; None where it gave none.
    """
    try:
        noted = json.loads(marker or "")
        key, distributions = str(noted["key"]), dict(noted["distributions"])
    except (ValueError, KeyError, TypeError):
        return None
    try:
        now: Mapping[str, object] = json.loads(inventory or "")
        present = now["distributions"]
    except (ValueError, KeyError, TypeError):
        return PythonEnvironment(key, None)
    if not isinstance(present, dict):
        return PythonEnvironment(key, None)
    changed = tuple(sorted(name for name, version in distributions.items() if present.get(name) != version))
    return PythonEnvironment(key, str(now.get("version")), changed)


def inventory_of(folder: Path) -> Fact[str | None]:
    """The version and the distributions of the environment in a folder, as JSON."""
    python = str(folder / "bin" / "python")
    return Fact(
        f"inventory[{folder}]", f"{python} -c …", lambda host: host.output([python, "-I", "-c", _INVENTORY])
    )


def python_environment(folder: Path) -> Fact[PythonEnvironment | None]:
    """The fact about one folder: None where no environment was finished there."""

    def read(host: Host) -> PythonEnvironment | None:
        marker = host.text(str(folder / ENVIRONMENT_MARKER))
        if marker is None:
            return None
        return environment_of(marker, inventory_of(folder).read(host))

    return Fact(f"python_environment[{folder}]", str(folder / ENVIRONMENT_MARKER), read)
