"""The file of repositories that is given to ``vcagent bundle``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.core.errors import HostError, LiftedBy

if TYPE_CHECKING:
    from pathlib import Path

_UNCHECKED = re.compile(
    r"^\s*gpgcheck\s*=\s*(?:0|no|false|off)\b|^[^#\n]*\btrusted(?:=|:\s*)yes\b", re.IGNORECASE | re.MULTILINE
)


def given_repositories(file: Path, form: str) -> str:
    """Return the text of a file with repositories.

    Args:
        file: the file.
        form: what it should be, such as ``a .repo file as in /etc/yum.repos.d``.

    Raises:
        HostError: if it cannot be read, or is not text in UTF-8.
    """
    try:
        return file.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(
            f"the file of repositories {file} cannot be read: {error}",
            remedy=f"correct --repositories: {form}, in UTF-8",
            lifted_by=LiftedBy.NOTHING,
        ) from error


def warning_of(text: str) -> str:
    """Return a warning about repositories whose packages are taken without their signatures; else empty.

    Args:
        text: a ``.repo``, ``.list`` or ``.sources`` file: dnf.conf(5), gpgcheck; sources.list(5), trusted.
    """
    found = _UNCHECKED.search(text)
    return f"warning: packages come without a check of signatures: {found[0].strip()}" if found else ""
