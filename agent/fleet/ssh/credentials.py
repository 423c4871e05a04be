"""Passwords: asked for once or read from the environment, and kept only in memory."""

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
"""The environment variables for passwords, for use without a terminal."""

_PROMPTS = {
    "password": "SSH password: ",
    "passphrase": "Passphrase of the SSH key: ",
    "sudo_password": "sudo password: ",
}


@dataclass(frozen=True)
class Credentials:
    """The passwords that are needed in addition to keys.

    Args:
        password: the login password.
        passphrase: the passphrase of an encrypted private key.
        sudo_password: the sudo password.
    """

    password: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    sudo_password: str | None = field(default=None, repr=False)

    def of(self, host: FleetHost) -> Credentials:
        """Return a host's credentials: its inventory comes first, and sudo passwords before login ones."""
        return replace(
            self,
            password=host.password or self.password,
            sudo_password=host.sudo_password or self.sudo_password or host.password or self.password,
        )

    def values(self) -> list[str]:
        """Return all values that must never be shown."""
        return [value for value in vars(self).values() if value]


def asked(names: list[str], environment: Mapping[str, str] = os.environ) -> Credentials:
    """Return the credentials from the environment, and ask for missing ones.

    Args:
        names: the fields to ask for, if the environment does not have them.
        environment: variables.

    Raises:
        UsageError: if a password must be asked for and there is no terminal.
    """
    values = {name: environment.get(variable) for name, variable in VARIABLES.items()}
    for name in names:
        if values[name]:
            continue
        if not sys.stdin.isatty():
            raise UsageError(
                f"there is no terminal to ask for the {_PROMPTS[name].rstrip(': ')}",
                remedy=f"set the environment variable {VARIABLES[name]}",
            )
        values[name] = getpass.getpass(_PROMPTS[name])
    return Credentials(**values)
