"""``~/.ssh/config`` as paramiko reads it, with what paramiko does not know.

That is ``Include``, comments behind values, ``CertificateFile``, and what is said elsewhere and counts first.
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
"""As OpenSSH has it (readconf.c, READCONF_MAX_DEPTH)."""

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
"""What paramiko can match, and how many words follow; what it does not know would match everything."""

_CERTIFICATE = "certificate:"
"""Marks a certificate among the identity files, the only option of which paramiko keeps more than one."""


class _Config(SSHConfig):
    """Leaves tokens to us: paramiko fills in too few, and some of them before it knows the host's name."""

    def __init__(self) -> None:
        super().__init__()
        known = self.TOKENS_BY_CONFIG_KEY
        self.TOKENS_BY_CONFIG_KEY = {name: known[name] for name in ("hostname", "match-exec")}


class HostOptions:
    """What a configuration says of hosts.

    Args:
        text: all of it, for paramiko.

    Raises:
        ConfigParseError: if paramiko cannot read it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._configs = lru_cache(maxsize=64)(self._config)
        self._configs(None, None)

    def of(self, name: str, user: str | None, port: int | None) -> dict[str, object]:
        """The options of a host, by their names in lower case; tokens are only filled in in HostName.

        Args:
            name: of the host, as it is typed.
            user: whom to log in as, where it is said elsewhere: that counts first.
            port: its port, likewise.
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
    """Read a configuration; one that is not there is empty.

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
    """The lines of a file, those of included files in their place.

    Behind an included file the block that it stands in is opened anew (ssh_config(5), Include).
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
    """A line without what is behind a ``#`` that begins a word and is not quoted."""
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
    """What a block is to match, as paramiko takes it: ``host a``, where OpenSSH takes ``Host=a`` as well.

    Raises:
        UsageError: if it is something that paramiko cannot tell.
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
    """The files that a pattern means; a relative one lies beside the configuration."""
    whole = folder / Path(pattern).expanduser()
    anchor = Path(whole.anchor)
    yield from sorted(anchor.glob(str(whole.relative_to(anchor))))
