"""Who runs the agent."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from agent.facts.base import Fact, Host

__all__ = ["ROOT", "USER", "User", "account"]


@dataclass(frozen=True)
class User:
    """The agent's user.

    Args:
        name: its name.
        uid: its number.
        sudo_user: who called ``sudo``, where somebody did.
        home: its home folder.
    """

    name: str
    uid: int
    sudo_user: str | None = None
    home: str = ""


def _read(_host: Host) -> User:
    uid = os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
        name, home = entry.pw_name, entry.pw_dir
    except KeyError:  # a container may run under a number without a name
        name, home = str(uid), os.environ.get("HOME", "")
    return User(name, uid, os.environ.get("SUDO_USER") or None, home)


def account(name: str) -> Fact[bool]:
    """Whether there is a user of that name, in whatever the host looks names up."""
    command = ["getent", "passwd", "--", name]
    return Fact(f"account[{name}]", f"getent passwd {name}", lambda host: bool(host.output(command)))


USER: Fact[User] = Fact("user", "geteuid(2), SUDO_USER", _read)
ROOT: Fact[bool] = Fact("root", "geteuid(2)", lambda host: _read(host).uid == 0)
