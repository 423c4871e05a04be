"""``~/.ssh/config`` as paramiko reads it, with the ``Include`` that paramiko does not know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from paramiko import SSHConfig
from paramiko.ssh_exception import ConfigParseError

from agent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_ssh_config"]

_DEEPEST = 16
"""As OpenSSH has it (readconf.c, READCONF_MAX_DEPTH)."""

_KEYWORD = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")


def read_ssh_config(path: Path) -> SSHConfig:
    """Read a configuration; one that is not there is empty.

    Raises:
        UsageError: if it cannot be read.
    """
    try:
        return SSHConfig.from_text("\n".join(_lines(path, 0)))
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
    if not path.is_file():
        return
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"the SSH configuration cannot be read: {error}", where=str(path)) from error
    if depth > _DEEPEST:
        raise UsageError("the SSH configuration includes itself", where=str(path))
    block = "Host *"
    for line in text.splitlines():
        keyword = _KEYWORD.match(line)
        name = keyword[1].lower() if keyword else ""
        if keyword and name == "include":
            for pattern in keyword[2].split():
                for included in _included(pattern.strip('"'), path.parent):
                    yield from _lines(included, depth + 1)
            yield block
            continue
        if name in ("host", "match"):
            block = line
        yield line


def _included(pattern: str, folder: Path) -> Iterator[Path]:
    """The files that a pattern means; a relative one lies beside the configuration."""
    whole = folder / Path(pattern).expanduser()
    anchor = Path(whole.anchor)
    yield from sorted(anchor.glob(str(whole.relative_to(anchor))))
