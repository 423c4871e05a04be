"""The locks of dnf 5, a TOML file: packages that stay at their version; vcagent's entries have its comment.

With every ``dnf versionlock add``, dnf 5 writes the whole file again: without the comments of TOML, but with
those of the entries. The text of other entries is never changed here.

Source: dnf5, doc/commands/versionlock.8.rst, "Versionlock file format"; libdnf5/rpm/versionlock_config.cpp.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_VERSION = 'version = "1.0"\n'
_ENTRY = re.compile(r"^(?=\[\[\s*packages\s*\]\])", re.MULTILINE)
_CONDITION = re.compile(r"^\[\[\s*packages\s*\.\s*conditions\s*\]\]", re.MULTILINE)


def with_entries(text: str | None, packages: Mapping[str, str], comment: str) -> str:
    """Return a file with vcagent's entries of one comment replaced.

    Args:
        text: the file; None if there is none.
        packages: versions by name; empty removes the entries.
        comment: the comment of the entries.
    """
    head, *entries = _ENTRY.split(text or "")
    ours = [_comment(entry) == comment for entry in entries]
    if not packages and not any(ours):
        return text or ""
    left = (_left_of(entry) if is_ours else entry for entry, is_ours in zip(entries, ours, strict=True))
    others = (head + "".join(left)).rstrip("\n") + "\n"
    if packages and not is_read(others):
        others = f"{_VERSION}{others}".rstrip("\n") + "\n"
    return others + "".join(f"\n{_entry(*one, comment)}" for one in sorted(packages.items()))


def is_read(text: str | None) -> bool:
    """Return True if dnf reads the entries of a file, which needs a version."""
    return re.search(r"^\s*version\s*=\s*[\"']1\.0[\"']", text or "", re.MULTILINE) is not None


def has_entries(text: str | None) -> bool:
    """Return True if a file has an entry of anybody."""
    return _ENTRY.search(text or "") is not None


def foreign_entries(
    text: str | None, changing: Iterable[str], wanted: Mapping[str, str], ours: Iterable[str]
) -> list[str]:
    """Return others' entries that exclude a wanted version.

    dnf allows the versions of which one entry has all conditions. Conditions with ``<`` and ``>`` are left to
    dnf, which compares versions.

    Args:
        text: the file.
        changing: names of the packages that would change.
        wanted: their new versions.
        ours: the comments of vcagent's entries.
    """
    ours = frozenset(ours)
    entries = [entry for entry in _ENTRY.split(text or "")[1:] if _comment(entry) not in ours]
    found: dict[str, None] = {}
    for name in changing:
        version = with_epoch(wanted[name]) if name in wanted else None
        locks = [entry for entry in entries if fnmatchcase(name, _value(entry, "name"))]
        if locks and all(_allows(entry, version) is False for entry in locks):
            found |= dict.fromkeys(map(_shown, locks))
    return list(found)


def _entry(name: str, version: str, comment: str) -> str:
    return (
        f'[[packages]]\nname = "{name}"\ncomment = "{comment}"\n'
        f'[[packages.conditions]]\nkey = "evr"\ncomparator = "="\nvalue = "{with_epoch(version)}"\n'
    )


def with_epoch(version: str) -> str:
    """Return a version with its epoch, which is 0 if it has none: ``0:550.90.07-1.el9``."""
    return version if ":" in version else f"0:{version}"


def _left_of(entry: str) -> str:
    """Return what follows a removed entry: comments above the next one."""
    lines = entry.splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    rest = "".join(lines[last + 1 :])
    return rest.lstrip("\n") if rest.strip() else ""


def _value(block: str, key: str) -> str:
    match = re.search(rf"^\s*{key}\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", block, re.MULTILINE)
    return (match.group(1) or match.group(2) or "") if match else ""


def _comment(entry: str) -> str:
    return _value(_CONDITION.split(entry)[0], "comment")


def _conditions(entry: str) -> list[tuple[str, str, str]]:
    parts = _CONDITION.split(entry)[1:]
    return [(_value(part, "key"), _value(part, "comparator"), _value(part, "value")) for part in parts]


def _allows(entry: str, version: str | None) -> bool | None:
    """Return whether an entry allows a version; None if only dnf can tell."""
    told: list[bool | None] = []
    for key, comparator, value in _conditions(entry):
        if key == "evr" and comparator in ("=", "!=") and version is not None:
            told.append((with_epoch(value) == version) is (comparator == "="))
        else:
            told.append(None)
    return False if False in told else (None if None in told else True)


def _shown(entry: str) -> str:
    conditions = (" ".join(condition) for condition in _conditions(entry))
    return f"{_value(entry, 'name')} ({', '.join(conditions)})"
