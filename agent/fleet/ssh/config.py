"""Reads ``~/.ssh/config`` with paramiko, on controllers without OpenSSH.

A configuration that paramiko would misread is refused: it ignores ``Include``, ``CertificateFile`` and
unknown criteria of ``Match``, and takes comments for values.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING

from paramiko import SSHConfig
from paramiko.ssh_exception import ConfigParseError

from agent.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")
_IGNORED = ("include", "certificatefile")
_CRITERIA = {"host", "originalhost", "user", "localuser", "exec", "all", "canonical", "final"}
"""Criteria of Match that paramiko knows."""
_WITHOUT_ARGUMENT = {"all", "canonical", "final"}


class _Config(SSHConfig):
    """Expands tokens only in HostName and Match exec: paramiko would expand others, some of them early."""

    def __init__(self) -> None:
        super().__init__()
        known = self.TOKENS_BY_CONFIG_KEY
        self.TOKENS_BY_CONFIG_KEY = {name: known[name] for name in ("hostname", "match-exec")}


class HostOptions:
    """The options of hosts in an SSH configuration.

    Args:
        text: the text of the configuration.

    Raises:
        ConfigParseError: if paramiko cannot read it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._configs = lru_cache(maxsize=64)(self._config)
        self._configs(None, None)

    def of(self, name: str, user: str | None, port: int | None) -> dict[str, object]:
        """Return the options of a host by their lower-case names; tokens are expanded only in HostName.

        Args:
            name: the host name as typed.
            user: the user if it is given elsewhere; it takes precedence.
            port: the port if it is given elsewhere; it takes precedence.
        """
        none: dict[str, object] = {"identityfile": [], "certificatefile": []}
        return {**none, **self._configs(user, port).lookup(name)}

    def _config(self, user: str | None, port: int | None) -> SSHConfig:
        first = (f'User "{user}"\n' if user else "") + (f"Port {port}\n" if port else "")
        return _Config.from_text(first + self._text)


def read_ssh_config(path: Path) -> HostOptions:
    """Read a configuration; a missing file counts as empty.

    Raises:
        UsageError: if it cannot be read, or only OpenSSH can read it.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for number, line in enumerate(text.splitlines(), start=1):
            if refused := _misread(line):
                raise UsageError(
                    f"without OpenSSH, the SSH configuration may not have {refused}",
                    where=f"{path}:{number}",
                    remedy="install OpenSSH's client (ssh), or name another configuration with --ssh-config",
                )
        return HostOptions(text)
    except (ConfigParseError, OSError) as error:
        raise UsageError(
            f"the SSH configuration cannot be read: {error}",
            where=str(path),
            remedy="correct it, or name another with --ssh-config",
        ) from error


def _misread(line: str) -> str:
    """Return the part of a line that paramiko would misread; empty if there is none."""
    found = _LINE.match(line)
    name, value = (found[1], found[2]) if found else ("", "")
    if name.lower() in _IGNORED:
        return name
    if name.lower() != "proxycommand" and any(word.startswith("#") for word in value.split()):
        return "a comment behind a value"
    return _unknown_criterion(value) if name.lower() == "match" else ""


def _unknown_criterion(value: str) -> str:
    """Return the first criterion of a Match that paramiko does not know; empty if there is none."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        return f"Match {value}: {error}"
    while words:
        word = words.pop(0)
        criterion = word.lower().removeprefix("!")
        if criterion not in _CRITERIA:
            return f"Match {word}"
        if criterion not in _WITHOUT_ARGUMENT:
            words = words[1:]
    return ""
