"""Reads vcagent's own inventories: hosts, groups and variables in YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent.core.errors import UsageError
from agent.core.names import did_you_mean
from agent.fleet.inventory.draft import ALL, Draft
from agent.fleet.inventory.variables import check_own

OWN_KEYS = ("hosts", "groups", "variables")


def read_own(content: Mapping[str, Any], draft: Draft, name: str) -> None:
    """Read an inventory of hosts, groups and variables.

    Args:
        content: the file's content.
        draft: receives the hosts, groups and variables.
        name: the file name for messages.

    Raises:
        UsageError: if the file cannot be read; the message names the place.
    """
    _read_group(ALL, content, draft, name)


def _read_group(group: str, content: object, draft: Draft, where: str) -> None:
    if isinstance(content, list):
        content = {"hosts": content}
    if not isinstance(content, Mapping):
        raise UsageError("a group is a mapping with hosts, groups or variables", where=where)
    for key in content:
        if key not in OWN_KEYS:
            raise UsageError(f"unknown key {key!r}", where=where, remedy=did_you_mean(str(key), OWN_KEYS))
    draft.add_group_variables(group, check_own(content.get("variables"), f"{where}: variables"))
    _add_hosts(group, content.get("hosts"), draft, where)
    inner = content.get("groups") or {}
    if isinstance(inner, list):  # only names: the groups are described elsewhere
        inner = {key_0: {} for key_0 in inner}
    if not isinstance(inner, Mapping):
        raise UsageError("groups must be written as name: {hosts: …}", where=f"{where}: groups")
    for child, described in inner.items():
        if group != ALL:
            draft.add_child(group, str(child))
        _read_group(str(child), described or {}, draft, f"{where}: group {child}")


def _add_hosts(group: str, hosts: object, draft: Draft, where: str) -> None:
    for host, variables in _hosts(hosts, f"{where}: hosts"):
        own = check_own(variables, f"{where}: host {host}")
        if "address" in own:  # then the name is only a label
            draft.add_host(host, own, group)
        else:
            draft.add_address(host, own, group, f"{where}: hosts")


def _hosts(value: object, where: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((str(name), variables) for name, variables in value.items())
        return
    if not isinstance(value, (list, type(None))):
        raise UsageError("hosts must be a list, or written as name: {variables}", where=where)
    for entry in value or ():
        if isinstance(entry, Mapping) and "name" in entry:
            yield str(entry["name"]), {key: one for key, one in entry.items() if key != "name"}
        elif isinstance(entry, Mapping) and len(entry) == 1:
            yield from ((str(name), variables) for name, variables in entry.items())
        elif isinstance(entry, (str, int)):
            yield str(entry), None
        else:
            raise UsageError(
                f"{entry!r} does not name a host", where=where, remedy="write its name, or name: …"
            )
