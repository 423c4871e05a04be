"""Reads Ansible's YAML inventories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.fleet.inventory.host_address import host_address
from agent.fleet.inventory.variables import ansible_only, as_ansible

if TYPE_CHECKING:
    from agent.fleet.inventory.draft import Draft

_PARTS = ("hosts", "vars", "children")


def read_ansible_groups(groups: Mapping[Any, Any], draft: Draft, name: str) -> None:
    """Read groups with their hosts, vars and children (docs.ansible.com, "ansible.builtin.yaml inventory").

    Args:
        groups: the file's content.
        draft: receives the hosts, groups and variables.
        name: the file name for messages.

    Raises:
        UsageError: if the file cannot be read; the message names the group.
    """
    for group, content in groups.items():
        where = f"{name}: group {group}"
        parts = _mapping(content, where)
        if unknown := [part for part in parts if part not in _PARTS]:
            raise UsageError(
                f"a group has {', '.join(_PARTS)}, not {unknown[0]!r}",
                where=where,
                remedy="put hosts below hosts:, groups below children:",
            )
        variables = _mapping(parts.get("vars"), f"{where}: vars")
        draft.add_group_variables(str(group), ansible_only(variables))
        for host, own in _mapping(parts.get("hosts"), f"{where}: hosts").items():
            at = f"{where}: host {host}"
            pattern, addressed = host_address(host, at)
            draft.add_host(pattern, {**as_ansible(addressed), **ansible_only(_mapping(own, at))}, str(group))
        children = _mapping(parts.get("children"), f"{where}: children")
        for child in children:
            draft.add_child(str(group), str(child))
        read_ansible_groups(children, draft, name)


def _mapping(value: object, where: str) -> dict[str, Any]:
    """Return a mapping; a list of names or one name becomes a mapping to None."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(key): content for key, content in value.items()}
    if isinstance(value, str):
        return {value: None}
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return dict.fromkeys(value)
    raise UsageError(f"names are expected here, not {type(value).__name__}", where=where)
