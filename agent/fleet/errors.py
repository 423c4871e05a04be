"""Why a host did not do what it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import HostError

if TYPE_CHECKING:
    from paramiko import PKey


class UnreachableError(HostError):
    """No connection to the host came about."""


class ConnectionLostError(UnreachableError):
    """A connection broke, or gave no answer in time; another may hold."""


class NotFollowedError(UnreachableError):
    """A run was started on the host, and nobody can look after it there: another connection does not help."""


class UnknownHostKeyError(UnreachableError):
    """A server's key is not known.

    Args:
        server: the server's name in known_hosts files.
        key: the key that it showed.
        problem: why its certificate does not help, if it showed one.

    Attributes:
        line: the server, its key's type and fingerprint, and the problem.
    """

    def __init__(self, server: str, key: PKey, problem: str = "") -> None:
        self.line = f"{server} {key.get_name()} {key.fingerprint}" + (problem and f": {problem}")
        super().__init__(
            f"the host key is not known: {self.line}",
            remedy="compare it with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), "
            "then: --accept-new-host-keys",
        )


class HostUnfitError(HostError):
    """The host answers, but cannot run the agent."""


class DeadlineError(HostUnfitError):
    """The host took longer than it may."""
