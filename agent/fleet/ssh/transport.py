"""paramiko's transport: it asks a server for the keys that are known of it, and costs little."""

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
"""Most packets are shorter. Each connection has a buffer, also of hosts that say nothing."""


class HostTransport(Transport):
    """Asks for the keys that are known first, as ssh does, and for AES-GCM, as ssh does since 10.0.

    With another cipher paramiko compares the code that authenticates each packet byte by byte in Python.

    Args:
        sock: to the server.
        known: the types of the keys that are known of it.
        certified: whether an authority is known that may vouch for it.
        options: of paramiko's own.
    """

    def __init__(
        self, sock: socket.socket, *, known: Collection[str], certified: bool, **options: Any
    ) -> None:
        self._known = known
        self._certified = certified
        super().__init__(sock, packetizer_class=_ClockedPacketizer, **options)

    @property
    @override
    def preferred_keys(self) -> tuple[str, ...]:
        return tuple(sorted(super().preferred_keys, key=self._rank))

    @property
    @override
    def preferred_ciphers(self) -> tuple[str, ...]:
        return tuple(sorted(super().preferred_ciphers, key=lambda name: not name.endswith(_GCM)))

    def _rank(self, algorithm: str) -> int:
        if algorithm.endswith(_CERTIFIED):
            return 0 if self._certified else 3
        kind = algorithm.replace("rsa-sha2-256", "ssh-rsa").replace("rsa-sha2-512", "ssh-rsa")
        return 1 if kind in self._known else 2


class _ClockedPacketizer(Packetizer):
    """Looks at the clock to see whether the handshake takes too long; paramiko's has a thread for that."""

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
    """A command that leads to a server; paramiko's asks one that has ended for more, without a pause."""

    def recv(self, size: int) -> bytes:
        """Up to so many bytes; none where the command has ended."""
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
    """A socket that costs few system calls: paramiko reads each packet in two pieces or more.

    Args:
        sock: the socket; all else is its own.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._ahead = memoryview(bytearray(_AHEAD_BYTES))
        self._at = self._end = 0

    def recv(self, count: int) -> bytes:
        """Up to so many bytes; see socket."""
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
        """Bound each call; see socket. The kernel keeps the time: Python would ask it before each call."""
        self._sock.setblocking(True)
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._sock.setsockopt(socket.SOL_SOCKET, option, limit)

    def __getattr__(self, name: str) -> Any:
        """All else."""
        return getattr(self._sock, name)
