"""The errors of a host in a fleet run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import HostError

if TYPE_CHECKING:
    from paramiko import PKey


class UnreachableError(HostError):
    """No connection to the host could be made."""


class ConnectionLostError(UnreachableError):
    """A connection broke or timed out; a new connection may work."""


class NotFollowedError(UnreachableError):
    """A run was started on the host but cannot be followed; a new connection does not help."""


class UnknownHostKeyError(UnreachableError):
    """The host key of a server is not known.

    Args:
        server: the server's name in known_hosts files.
        key: the key that the server presented.
        problem: why the server's certificate was not accepted, if it presented one.

    Attributes:
        line: the server, the type and fingerprint of its key, and the problem.
    """

    def __init__(self, server: str, key: PKey, problem: str = "") -> None:
        self.line = f"{server} {key.get_name()} {key.fingerprint}" + (problem and f": {problem}")
        super().__init__(
            f"the host key is not known: {self.line}",
            remedy="compare it with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), "
            "then: --accept-new-host-keys",
        )


class HostUnfitError(HostError):
    """The host answers but cannot run the agent."""


class DeadlineError(HostUnfitError):
    """The host exceeded its time limit."""
