"""A draft that the inventory readers fill: hosts, groups and variables as written, before they are merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.fleet.inventory.host import FleetHost, Inventory
from agent.fleet.inventory.host_address import host_address
from agent.fleet.inventory.ranges import expanded
from agent.fleet.inventory.variables import fleet_host, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ALL = "all"
UNGROUPED = "ungrouped"


@dataclass
class _Group:
    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)


class Draft:
    """The hosts, groups and variables of one or more files."""

    def __init__(self) -> None:
        self._hosts: dict[str, dict[str, Any]] = {}
        self._groups: dict[str, _Group] = {ALL: _Group()}

    def add_host(
        self, pattern: str, variables: Mapping[str, Any] | None = None, group: str | None = None
    ) -> None:
        """Add a host or a range such as ``gpu[01:16]``; variables given again replace earlier ones.

        Raises:
            UsageError: if the range is not valid.
        """
        for name in expanded(pattern):
            self._hosts[name] = merged(self._hosts.get(name, {}), variables or {})
            if group:
                self.group(group).hosts[name] = None

    def add_address(
        self,
        text: str,
        variables: Mapping[str, Any],
        group: str,
        where: str,
        spelled: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        """Add a host written as ``user@host:port``; a second host of the same name is named with its port.

        Args:
            text: the address.
            variables: the host's variables; they take precedence over those of the address.
            group: the group of the host.
            where: the place in the file, for messages.
            spelled: renames the variables of the address to the names that this file format uses.

        Raises:
            UsageError: if the text is not an address.
        """
        pattern, own = host_address(text, where)
        addressed = spelled(own)
        names = expanded(pattern)
        taken = [name for name in names if name in self._hosts]
        port = spelled({"port": own["port"]} if "port" in own else {})
        if any(not port.items() <= self._hosts[name].items() for name in taken):
            for name in names:
                several = {**spelled({"address": name}), **addressed, **variables}
                self.add_host(f"{name}:{own['port']}", several, group)
            return
        self.add_host(pattern, {**addressed, **variables}, group)

    def group(self, name: str) -> _Group:
        """Return a group; create it if necessary."""
        return self._groups.setdefault(name, _Group())

    def add_child(self, parent: str, child: str) -> None:
        """Make one group part of another."""
        self.group(parent).children[child] = None
        self.group(child)

    def add_group_variables(self, group: str, variables: Mapping[str, Any]) -> None:
        """Add variables for all hosts of a group."""
        made = self.group(group)
        made.variables = merged(made.variables, variables)

    def add_host_variables(self, name: str, variables: Mapping[str, Any]) -> None:
        """Add variables for one host."""
        self._hosts[name] = merged(self._hosts[name], variables)

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """The names of the groups and hosts that were added so far."""
        return list(self._groups), list(self._hosts)

    def inventory(self) -> Inventory:
        """Merge the draft: variables of inner groups and of the host override those of outer groups.

        Among groups of the same depth the name later in the alphabet wins, or the higher
        ``ansible_group_priority`` (docs.ansible.com, "How variables are merged").

        Raises:
            UsageError: if a group contains itself.
        """
        parents = self._parents()
        depths = {name: self._depth(name, parents, ()) for name in self._groups}
        members = {name: list(self._members(name)) for name in self._groups}
        grouped = {host for name, found in members.items() if name not in (ALL, UNGROUPED) for host in found}
        members |= {ALL: list(self._hosts), UNGROUPED: [host for host in self._hosts if host not in grouped]}
        within = {name: frozenset(found) for name, found in members.items()}
        hosts: dict[str, FleetHost] = {}
        refused: dict[str, UsageError] = {}
        for host, own in self._hosts.items():
            groups = sorted(
                (name for name in self._groups if host in within[name]),
                key=lambda name: (depths[name], self._priority(name), name),
            )
            variables: dict[str, Any] = {}
            for name in groups:
                variables = merged(variables, self._groups[name].variables)
            named = tuple(name for name in groups if name not in (ALL, UNGROUPED))
            try:
                hosts[host] = fleet_host(host, merged(variables, own), named)
            except UsageError as error:
                hosts[host], refused[host] = FleetHost(host, host, groups=named), error
        return Inventory(hosts, {name: tuple(found) for name, found in members.items()}, refused)

    def _parents(self) -> dict[str, list[str]]:
        parents: dict[str, list[str]] = {name: [] for name in self._groups}
        for name, group in self._groups.items():
            for child in group.children:
                parents[child].append(name)
        return parents

    def _depth(self, name: str, parents: Mapping[str, list[str]], below: tuple[str, ...]) -> int:
        if name in below:
            raise UsageError(f"the group {name} contains itself: {' < '.join((*below, name))}")
        if name == ALL:
            return 0
        return 1 + max((self._depth(parent, parents, (*below, name)) for parent in parents[name]), default=0)

    def _members(self, name: str) -> Iterator[str]:
        seen: dict[str, None] = {}
        for child in self._groups[name].children:
            seen.update(dict.fromkeys(self._members(child)))
        seen.update(self._groups[name].hosts)
        yield from (host for host in self._hosts if host in seen)

    def _priority(self, name: str) -> int:
        try:
            return int(self._groups[name].variables.get("ansible_group_priority", 1))
        except (TypeError, ValueError):
            return 1
