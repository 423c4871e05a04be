"""Environments of this machine in which a bundle's downloads are fetched by other programs' own code."""

from __future__ import annotations

import json
import os
import re
import sys
import venv
from typing import TYPE_CHECKING, Any

from agent.component.downloads import run_captured
from agent.component.environment_script import program_command, read_result
from agent.core.errors import HostError, LiftedBy
from agent.core.safe_files import make_folder, replace_text
from agent.core.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.component.downloads import Fetching

_KEPT_VARIABLES = re.compile(
    r"PIP_((EXTRA_)?INDEX_URL|NO_INDEX|FIND_LINKS|TRUSTED_HOST|PROXY|(CLIENT_)?CERT|KEYRING_PROVIDER|USE_FEATURE"
    r"|CONSTRAINT|BUILD_CONSTRAINT|TIMEOUT|DEFAULT_TIMEOUT|RETRIES|RESUME_RETRIES|CACHE_DIR|NO_CACHE_DIR"
    r"|CONFIG_FILE|ONLY_BINARY|NO_BINARY|PREFER_BINARY)"
)
"""pip's settings for package sources; all others change its behaviour or the target folder."""


def pip_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that neutralise the user's pip settings; pip treats an empty variable as unset.

    With ``PIP_DRY_RUN``, ``PIP_TARGET`` or ``PIP_PREFIX``, pip would succeed but leave the environment empty.
    """
    others = {name for name in environment if name.startswith("PIP_") and not _KEPT_VARIABLES.fullmatch(name)}
    # Zeros also override pip's configuration files.
    return {
        **dict.fromkeys(others, ""),
        **dict.fromkeys(("PIP_USER", "PIP_REQUIRE_VIRTUALENV", "PIP_DRY_RUN"), "0"),
    }


def fetching_environment(fetching: Fetching, name: str, requirements: Sequence[str], purpose: str) -> Path:
    """Return a Python environment of this machine, made once for each bundle.

    Args:
        fetching: the bundle.
        name: the name of the environment; one name has one list of requirements.
        requirements: what it needs.
        purpose: what it is for, for an error, such as ``which fetches models``.

    Raises:
        HostError: if the requirements cannot be installed.
    """
    folder = fetching.scratch / f"{name}-environment"
    done_mark = folder / "complete"
    if done_mark.exists():
        return folder
    venv.create(folder, symlinks=True)  # a copy of some Pythons does not find its library
    version = ".".join(map(str, sys.version_info[:2]))
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    options.append(f"--target={folder / 'lib' / f'python{version}' / 'site-packages'}")
    if fetching.wheels:
        options += ["--no-index", f"--find-links={fetching.wheels.expanduser().absolute()}"]
    command = [sys.executable, "-I", "-m", "pip", "install", *options, *requirements]
    done = run_captured(command, pip_environment(os.environ))
    if done.failed:
        wanted = ", ".join(requirements)
        raise HostError(
            f"{wanted}, {purpose}, cannot be installed for making the bundle",
            details=tuple(Secrets().mask(one) for one in done.errors.strip().splitlines()[-6:]),
            remedy=f"see whether pip reaches its index; a folder of --wheels must have {wanted} for "
            "this machine, too",
            lifted_by=LiftedBy.NOTHING,
        )
    done_mark.touch()
    return folder


def run_for_bundle(
    environment: Path,
    module: str,
    config: Mapping[str, Any],
    *,
    path: Path,
    scratch: Path,
    variables: Mapping[str, str],
    failure: str,
) -> dict[str, Any]:
    """Run a program that fetches something, and return its result.

    Args:
        environment: the Python environment that runs it.
        module: its module.
        config: its configuration.
        path: the folder that the module is imported from.
        scratch: a folder for its configuration and its result.
        variables: variables in addition to those of this process.
        failure: what to say if it ends without its own reason.

    Raises:
        HostError: if it failed.
    """
    make_folder(scratch)
    asked, result = scratch / "asked.json", scratch / "result.json"
    result.unlink(missing_ok=True)
    replace_text(asked, json.dumps({**config, "result": str(result)}), 0o600)
    command = [*program_command(environment, module), str(asked)]
    ended = run_captured(command, {"PYTHONPATH": str(path), **variables})
    told = read_result(result) or {}
    if told.get("status") == "completed" and not ended.failed:
        return told
    error = told.get("error") or {}
    raise HostError(
        str(error.get("message") or failure),
        details=() if error else tuple(Secrets().mask(one) for one in ended.errors.splitlines()[-6:]),
        remedy=str(error.get("remedy") or "see whether this machine reaches the hub"),
        lifted_by=LiftedBy.NOTHING,
    )
