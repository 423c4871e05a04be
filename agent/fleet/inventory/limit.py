"""Selects hosts of an inventory by patterns as ``ansible --limit`` takes them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.core.names import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.fleet.inventory.host import FleetHost, Inventory

_PART = re.compile(r"(?:\(\?:|\[[^\]]*\]|[^:])+")
"""Separators between patterns, except the colons of ``[0:3]`` and of a regular expression's ``(?:``."""

_SUBSCRIPT = re.compile(r"(?P<name>.+)\[(?:(?P<at>-?\d+)|(?P<first>\d+)?:(?P<last>-?\d+)?)\]")


def limited(
    inventory: Inventory, limit: str, warn: Callable[[str], object] = lambda _text: None
) -> list[FleetHost]:
    """Return the hosts that a pattern selects, in the order of the inventory.

    Patterns are joined by commas or colons: names, groups, ``web*``, ``~regex``, ``group[0]``,
    ``group[0:3]``, ``@file`` with one pattern per line. ``&b`` keeps only hosts in b, ``!c`` removes those of
    c
    (docs.ansible.com, "Patterns: targeting hosts and groups").

    Args:
        inventory: all hosts.
        limit: the pattern; empty for all.
        warn: called with a message for each excluded pattern that matches nothing; as with Ansible, that is
            not an error.

    Raises:
        UsageError: if another part matches no host, no host is left, or a host's variables cannot be used.
    """
    parts = [limit] if limit in inventory.hosts else _parts(limit)
    wanted = [part for part in parts if part[0] not in "&!"]
    chosen = set().union(*(_matching(part, inventory) for part in wanted)) if wanted else set(inventory.hosts)
    for part in parts:
        if part[0] == "&":
            chosen &= _matching(part[1:], inventory)
    for part in parts:
        if part[0] == "!":
            try:
                chosen -= _matching(part[1:], inventory)
            except _FitsNothingError as error:
                warn(f"{error.message}, so it excludes no host; {error.remedy or ''}".rstrip("; "))
    if not chosen:
        raise UsageError(f"--limit {limit} selects no host" if limit else "the inventory has no hosts")
    for name in inventory.refused:
        if name in chosen:
            raise inventory.refused[name]
    return [host for name, host in inventory.hosts.items() if name in chosen]


class _FitsNothingError(UsageError):
    """A pattern matches no host and no group."""


def _parts(limit: str) -> list[str]:
    if limit.startswith("@"):
        return _from_file(limit)
    parts = limit.split(",") if "," in limit else _PART.findall(limit)
    found: list[str] = []
    for part in map(str.strip, parts):
        found += _from_file(part) if part.startswith("@") else [part] if part else []
    return found


def _from_file(part: str) -> list[str]:
    try:
        lines = Path(part[1:]).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"the file of --limit {part} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _matching(pattern: str, inventory: Inventory) -> set[str]:
    if pattern in ("all", "*"):
        return set(inventory.hosts)
    subscript = None if pattern.startswith("~") else _SUBSCRIPT.fullmatch(pattern)
    if subscript:
        among = _named(subscript["name"], inventory)
        ordered = [name for name in inventory.hosts if name in among]
        if subscript["at"]:
            at = int(subscript["at"])
            found = set(ordered[at : at + 1 or None])
        else:
            first, last = int(subscript["first"] or 0), subscript["last"]
            found = set(ordered[first : (int(last) + 1 or None) if last else None])
    else:
        found = _named(pattern, inventory)
    if not found:
        names = [*inventory.groups, *inventory.hosts]
        raise _FitsNothingError(
            f"--limit {pattern!r} matches no host and no group",
            remedy=did_you_mean(pattern, names)
            if nearest(pattern, names)
            else f"groups: {', '.join(sorted(inventory.groups))}",
        )
    return found


def _named(pattern: str, inventory: Inventory) -> set[str]:
    if pattern.startswith("~"):
        try:
            expression = re.compile(pattern[1:])
        except re.error as error:
            raise UsageError(f"--limit {pattern!r} is not a regular expression: {error}") from error

        def fits(name: str) -> bool:
            return bool(expression.match(name))
    else:

        def fits(name: str) -> bool:
            return name == pattern or fnmatchcase(name, pattern)

    of_groups = (members for group, members in inventory.groups.items() if fits(group))
    return {*filter(fits, inventory.hosts), *(name for members in of_groups for name in members)}
