"""An open connection, and the commands that run over it."""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paramiko import SSHException

from agent.fleet.errors import ConnectionLostError
from agent.fleet.scheduling import Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabric import Connection
    from paramiko import Channel

    from agent.fleet.scheduling import Task
    from agent.fleet.ssh.route import Hop
    from agent.fleet.ssh.watchdog import Watchdog

_PIECE = 1 << 15
_MOST_SAID = 2000
_BEGIN = "vcagent-begins-here"
"""Printed before each command's own output, because a login shell's startup files may print something too."""


@dataclass(frozen=True)
class Answer:
    """The exit code of a command, and its standard error."""

    exit_code: int
    stderr: str


class Session:
    """One connection to a host.

    Args:
        connection: Fabric's.
        hop: the host.
        watchdog: closes the connection if it hangs.
    """

    def __init__(self, connection: Connection, hop: Hop, watchdog: Watchdog) -> None:
        self.connection = connection
        self.hop = hop
        self._watchdog = watchdog

    @property
    def is_open(self) -> bool:
        """True if the connection is still open, to the client's knowledge."""
        return bool(self.connection.is_connected)

    def start(self, command: str, timeout_s: float) -> Command:
        """Start a command.

        Args:
            command: the command line for the user's shell.
            timeout_s: seconds for each exchange with the command.

        Raises:
            ConnectionLostError: if the connection breaks.
        """
        with _lost(self.hop):
            channel = self.connection.transport.open_session(timeout=timeout_s)
            channel.settimeout(timeout_s)
            # paramiko waits forever if the server hangs; closing the connection wakes it.
            with self._watchdog.watching(timeout_s, self._shut):
                channel.exec_command(f"echo {_BEGIN}; {command}")
            return Command(channel, self.hop)

    def close(self) -> None:
        """Close the connection; its thread is woken but not waited for."""
        self._shut()
        with suppress(Exception):
            self.connection.close()

    def _shut(self) -> None:
        transport = self.connection.transport
        if transport is not None:
            with suppress(OSError, AttributeError):
                transport.sock.shutdown(socket.SHUT_RDWR)


class Command:
    """A command that runs on a host, with its standard input and output as bytes.

    Every method raises ConnectionLostError if the connection breaks or a time limit passes.

    Attributes:
        has_begun: whether the login shell ran the command; False until a line was read.
        said: the output before the command's own; if the command did not start, it shows the reason.
    """

    def __init__(self, channel: Channel, hop: Hop) -> None:
        self._channel = channel
        self._hop = hop
        self._rest = b""
        self.has_begun = False
        self.said = ""

    def write(self, data: bytes) -> None:
        """Write to the command's standard input."""
        done = 0
        with _lost(self._hop):
            while done < len(data):  # paramiko's own loop copies the whole rest each time
                sent = self._channel.send(data[done : done + _PIECE])
                if not sent:
                    raise EOFError
                done += sent

    def end_input(self) -> None:
        """Close the command's standard input."""
        with _lost(self._hop):
            self._channel.shutdown_write()

    def line(self, seconds: float) -> Task[bytes | None]:
        """Wait for a line of the command's standard output.

        Args:
            seconds: the longest time to wait.

        Returns:
            The line with its end; after the end of the output, the rest or nothing; None after the time
            limit.
        """
        while not self.has_begun or b"\n" not in self._rest:
            if not self._channel.recv_ready() and not self._channel.eof_received:
                if self._channel.closed:
                    raise ConnectionLostError(f"the connection to {self._hop} broke")
                if not (yield Wait(seconds, self._channel.fileno())):
                    return None
            with _lost(self._hop):
                piece = self._channel.recv(_PIECE)
            self._rest += piece
            if not self.has_begun:
                self._skip(piece)
            if not piece:
                break
        line, end, self._rest = self._rest.partition(b"\n")
        return line + end

    def _skip(self, piece: bytes) -> None:
        """Drop the output before the command began; if the output ends first, all of it."""
        before, mark, rest = self._rest.partition(f"{_BEGIN}\n".encode())
        if mark or not piece:
            self.said, self._rest = before[-_MOST_SAID:].decode(errors="replace").strip(), rest
            self.has_begun = bool(mark)

    def read(self, count: int) -> bytes:
        """Return at most this many bytes of the command's standard output; none if it has ended."""
        while not self.has_begun:
            with _lost(self._hop):
                piece = self._channel.recv(_PIECE)
            self._rest += piece
            self._skip(piece)
            if not piece:
                return b""
        if self._rest:
            data, self._rest = self._rest[:count], self._rest[count:]
            return data
        with _lost(self._hop):
            return self._channel.recv(count)

    def ended(self) -> Answer:
        """Wait until the command has ended; unread output is dropped."""
        with _lost(self._hop):
            errors = bytearray()
            while piece := self._channel.recv_stderr(_PIECE):
                errors += piece
            while self._channel.recv(_PIECE):
                pass
            if not self._channel.status_event.wait(self._channel.gettimeout()):
                raise TimeoutError
            code = self._channel.recv_exit_status()
            self._channel.close()
        if code < 0:  # no exit status: the connection was lost, or a signal ended the command
            raise ConnectionLostError(f"the connection to {self._hop} broke, or the command was killed")
        return Answer(code, errors.decode(errors="replace").strip())

    def close(self) -> None:
        """Close the command's channel."""
        with suppress(Exception):
            self._channel.close()


@contextmanager
def _lost(hop: Hop) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise ConnectionLostError(f"{hop} no longer answers") from error
    except (SSHException, OSError, EOFError, AttributeError) as error:
        raise ConnectionLostError(
            f"the connection to {hop} broke: {str(error) or type(error).__name__}"
        ) from error
