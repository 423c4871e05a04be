"""Why a host did not do what it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import HostError

if TYPE_CHECKING:
    from paramiko import PKey

    from agent.fleet.ssh.route import Hop

__all__ = [
    "ConnectionLostError",
    "DeadlineError",
    "HostUnfitError",
    "UnknownHostKeyError",
    "UnreachableError",
]


class UnreachableError(HostError):
    """No connection to the host came about."""


class ConnectionLostError(UnreachableError):
    """A connection broke, or gave no answer in time; another may hold."""


class UnknownHostKeyError(UnreachableError):
    """A server's key is not known.

    Args:
        hop: the server.
        key: what it showed.
        problem: why its certificate does not help, if it showed one.
    """

    def __init__(self, hop: Hop, key: PKey, problem: str = "") -> None:
        self.server = hop.host_key_name
        self.key_type = key.get_name()
        self.fingerprint = str(key.fingerprint)
        super().__init__(
            f"the host key of {self.server} is not known: {self.key_type} {self.fingerprint}"
            + (f" ({problem})" if problem else ""),
            remedy="compare it with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), "
            "then: --accept-new-host-keys",
        )


class HostUnfitError(HostError):
    """The host answers, but cannot run the agent."""


class DeadlineError(HostUnfitError):
    """The host took longer than it may."""
