"""The command lines that run on a host; they never contain a secret."""

from __future__ import annotations

import json
import shlex
from importlib import resources
from typing import TYPE_CHECKING, Any

from agent.fleet.errors import HostUnfitError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BOOT = 'import sys;i=sys.stdin.buffer;exec(compile(i.read(int(i.readline())),"doorstep","exec"))'
_FIND = (
    "v=; for p in {candidates}; do "
    'if "$p" -c "import sys;sys.exit(sys.version_info<(3,10))" 2>/dev/null </dev/null; then '
    'exec "$p" -I -c "$1"; fi; '
    'w=$("$p" -c "import sys;print(sys.version.split()[0])" 2>/dev/null </dev/null) && v="$v, $w ($p)"; '
    'done; echo "{found}$v" >&2; exit 127'
)
FOUND_PYTHONS = "vcagent-pythons:"
"""The text before the list of Pythons that are too old, in the first command's standard error."""
_CANDIDATES = (
    "python3 python3.13 python3.12 python3.11 python3.10 python3.14 python3.15 /usr/local/bin/python3"
    ' "$HOME"/.local/bin/python3.1?'
)
"""Words of the shell. LoadGen has wheels for 3.10 to 3.13. The last are the Pythons that uv installs."""
NEWER_PYTHON = (
    "install a newer one beside it (RHEL 8 and 9: dnf install python3.12; SLES 15: zypper install python311, "
    "which is in its Python 3 module; Ubuntu 20.04 and Debian 11: python3 -m pip install --user uv, then "
    "~/.local/bin/uv python install 3.12)"
)
"""Remedy for a host whose Python is too old; docs/distributions.md has the same commands."""
NO_PYTHON = 127
"""The exit code of the first command if the host has no Python that is new enough."""


def first_command(python: str) -> str:
    """Return the command that runs the doorstep with the given Python, or the first that is new enough."""
    candidates = shlex.quote(python) if python else _CANDIDATES
    find = _FIND.format(candidates=candidates, found=FOUND_PYTHONS)
    return f"sh -c {shlex.quote(find)} sh {shlex.quote(_BOOT)}"


def doorstep_command(python: str) -> str:
    """Return the command that runs the doorstep with a known Python."""
    return f"{shlex.quote(python)} -I -c {shlex.quote(_BOOT)}"


def doorstep_input(order: Mapping[str, Any]) -> bytes:
    """Return the doorstep's standard input: its own source text, then its order."""
    text = resources.files("agent.fleet.remote").joinpath("doorstep.py").read_bytes()
    return f"{len(text)}\n".encode() + text + json.dumps(order).encode() + b"\n"


def bundle_command(python: str, base: str, bundle: str, verb: str, run_dir: str) -> str:
    """Return the command that runs the bundle's program."""
    words = [python, "-I", f"{base}/bundles/{bundle}/vcagent", "fleet-host", verb, run_dir]
    return shlex.join(words)


def too_old(stderr: str) -> str:
    """Return the Pythons that the first command found too old, such as ``3.6.8 (python3)``."""
    for line in stderr.splitlines():
        if FOUND_PYTHONS in line:
            return line.partition(FOUND_PYTHONS)[2].removeprefix(", ")
    return ""


def privileged(command: str, sudo: str, password: str | None) -> tuple[str, bytes]:
    """Return a command, run as root if required, and the bytes that must precede its input.

    Args:
        command: the command.
        sudo: how to use sudo: ``free`` (without a password), ``password``; any other value for no sudo.
        password: the sudo password; it is passed on standard input.

    Raises:
        HostUnfitError: if sudo wants a password and none is given.
    """
    if sudo == "free":
        return f"sudo -n -- {command}", b""
    if sudo == "password":
        if password is None:
            raise HostUnfitError(
                "sudo wants a password on the host", remedy="give it with --ask-sudo-password"
            )
        return f"sudo -k -S -p '' -- {command}", f"{password}\n".encode()
    return command, b""
