"""A transport for paramiko that requests the known key types of a server and uses little CPU."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from paramiko import ProxyCommand, Transport
from paramiko.packet import Packetizer
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Collection

_CERTIFIED = "-cert-v01@openssh.com"
_GCM = "-gcm@openssh.com"
_AHEAD_BYTES = 1 << 12
"""A buffer size that most packets fit into. Each connection has a buffer, even of idle hosts."""


class HostTransport(Transport):
    """A transport that prefers known host keys, as ssh does, and AES-GCM, as ssh does since 10.0.

    With other ciphers, paramiko compares the authentication code of each packet byte by byte in Python.

    Args:
        sock: the socket to the server.
        known: the types of the server's known keys.
        certified: whether a certificate authority is known for the server.
        options: paramiko's own options.
    """

    def __init__(
        self, sock: socket.socket, *, known: Collection[str], certified: bool, **options: Any
    ) -> None:
        self._known = known
        self._certified = certified
        super().__init__(sock, packetizer_class=_ClockedPacketizer, **options)
        security = self.get_security_options()
        security.ciphers = tuple(sorted(security.ciphers, key=lambda name: not name.endswith(_GCM)))

    @property
    @override
    def preferred_keys(self) -> tuple[str, ...]:
        return tuple(sorted(super().preferred_keys, key=self._rank))

    def _rank(self, algorithm: str) -> int:
        if algorithm.endswith(_CERTIFIED):
            return 0 if self._certified else 3
        kind = algorithm.replace("rsa-sha2-256", "ssh-rsa").replace("rsa-sha2-512", "ssh-rsa")
        return 1 if kind in self._known else 2


class _ClockedPacketizer(Packetizer):
    """Checks the clock for handshakes that take too long; paramiko starts a thread for that."""

    _until: float | None = None

    @override
    def start_handshake(self, timeout: float) -> None:
        self._until = time.monotonic() + timeout

    @override
    def handshake_timed_out(self) -> bool:
        return self._until is not None and time.monotonic() > self._until

    @override
    def complete_handshake(self) -> None:
        self._until = None


class HostProxy(ProxyCommand):
    """A command that connects to a server; paramiko's class reads from an ended one without a pause."""

    def recv(self, size: int) -> bytes:
        """Return at most this many bytes; none if the command has ended."""
        output = self.process.stdout.fileno()  # type: ignore[union-attr]
        waiting = select.poll()
        waiting.register(output, select.POLLIN)
        if not waiting.poll(None if self.timeout is None else self.timeout * 1000):
            raise TimeoutError
        return os.read(output, size)

    def close(self) -> None:
        """End the command."""
        self.process.terminate()


class HostSocket:
    """A socket that needs few system calls: paramiko reads each packet in two or more pieces.

    Args:
        sock: the socket; other attributes are passed on to it.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._ahead = memoryview(bytearray(_AHEAD_BYTES))
        self._at = self._end = 0

    def recv(self, count: int) -> bytes:
        """Return at most this many bytes; see socket."""
        if self._at == self._end:
            try:
                if count > _AHEAD_BYTES:
                    return self._sock.recv(count)
                self._at, self._end = 0, self._sock.recv_into(self._ahead)
            except BlockingIOError as error:
                raise TimeoutError from error
        data = self._ahead[self._at : min(self._at + count, self._end)].tobytes()
        self._at += len(data)
        return data

    def settimeout(self, seconds: float) -> None:
        """Limit the time of each call; see socket. The kernel does it: Python would poll before each call."""
        self._sock.setblocking(True)
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._sock.setsockopt(socket.SOL_SOCKET, option, limit)

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the socket."""
        return getattr(self._sock, name)
