"""Converts the variables of an inventory, vcagent's or Ansible's, into a host's settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.core.errors import UsageError
from agent.core.names import did_you_mean
from agent.fleet.inventory.host import FleetHost
from agent.fleet.inventory.host_address import host_address

OWN_VARIABLES = (
    *("address", "port", "user", "identity_file", "proxy_jump", "proxy_command", "ssh_config"),
    *("sudo", "python", "host_dir", "parameters"),
)
"""The variables of a host or a group in vcagent's own inventories."""

_ANSIBLE = {
    "address": ("ansible_host", "ansible_ssh_host"),
    "port": ("ansible_port", "ansible_ssh_port"),
    "user": ("ansible_user", "ansible_ssh_user"),
    "identity_file": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "sudo": ("ansible_become",),
    "python": ("ansible_python_interpreter",),
    "password": ("ansible_password", "ansible_ssh_pass"),
    "sudo_password": ("ansible_become_password", "ansible_become_pass"),
    "ssh_arguments": ("ansible_ssh_common_args",),
    "more_ssh_arguments": ("ansible_ssh_extra_args", "ansible_ssh_args"),
    "parameters": ("vcagent_parameters",),
    "host_dir": ("vcagent_host_dir",),
}
"""Ansible's names for each variable, in order of precedence (docs.ansible.com, "Connecting to hosts:
behavioral inventory parameters"). Those that begin with ``vcagent_`` are vcagent's own, for inventories that
both programs read."""

_CONNECTION = "ansible_connection"
_SSH_CONNECTIONS = frozenset({"ssh", "smart", "paramiko", "paramiko_ssh", "libssh"})
"""Ansible's SSH connections; a collection name may precede them (``ansible.builtin.ssh``)."""

_ANSIBLE_NAMES = frozenset({_CONNECTION, "ansible_group_priority"}.union(*_ANSIBLE.values()))

_YES = frozenset({"true", "yes", "on", "1", "y", "t"})
_NO = frozenset({"false", "no", "off", "0", "n", "f", ""})
_MOST_PORT = 65535
_OPTION = re.compile(r"\s*=\s*|\s+")


@dataclass(frozen=True)
class Vaulted:
    """A value that Ansible Vault encrypted; only Ansible can read it."""


