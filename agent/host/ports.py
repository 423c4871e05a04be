"""Finds free TCP ports of this host, and the holder of a port."""

from __future__ import annotations

import errno
import socket

from agent.core.errors import ActionFailedError


def check_port(host: str, port: int) -> None:
    """Check that a server could listen on a port; 0 means any free port.

    Raises:
        ActionFailedError: if it is taken; names the holder.
    """
    if port and not is_free(host, port):
        raise ActionFailedError(
            f"port {port} on {host} is taken by {holder_of(port)}",
            remedy="stop it, ask for another port, or leave port out: any free one is taken then",
        )


def is_free(host: str, port: int) -> bool:
    """Return True if a server could listen there now.

    Raises:
        OSError: if the address itself cannot be used, such as a host name that is not this host's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True


def any_free(host: str) -> int:
    """Return a port that is free now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def holder_of(port: int) -> str:
    """Return the listener on a port, in readable form: ``python3 (process 4711: python3 -m http.server)``."""
    import psutil

    for connection in psutil.net_connections(kind="tcp"):
        if connection.status != psutil.CONN_LISTEN or not connection.laddr or connection.laddr.port != port:
            continue
        if connection.pid is None:
            break
        try:
            process = psutil.Process(connection.pid)
            return f"{process.name()} (process {process.pid}: {' '.join(process.cmdline())[:100]})"
        except psutil.Error:
            return f"process {connection.pid}"
    return "a process of another user or container"
