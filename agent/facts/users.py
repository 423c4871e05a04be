"""The user of the agent, and other accounts."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from agent.facts.base import Fact, Host


@dataclass(frozen=True)
class User:
    """The agent's user.

    Args:
        name: its name.
        uid: its number.
        sudo_user: the account that called ``sudo``, if any.
        home: its home folder.
    """

    name: str
    uid: int
    sudo_user: str | None = None
    home: str = ""


@dataclass(frozen=True)
class Account:
    """An account of the host.

    Args:
        name: its name.
        uid: its number.
        gid: the number of its own group.
        home: its home folder.
    """

    name: str
    uid: int
    gid: int
    home: str


def _read(_host: Host) -> User:
    uid = os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
        name, home = entry.pw_name, entry.pw_dir
    except KeyError:  # a container may run under a number without a name
        name, home = str(uid), os.environ.get("HOME", "")
    return User(name, uid, os.environ.get("SUDO_USER") or None, home)


def group_members(text: str | None) -> tuple[str, ...] | None:
    """Return the members of a group, from ``getent group``, or None if it does not exist."""
    fields = (text or "").strip().split(":")
    if len(fields) < 4:  # noqa: PLR2004 - name, password, number, members (group(5))
        return None
    return tuple(name for name in fields[3].split(",") if name)


def members_of(group: str) -> Fact[tuple[str, ...] | None]:
    """Return the fact of the members of a group; None if the group does not exist."""
    command = ["getent", "group", group]
    return Fact(
        f"members[{group}]", f"getent group {group}", lambda host: group_members(host.output(command))
    )


def account(name: str) -> Fact[bool]:
    """Return the fact of whether a user exists, in any of the host's user databases."""
    command = ["getent", "passwd", "--", name]
    return Fact(f"account[{name}]", f"getent passwd {name}", lambda host: bool(host.output(command)))


def account_of(name: str) -> Fact[Account | None]:
    """Return the fact of an account; None if it does not exist."""
    command = ["getent", "passwd", "--", name]

    def read(host: Host) -> Account | None:
        fields = (host.output(command) or "").strip().split(":")
        if len(fields) < 6:  # noqa: PLR2004 - name, password, uid, gid, comment, home, shell (passwd(5))
            return None
        return Account(fields[0], int(fields[2]), int(fields[3]), fields[5])

    return Fact(f"account_of[{name}]", f"getent passwd {name}", read)


USER: Fact[User] = Fact("user", "geteuid(2), SUDO_USER", _read)
ROOT: Fact[bool] = Fact("root", "geteuid(2)", lambda host: _read(host).uid == 0)
