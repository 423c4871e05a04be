"""Reads Ansible's INI inventories, and plain lists of ``user@host:port``, which are INI without sections."""

from __future__ import annotations

import ast
import re
import shlex
from typing import Any

from agent.core.errors import UsageError
from agent.fleet.inventory.draft import UNGROUPED, Draft
from agent.fleet.inventory.variables import ansible_only, as_ansible

_SECTION = re.compile(r"\[([^:\]]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_COMMENT = re.compile(r"\s+#.*$")


def read_ini(text: str, draft: Draft, name: str) -> None:
    """Read an inventory (docs.ansible.com, "ansible.builtin.ini inventory").

    Args:
        text: the file's content.
        draft: receives the hosts, groups and variables.
        name: the file name for messages.

    Raises:
        UsageError: with the line, if it cannot be read.
    """
    group, kind = UNGROUPED, "hosts"
    for number, raw in enumerate(text.splitlines(), start=1):
        line, where = raw.strip(), f"{name}:{number}"
        if not line or line[0] in "#;":
            continue
        if section := _SECTION.fullmatch(line):
            group, kind = section[1].strip(), section[2] or "hosts"
            if kind not in ("hosts", "vars", "children"):
                raise UsageError(
                    f"[{group}:{kind}] is not a section",
                    where=where,
                    remedy=f"[{group}:vars] or [{group}:children]",
                )
            draft.group(group)
        elif kind == "children":
            draft.add_child(group, _COMMENT.sub("", line))
        elif kind == "vars":
            variable, equals, value = line.partition("=")
            if not equals:
                raise UsageError(f"{line!r} is not written name=value", where=where)
            draft.add_group_variables(group, ansible_only({variable.strip(): _literal(value.strip())}))
        elif line[0] == "[" and line[-1] == "]":
            raise UsageError(
                f"{line} is not a section", where=where, remedy="[group], [group:vars] or [group:children]"
            )
        else:
            _host(line, draft, group, where)


def _host(line: str, draft: Draft, group: str, where: str) -> None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise UsageError(f"a quote is not closed: {line!r}", where=where) from error
    if not words:
        return
    if words[0].endswith(":"):
        raise UsageError(
            f"{words[0]!r} is not a host",
            where=where,
            remedy="if the file is YAML, its name must end in .yaml",
        )
    variables: dict[str, Any] = {}
    for word in words[1:]:
        variable, equals, value = word.partition("=")
        if not equals:
            raise UsageError(
                f"{word!r} is not written name=value",
                where=where,
                remedy="write one host per line, followed by its variables",
            )
        variables[variable] = _literal(value)
    draft.add_address(words[0], ansible_only(variables), group, where, as_ansible)


def _literal(text: str) -> Any:
    """Return a value as Ansible reads it: a Python literal if possible, otherwise text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
