"""Virtual environments created by the agent: whether one is complete and unchanged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT_MARKER = "vcagent-environment.json"
"""The file that is written last: a folder without it is incomplete."""

_TIMEOUT_S = 60
_INVENTORY = """\
import csv, importlib.metadata as m, json, os, platform
found, damaged = {}, []
for d in m.distributions():
    name = d.metadata["Name"]
    if name:
        found[name] = d.version
        files = [row[0] for row in csv.reader((d.read_text("RECORD") or "").splitlines()) if row]
        if not all(os.path.lexists(d.locate_file(file)) for file in files if not file.endswith(".pyc")):
            damaged.append(name)
print(json.dumps({"version": platform.python_version(), "distributions": found, "damaged": damaged}))
"""
"""Program for an environment's interpreter: prints its version, distributions, and those with missing files.

A distribution's files are in its RECORD (PyPA's specification of installed projects); compiled files may be
missing.
"""


@dataclass(frozen=True)
class PythonEnvironment:
    """A finished environment.

    Args:
        key: its ingredients.
        version: the version of its interpreter; None if the interpreter no longer runs.
        changed: distributions that are missing now, have another version than at creation, or lost files
            since.
    """

    key: str
    version: str | None
    changed: tuple[str, ...] = ()


def environment_of(marker: str | None, inventory: str | None) -> PythonEnvironment | None:
    """Compare an environment's marker with its interpreter's current inventory.

    Args:
        marker: the text of its ``vcagent-environment.json``.
        inventory: the interpreter's answer; None if it gave none.
    """
    try:
        noted = json.loads(marker or "")
        key, distributions = str(noted["key"]), dict(noted["distributions"])
        damaged = set(noted.get("damaged", ()))  # the distribution was damaged from the start
    except (ValueError, KeyError, TypeError):
        return None
    try:
        now = json.loads(inventory or "")
        present, version = dict(now["distributions"]), str(now["version"])
        damaged = set(now.get("damaged", ())) - damaged
    except (ValueError, KeyError, TypeError):
        return PythonEnvironment(key, None)
    changed = {name for name, made_with in distributions.items() if present.get(name) != made_with}
    return PythonEnvironment(key, version, tuple(sorted(changed | damaged)))


def inventory_of(folder: Path) -> Fact[str | None]:
    """Return the fact of the version and distributions of the environment in a folder, as JSON.

    It is a HostError if the interpreter hangs: the environment still exists, and must not be created again.
    """
    command = [str(folder / "bin" / "python"), "-I", "-c", _INVENTORY]
    return Fact(
        f"inventory[{folder}]",
        f"{command[0]} -c …",
        lambda host: host.output(command, timeout_s=_TIMEOUT_S, hang_is_error=True),
    )


def python_environment(folder: Path) -> Fact[PythonEnvironment | None]:
    """Return the fact of one folder; None if no environment was finished there."""

    def read(host: Host) -> PythonEnvironment | None:
        marker = host.text(str(folder / ENVIRONMENT_MARKER))
        if marker is None:
            return None
        return environment_of(marker, inventory_of(folder).read(host))

    return Fact(f"python_environment[{folder}]", str(folder / ENVIRONMENT_MARKER), read)
