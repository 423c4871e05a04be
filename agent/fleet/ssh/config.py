"""Reads ``~/.ssh/config`` with paramiko, and adds features that paramiko lacks.

These are ``Include``, comments after values, ``CertificateFile``, and the precedence of settings from
elsewhere.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from paramiko import SSHConfig
from paramiko.ssh_exception import ConfigParseError

from agent.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEEPEST = 16
"""OpenSSH's limit for nested includes (readconf.c, READCONF_MAX_DEPTH)."""

_KEYWORD = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")

_CRITERIA = {
    "host": 1,
    "originalhost": 1,
    "user": 1,
    "localuser": 1,
    "exec": 1,
    "all": 0,
    "canonical": 0,
    "final": 0,
}
"""Criteria that paramiko can match, with their number of arguments; it ignores unknown ones."""

_CERTIFICATE = "certificate:"
"""Marks a certificate among the identity files, the only option that paramiko keeps several values of."""


class _Config(SSHConfig):
    """Expands tokens only in HostName and Match exec: paramiko would expand others, some of them early."""

    def __init__(self) -> None:
        super().__init__()
        known = self.TOKENS_BY_CONFIG_KEY
        self.TOKENS_BY_CONFIG_KEY = {name: known[name] for name in ("hostname", "match-exec")}


class HostOptions:
    """The options of hosts in an SSH configuration.

    Args:
        text: the text of the configuration, in paramiko's form.

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
        options: dict[str, object] = dict(self._configs(user, port).lookup(name))
        files = options.get("identityfile")
        names = [str(file) for file in files] if isinstance(files, list) else []
        certificates = [file for file in names if file.startswith(_CERTIFICATE)]
        options["identityfile"] = [file for file in names if file not in certificates]
        options["certificatefile"] = [file.removeprefix(_CERTIFICATE) for file in certificates]
        return options

    def _config(self, user: str | None, port: int | None) -> SSHConfig:
        first = (f'User "{user}"\n' if user else "") + (f"Port {port}\n" if port else "")
        return _Config.from_text(first + self._text)


def read_ssh_config(path: Path) -> HostOptions:
    """Read a configuration; a missing file counts as empty.

    Raises:
        UsageError: if it cannot be read.
    """
    try:
        return HostOptions("\n".join(_lines(path, 0)))
    except ConfigParseError as error:
        raise UsageError(
            f"the SSH configuration cannot be read: {error}",
            where=str(path),
            remedy="correct it, or name another with --ssh-config",
        ) from error


def _lines(path: Path, depth: int) -> Iterator[str]:
    """Yield the lines of a file, with the lines of included files in their place.

    After an included file, the current block is opened again (ssh_config(5), Include).
    """
    if depth > _DEEPEST:
        raise UsageError("the SSH configuration includes itself", where=str(path))
    block = "Host *"
    for number, whole in enumerate(_text(path).splitlines(), start=1):
        line = _without_comment(whole)
        keyword = _KEYWORD.match(line)
        name, value = (keyword[1].lower(), keyword[2].strip()) if keyword else ("", "")
        if name == "include":
            for pattern in value.split():
                for included in _included(pattern.strip('"'), path.parent):
                    yield from _lines(included, depth + 1)
            line = block
        elif name == "certificatefile":
            line = f"IdentityFile {_CERTIFICATE}" + value.strip('"')
        elif name == "match":
            line = block = f"Match {_criteria(value, f'{path}:{number}')}"
        elif name == "host":
            block = line
        yield line


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"the SSH configuration cannot be read: {error}", where=str(path)) from error


def _without_comment(line: str) -> str:
    """Return a line without its comment: a ``#`` at the start of a word, outside quotes."""
    quote = ""
    for at, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and line[at - 1 : at] in ("", " ", "\t"):
            return line[:at].rstrip()
    return line


def _criteria(text: str, where: str) -> str:
    """Return the criteria of a block in paramiko's form: ``host a``; OpenSSH also accepts ``Host=a``.

    Raises:
        UsageError: if paramiko does not support a criterion.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"Match {text} cannot be read: {error}", where=where) from error
    found: list[str] = []
    while words:
        word, equals, value = words.pop(0).partition("=")
        follow = _CRITERIA.get(word.lower().removeprefix("!"))
        if follow is None:
            raise UsageError(
                f"Match {word} is not supported",
                where=where,
                remedy="name a configuration without it: --ssh-config",
            )
        words = [value, *words] if equals else words
        found += [word.lower(), *words[:follow]]
        del words[:follow]
    return shlex.join(found)


def _included(pattern: str, folder: Path) -> Iterator[Path]:
    """Yield the files that match a pattern; relative ones are in the folder of the configuration."""
    whole = folder / Path(pattern).expanduser()
    anchor = Path(whole.anchor)
    yield from sorted(anchor.glob(str(whole.relative_to(anchor))))