def merged(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the variables of an inner group or host into outer ones; parameters are merged one by one."""
    result = {**outer, **inner}
    for name in ("parameters", "vcagent_parameters"):
        if isinstance(outer.get(name), Mapping) and isinstance(inner.get(name), Mapping):
            result[name] = {**outer[name], **inner[name]}
    return result


def ansible_only(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables that are used of an Ansible file: ``port`` there belongs to an application."""
    return {name: value for name, value in variables.items() if name in _ANSIBLE_NAMES}


def as_ansible(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return vcagent's variables under Ansible's names."""
    return {_ANSIBLE[name][0]: value for name, value in own.items()}


def fleet_host(name: str, variables: Mapping[str, Any], groups: tuple[str, ...]) -> FleetHost:
    """Create a host from all variables that apply to it.

    Raises:
        UsageError: if a value cannot be used.
    """
    where = f"host {name}"
    connection = _first(variables, (_CONNECTION,), where)
    if connection is not None and str(connection).rpartition(".")[2] not in _SSH_CONNECTIONS:
        raise UsageError(
            f"{_CONNECTION} is {connection}, but a fleet run needs SSH",
            where=where,
            remedy=f"exclude the host: --limit 'all,!{name}'"
            + ("; to run on this machine: vcagent --profile" if connection == "local" else ""),
        )
    values = {own: _first(variables, (own, *ansible), where) for own, ansible in _ANSIBLE.items()}
    arguments = _SshArguments(where)
    for key in ("ssh_arguments", "more_ssh_arguments"):
        arguments.read(values[key])
    jump = _first(variables, ("proxy_jump",), where) or arguments.proxy_jump
    identities = values["identity_file"] or []
    address, addressed = host_address(str(values["address"]), where) if values["address"] else (name, {})
    return FleetHost(
        name=name,
        address=address,
        port=_port(values["port"], where) or arguments.port or _port(addressed.get("port"), where),
        user=_text(values["user"]) or arguments.user or addressed.get("user"),
        identity_files=(
            *map(str, identities if isinstance(identities, list) else [identities]),
            *arguments.identity_files,
        ),
        proxy_jump=",".join(map(str, jump)) if isinstance(jump, list) else _text(jump),
        proxy_command=_text(_first(variables, ("proxy_command",), where)) or arguments.proxy_command,
        ssh_config=_text(_first(variables, ("ssh_config",), where)) or arguments.ssh_config,
        sudo=_truth(values["sudo"], "sudo", where),
        python="" if str(values["python"] or "").startswith("auto") else str(values["python"] or ""),
        password=_text(values["password"]),
        sudo_password=_text(values["sudo_password"]),
        parameters=_parameters(values["parameters"], where),
        groups=groups,
        host_dir=str(values["host_dir"] or ""),
    )


def check_own(variables: object, where: str) -> dict[str, Any]:
    """Check variables of one of vcagent's own inventories; unknown names are rejected.

    Raises:
        UsageError: if a name is unknown; the message suggests similar names, and rejects passwords.
    """
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        raise UsageError(
            f"variables must be written as name: value, not {type(variables).__name__}", where=where
        )
    for name in variables:
        if name not in OWN_VARIABLES:
            raise UsageError(
                f"unknown variable {name!r}",
                where=where,
                remedy="passwords are not allowed in an inventory: use --ask-password"
                if "pass" in str(name)
                else did_you_mean(str(name), OWN_VARIABLES),
            )
    return dict(variables)


class _SshArguments:
    """The settings in ``ansible_ssh_common_args`` that affect how a host is reached; others are ignored."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.port: int | None = None
        self.user: str | None = None
        self.identity_files: tuple[str, ...] = ()
        self.proxy_jump: str | None = None
        self.proxy_command: str | None = None
        self.ssh_config: str | None = None

    def read(self, text: object) -> None:
        """Read the arguments of an ``ssh`` command line."""
        try:
            words = shlex.split(str(text or ""))
        except ValueError as error:
            raise UsageError(
                f"the SSH arguments {text!r} cannot be parsed: {error}", where=self._where
            ) from error
        while words:
            word = words.pop(0)
            letter, attached = word[:2], word[2:]
            if letter not in ("-o", "-F", "-J", "-i", "-p", "-l"):
                continue
            value = attached or (words.pop(0) if words else "")
            if letter == "-o":
                letter, value = (*_OPTION.split(value.strip(), maxsplit=1), "")[:2]
                letter = letter.lower()
            self._set(letter, value.strip('"'))

    def _set(self, option: str, value: str) -> None:
        if option == "-F":
            self.ssh_config = value
        elif option in ("-J", "proxyjump"):
            self.proxy_jump = value
        elif option == "proxycommand":
            self.proxy_command = value
        elif option in ("-i", "identityfile"):
            self.identity_files += (value,)
        elif option in ("-l", "user"):
            self.user = value
        elif option in ("-p", "port"):
            self.port = _port(value, self._where)


def _first(variables: Mapping[str, Any], names: tuple[str, ...], where: str) -> Any:
    for name in names:
        value = variables.get(name)
        if value is None:
            continue
        is_template = isinstance(value, str) and ("{{" in value or "{%" in value)
        if "pass" in name and (is_template or isinstance(value, Vaulted)):  # the user is asked instead
            return None
        if isinstance(value, Vaulted):
            raise UsageError(
                f"{name} is encrypted by Ansible Vault",
                where=where,
                remedy="only Ansible can read it: write it unencrypted, or put it into ~/.ssh/config",
            )
        if is_template:
            raise UsageError(
                f"{name} is a template: {value}",
                where=where,
                remedy="only Ansible fills templates, and ansible-inventory leaves them as they are: "
                "put the value itself there, or into a second --inventory",
            )
        return value
    return None


def _text(value: object) -> str | None:
    return str(value) if value not in (None, "") else None


def _port(value: object, where: str) -> int | None:
    if value in (None, ""):
        return None
    text = str(value)
    if not text.isdigit() or not 0 < int(text) <= _MOST_PORT:
        raise UsageError(f"{text!r} is not a port", where=where, remedy="a port is a number from 1 to 65535")
    return int(text)


def _truth(value: object, name: str, where: str) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _YES | _NO:
        return text in _YES
    raise UsageError(f"{name} is {value!r}, which is neither true nor false", where=where)


def _parameters(value: object, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, Mapping) and not any(isinstance(one, (Mapping, list)) for one in value.values()):
        return {
            str(name): str(one).lower() if isinstance(one, bool) else str(one)
            for name, one in value.items()
            if one is not None
        }
    raise UsageError("parameters must be written as name: value", where=where)
