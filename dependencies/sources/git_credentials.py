"""Passes credentials to git without showing them in the process list or in ``.git/config``."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class GitAddress:
    """The address of a repository, and separately its credentials.

    Args:
        uri: the address without credentials.
        config: settings that make git ask for the credentials, only for this host.
        env: environment variables with the credentials.
    """

    uri: str
    config: tuple[tuple[str, str], ...] = ()
    env: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str, number: int = 0) -> GitAddress:
        """Split ``user:password@`` or ``token@`` from an http(s) address; other addresses stay as they are.

        The user of an ssh address is part of it. ``number`` distinguishes several addresses.
        """
        parts = urlsplit(text)
        user_info, separator, host = parts.netloc.rpartition("@")
        if parts.scheme not in ("http", "https") or not separator:
            return cls(text)
        username, _, password = user_info.partition(":")
        names = f"VCAGENT_GIT_USERNAME_{number}", f"VCAGENT_GIT_PASSWORD_{number}"
        # A credential helper (gitcredentials(7)): a shell command that prints the values of two variables.
        answer = f'printf "username=%s\\npassword=%s\\n" "${names[0]}" "${names[1]}"'
        scope = f"credential.{parts.scheme}://{host}.helper"
        return cls(
            parts._replace(netloc=host).geturl(),
            # An empty helper first: otherwise the user's own helpers would be asked before, and store the
            # password.
            ((scope, ""), (scope, f'!f() {{ test "$1" = get && {answer}; }}; f')),
            dict(zip(names, (unquote(username), unquote(password)), strict=True)),
        )

    @property
    def options(self) -> tuple[str, ...]:
        """Return the settings as options of git."""
        return tuple(itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in self.config))


def git_environment(addresses: Iterable[GitAddress], environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that let git open these addresses if another program calls it (git 2.31 or newer).

    Args:
        addresses: addresses that were parsed with different numbers.
        environment: the environment that the variables are added to; it may contain such settings.
    """
    count = int(environment.get("GIT_CONFIG_COUNT") or 0)
    added: dict[str, str] = {}
    for address in addresses:
        added |= address.env
        for name, value in address.config:
            added |= {f"GIT_CONFIG_KEY_{count}": name, f"GIT_CONFIG_VALUE_{count}": value}
            count += 1
    return {**added, "GIT_CONFIG_COUNT": str(count)} if added else {}
