"""Savings in paramiko: the algorithms that it offers first, and the socket that it reads from."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from fabric import Config
from paramiko import SSHConfig

from agent.fleet.ssh.connecting import HostConnection
from agent.fleet.ssh.transport import HostProxy, HostSocket, HostTransport

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pair() -> Iterator[tuple[HostSocket, socket.socket]]:
    """Return our end and the server's end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield HostSocket(ours), theirs


def transport(ours: HostSocket, known: tuple[str, ...] = (), *, certified: bool = False) -> HostTransport:
    return HostTransport(ours, known=known, certified=certified)  # type: ignore[arg-type]


def test_aes_gcm_is_asked_for_first_and_nothing_is_left_out(pair: tuple[HostSocket, socket.socket]) -> None:
    asked = transport(pair[0]).preferred_ciphers
    assert asked[:2] == ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
    assert set(asked) > {"aes128-ctr", "aes256-ctr"}


@pytest.mark.parametrize(
    ("known", "certified", "first"),
    [
        (("ssh-rsa",), False, "rsa-sha2-512"),
        (("ecdsa-sha2-nistp384",), False, "ecdsa-sha2-nistp384"),
        (("ssh-ed25519",), True, "ssh-ed25519-cert-v01@openssh.com"),
        ((), False, "ssh-ed25519"),
    ],
)
def test_the_keys_that_are_known_are_asked_for_first(
    known: tuple[str, ...], *, certified: bool, first: str, pair: tuple[HostSocket, socket.socket]
) -> None:
    assert transport(pair[0], known, certified=certified).preferred_keys[0] == first


def test_a_socket_gives_what_came_in_the_pieces_asked_for(pair: tuple[HostSocket, socket.socket]) -> None:
    ours, theirs = pair
    sent = bytes(range(256)) * 400
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    pieces: list[bytes] = []
    while not pieces or pieces[-1]:
        pieces += [ours.recv(16), ours.recv(9000)]
        assert len(pieces[-2]) <= 16
        assert len(pieces[-1]) <= 9000
    assert b"".join(pieces) == sent


def test_a_socket_that_stays_silent_is_a_timeout(pair: tuple[HostSocket, socket.socket]) -> None:
    ours, theirs = pair
    ours.settimeout(0.02)
    with pytest.raises(TimeoutError):
        ours.recv(1)
    theirs.sendall(b"x")
    assert ours.recv(1) == b"x"


def test_a_command_gives_what_it_writes_and_its_end_is_noticed() -> None:
    proxy = HostProxy("sh -c 'printf hello; read line'")
    proxy.settimeout(10)
    assert b"".join(proxy.recv(2) for _ in range(3)) == b"hello"
    proxy.settimeout(0.02)
    with pytest.raises(TimeoutError):
        proxy.recv(1)
    proxy.send(b"\n")
    proxy.settimeout(None)
    assert proxy.recv(9) == b""
    proxy.close()
    proxy.process.communicate()


def test_connections_leave_their_shared_configuration_alone() -> None:
    config = Config(ssh_config=SSHConfig())
    before, merged = dict(config), config._config
    HostConnection("gpu-01", user="me", config=config, gateway=False, forward_agent=False)
    assert dict(config) == before
    assert config._config is merged
