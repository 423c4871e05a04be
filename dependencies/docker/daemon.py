"""Changes Docker's daemon.json: keeps existing settings, merges new ones, replaces the file atomically."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from agent.core.errors import DependencyFailedError, HostError
from agent.facts.docker import DAEMON_CONFIG, DAEMON_CONFIG_PATH
from agent.facts.system_paths import SYSTEM_ROOT
from dependencies.docker.cli import docker_remedy
from dependencies.packages.system_file import back_up, write_system_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.component.component import StepContext
    from agent.facts.docker import DaemonConfig


def require_readable(config: DaemonConfig) -> Mapping[str, Any]:
    """Return the settings of a daemon.json.

    Raises:
        HostError: if the file is malformed; it is not changed then.
    """
    if config.settings is None:
        raise HostError(
            f"{DAEMON_CONFIG_PATH} is malformed: {config.problem}; dockerd does not start with it",
            remedy=f"correct it (python3 -m json.tool {DAEMON_CONFIG_PATH}); it was left as it is",
        )
    return config.settings


def merged(settings: Mapping[str, Any], wish: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with a wish merged in: objects key by key, in order; other settings stay.

    Raises:
        HostError: if an existing value has a different type.
    """
    result = dict(copy.deepcopy(settings))
    for key, value in wish.items():
        present = result.get(key)
        if isinstance(value, dict) and present is not None:
            if not isinstance(present, dict):
                raise HostError(
                    f"{key} in {DAEMON_CONFIG_PATH} is {json.dumps(present)}, no object",
                    remedy="correct it; see dockerd's reference for daemon.json",
                )
            result[key] = merged(present, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def changes(settings: Mapping[str, Any], wish: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return a merge's changes: ``runtimes.nvidia is missing``, ``default-runtime is runc, not nvidia``."""
    found = []
    for key, value in wish.items():
        name = f"{prefix}{key}"
        if key not in settings:
            found.append(f"{name} is missing")
        elif isinstance(value, dict) and isinstance(settings[key], dict):
            found += changes(settings[key], value, f"{name}.")
        elif settings[key] != value:
            found.append(f"{name} is {_shown(settings[key])}, not {_shown(value)}")
    return found


def overwritten(settings: Mapping[str, Any], wish: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a merge would replace, for ``without``; added values are not included."""
    before = {}
    for key, value in wish.items():
        if isinstance(value, dict) and isinstance(settings.get(key), dict):
            before[key] = overwritten(settings[key], value)
        elif key in settings:
            before[key] = copy.deepcopy(settings[key])
    return before


def without(
    settings: Mapping[str, Any], wish: Mapping[str, Any], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings with a merged wish removed and the replaced values restored."""
    result = dict(copy.deepcopy(settings))
    for key, value in wish.items():
        if key not in before:
            rest = without(result[key], value, {}) if isinstance(value, dict) else {}
            if rest:  # somebody has added to it since
                result[key] = rest
            else:
                result.pop(key, None)
        elif isinstance(value, dict) and isinstance(before[key], dict):
            result[key] = without(result[key], value, before[key])
        else:
            result[key] = copy.deepcopy(before[key])
    return result


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def write_daemon_config(context: StepContext, wish: Mapping[str, Any]) -> str:
    """Merge a wish into daemon.json; return a message.

    Raises:
        HostError: if the file is malformed.
        DependencyFailedError: if dockerd rejects the result; the file stays as it was.
    """
    settings = require_readable(context.facts.fresh()[DAEMON_CONFIG])
    return replace_daemon_config(context, merged(settings, wish))


def replace_daemon_config(context: StepContext, settings: Mapping[str, Any]) -> str:
    """Write daemon.json: validated by dockerd if possible, backed up, and replaced atomically.

    Returns:
        A message.

    Raises:
        DependencyFailedError: if dockerd rejects the settings; the file stays as it was.
    """
    path = context.facts[SYSTEM_ROOT] / DAEMON_CONFIG_PATH.lstrip("/")
    data = (json.dumps(settings, indent=4) + "\n").encode()
    candidate = path.with_name(f"{path.name}.candidate")
    candidate.unlink(missing_ok=True)
    write_system_file(candidate, data, 0o600)  # it may hold a proxy's password
    try:
        _validate(context, candidate)
        kept = back_up(path)
        write_system_file(path, data)
    finally:
        candidate.unlink(missing_ok=True)
    return f"{path} written" + (f"; the one before is {kept}" if kept else "")


def _validate(context: StepContext, candidate: Path) -> None:
    """Ask dockerd to validate a file (``--validate``, since Docker 23)."""
    command = ["dockerd", "--validate", f"--config-file={candidate}"]
    result = context.processes.run(
        ["sh", "-c", 'command -v dockerd >/dev/null || exit 0; exec "$@"', "sh", *command],
        log=context.log,
        check=False,
        timeout_s=30,
    )
    output = f"{result.stdout}\n{result.stderr}"
    if result.exit_code != 0 and "unknown flag: --validate" not in output:
        told = tuple(line for line in output.splitlines() if line.strip())
        raise DependencyFailedError(
            f"dockerd refuses the changed {DAEMON_CONFIG_PATH}: {told[-1] if told else 'it says nothing'}",
            remedy=docker_remedy(output, context.log),
            details=told,
        )
