"""Reads inventories of all formats, with the group_vars and host_vars beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from agent.core.errors import UsageError
from agent.fleet.inventory.ansible_ini import read_ini
from agent.fleet.inventory.ansible_yaml import read_ansible_groups
from agent.fleet.inventory.draft import UNGROUPED, Draft
from agent.fleet.inventory.own_yaml import OWN_KEYS, read_own
from agent.fleet.inventory.variables import Vaulted, ansible_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.fleet.inventory.host import Inventory

_IGNORED = re.compile(
    r"\..*|.*~|.*\.(?:bak|cfg|csv|ini\.orig|log|md|orig|py|pyc|retry|swp)|(?:group|host)_vars"
)
_YAML = frozenset({".yaml", ".yml", ".json"})
_YAML_BEGIN = re.compile(r"(?:#.*\n|[ \t\r]*\n)*(?:---|- )")


class _Loader(yaml.SafeLoader):
    """The safe loader, extended to accept Ansible's own tags."""


_Loader.add_constructor("!vault", lambda _loader, _node: Vaulted())
_Loader.add_constructor("!vault-encrypted", lambda _loader, _node: Vaulted())
_Loader.add_constructor("!unsafe", lambda _loader, node: node.value)


def read_inventory(references: Iterable[str]) -> Inventory:
    """Read inventories and merge them; later ones override earlier ones.

    Args:
        references: files, folders of files, or the hosts themselves: ``a,b``, ``user@host:port``.

    Raises:
        UsageError: if an inventory cannot be read; the message names the place in the file.
    """
    draft = Draft()
    for reference in references:
        path = Path(reference).expanduser()
        if path.is_dir():
            for file in sorted(path.iterdir()):
                if file.is_file() and not _IGNORED.fullmatch(file.name):
                    _read_file(file, draft)
            _read_beside(path, draft)
        elif path.is_file():
            _read_file(path, draft)
            _read_beside(path.parent, draft)
        elif "," in reference or "@" in reference:
            for text in filter(None, map(str.strip, reference.split(","))):
                draft.add_address(text, {}, UNGROUPED, "--inventory")
        else:
            raise UsageError(
                f"the inventory {reference} does not exist",
                remedy=f"name a file, or write hosts with a comma: --inventory {reference},",
            )
    return draft.inventory()


def read_text(text: str, name: str, draft: Draft) -> None:
    """Read the text of an inventory.

    Args:
        text: the content.
        name: the file name, for messages; its suffix decides the format.
        draft: receives the hosts, groups and variables.

    Raises:
        UsageError: if the text cannot be read; the message names the place.
    """
    if Path(name).suffix.lower() in _YAML or _YAML_BEGIN.match(text):
        content = _yaml(text, name)
    else:
        content = _groups(text)
        if content is None:
            read_ini(text, draft, name)
            return
    if isinstance(content, list):
        content = {"hosts": content}
    if not isinstance(content, Mapping):
        raise UsageError(
            "the inventory is empty" if content is None else "this is not an inventory",
            where=name,
            remedy="write hosts: with a list of hosts",
        )
    if "plugin" in content:
        raise UsageError(
            f"the inventory needs Ansible's plugin {content['plugin']}",
            where=name,
            remedy="write a static inventory: ansible-inventory --list --yaml --output hosts.yaml",
        )
    if set(content) & set(OWN_KEYS):
        read_own(content, draft, name)
    else:
        read_ansible_groups(content, draft, name)


def _groups(text: str) -> Mapping[Any, Any] | None:
    """Return a text of unknown format as YAML; None if it is not a mapping to groups and lists."""
    try:
        content = _yaml(text, "")
    except UsageError:
        return None
    if isinstance(content, Mapping) and all(
        isinstance(part, (Mapping, list, type(None))) for part in content.values()
    ):
        return content
    return None


def _yaml(text: str, name: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - derived from the safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise UsageError(
            f"this is not YAML: {getattr(error, 'problem', None) or error}",
            where=f"{name}:{mark.line + 1}" if mark else name,
        ) from error


def _read_file(path: Path, draft: Draft) -> None:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(f"the inventory cannot be read: {error}", where=str(path)) from error
    if text.startswith("#!"):
        raise UsageError(
            "the inventory is a program",
            where=str(path),
            remedy=f"write a static inventory: ansible-inventory -i {path} --list --yaml --output hosts.yaml",
        )
    read_text(text, str(path), draft)


def _read_beside(folder: Path, draft: Draft) -> None:
    """Read group_vars and host_vars (docs.ansible.com, "Organizing host and group variables")."""
    groups, hosts = draft.names
    for group in groups:
        for file in _variable_files(folder / "group_vars" / group):
            draft.add_group_variables(group, _variables(file))
    for host in hosts:
        for file in _variable_files(folder / "host_vars" / host):
            draft.add_host_variables(host, _variables(file))


def _variable_files(path: Path) -> Iterator[Path]:
    for file in (path, *(path.with_name(path.name + suffix) for suffix in sorted(_YAML))):
        if file.is_file():
            yield file
    if path.is_dir():
        yield from sorted(
            file for file in path.rglob("*") if file.is_file() and not _IGNORED.fullmatch(file.name)
        )


def _variables(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"the variables cannot be read: {error}", where=str(path)) from error
    if text.startswith("$ANSIBLE_VAULT"):
        return {}
    content = _yaml(text, str(path))
    return ansible_only(content) if isinstance(content, Mapping) else {}
