"""Passwords: asked for once or taken from the environment, kept in memory alone."""

from __future__ import annotations

import getpass
import os
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agent.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.fleet.inventory.host import FleetHost

VARIABLES = {
    "password": "VCAGENT_SSH_PASSWORD",
    "passphrase": "VCAGENT_SSH_PASSPHRASE",
    "sudo_password": "VCAGENT_SUDO_PASSWORD",
}
"""The variables that a password may be given in where nobody can be asked."""

_PROMPTS = {
    "password": "SSH password: ",
    "passphrase": "Passphrase of the SSH key: ",
    "sudo_password": "sudo password: ",
}


@dataclass(frozen=True)
class Credentials:
    """What is needed beside keys.

    Args:
        password: for logging in.
        passphrase: of an encrypted private key.
        sudo_password: for sudo.
    """

    password: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    sudo_password: str | None = field(default=None, repr=False)

    def of(self, host: FleetHost) -> Credentials:
        """Those for one host: its inventory counts first, and any of sudo before one of logging in."""
        return replace(
            self,
            password=host.password or self.password,
            sudo_password=host.sudo_password or self.sudo_password or host.password or self.password,
        )

    def values(self) -> list[str]:
        """All that must never be shown."""
        return [value for value in vars(self).values() if value]


def asked(names: list[str], environment: Mapping[str, str] = os.environ) -> Credentials:
    """The credentials of the environment, and those that are to be asked for.

    Args:
        names: the fields to ask for, if the environment does not have them.
        environment: variables.

    Raises:
        UsageError: if one is to be asked for and there is no terminal.
    """
    values = {name: environment.get(variable) for name, variable in VARIABLES.items()}
    for name in names:
        if values[name]:
            continue
        if not sys.stdin.isatty():
            raise UsageError(
                f"there is no terminal to ask for the {_PROMPTS[name].rstrip(': ')}",
                remedy=f"give it in the environment: {VARIABLES[name]}",
            )
        values[name] = getpass.getpass(_PROMPTS[name])
    return Credentials(**values)
