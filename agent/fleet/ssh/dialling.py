"""Opens a TCP connection to an SSH server within a time limit, and waits for its greeting."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import TYPE_CHECKING

from agent.fleet.errors import UnreachableError
from agent.fleet.inventory.host_address import written_address
from agent.fleet.scheduling import Wait

if TYPE_CHECKING:
    from agent.fleet.scheduling import Task

_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Keepalive settings: the kernel notices a lost peer within 45 s, at no cost for the controller."""


def dialled(address: str, port: int, timeout_s: float) -> Task[socket.socket]:
    """Connect, and wait until the server has sent its first bytes.

    paramiko leaves Nagle's algorithm on, which costs 40 ms per connection; here it is off.

    Args:
        address: a host name or an IP address; all addresses of a name are tried.
        port: the port.
        timeout_s: seconds for the connection and the greeting together.

    Raises:
        UnreachableError: if the connection fails.
    """
    until = time.monotonic() + timeout_s
    server = written_address(address, port)
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnreachableError(
            f"the host name {address} cannot be resolved: {getattr(error, 'strerror', None) or error}",
            remedy="correct the address in the inventory, or HostName in ~/.ssh/config",
        ) from error
    reason = ""
    for at, (family, kind, protocol, _, where) in enumerate(found):
        share_s = (until - time.monotonic()) / (len(found) - at)
        sock = socket.socket(family, kind, protocol)
        try:
            reason = yield from _connected(sock, where, share_s)
            if reason:
                continue
            if not (yield Wait(until - time.monotonic(), sock.fileno())):
                raise UnreachableError(
                    f"{server} accepts connections but sends nothing for {timeout_s:g} s",
                    remedy="its sshd hangs, or another program listens there: check the host's console",
                )
        except BaseException:
            sock.close()
            raise
        finally:
            if reason:
                sock.close()
        sock.setblocking(True)
        return sock
    raise UnreachableError(
        f"no connection to {server}: {reason}",
        remedy="check that the host is up, its sshd runs, and no firewall blocks the connection",
    )


def _connected(sock: socket.socket, where: object, timeout_s: float) -> Task[str]:
    """Connect a socket; return the error, or an empty text."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    number = sock.connect_ex(where)  # type: ignore[arg-type]
    if number == errno.EINPROGRESS:
        if not (yield Wait(timeout_s, sock.fileno(), write=True)):
            return f"no answer within {timeout_s:.0f} s"
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return os.strerror(number) if number else ""
