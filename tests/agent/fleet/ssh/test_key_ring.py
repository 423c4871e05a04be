"""A private key is read once for all hosts, and again when it has changed."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from paramiko import Ed25519Key, PasswordRequiredException, RSAKey, SSHException

from agent.fleet.ssh.key_ring import KeyRing, KeyRingClient
from tests.agent.fleet.ssh.test_known_hosts import needs_keygen

if TYPE_CHECKING:
    from pathlib import Path

    from paramiko import PKey

pytestmark = needs_keygen


class Reader(KeyRingClient):
    """Reads without a connection, whose log there is none of then."""

    def _log(self, *_: object) -> None: ...

    def read(self, file: Path, kind: type[PKey], passphrase: str | None = None) -> PKey:
        return self._key_from_filepath(str(file), kind, passphrase)


def write_key(path: Path, passphrase: str = "") -> None:
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", path], check=True)


def test_hosts_share_one_key_until_its_file_changes(tmp_path: Path) -> None:
    ring, file = KeyRing(), tmp_path / "id"
    write_key(file)
    first = Reader(ring).read(file, Ed25519Key)
    assert Reader(ring).read(file, Ed25519Key) is first
    os.utime(file, ns=(0, 0))
    again = Reader(ring).read(file, Ed25519Key)
    assert again is not first
    assert again == first


def test_a_certificate_that_came_later_is_seen(tmp_path: Path) -> None:
    ring, file, authority = KeyRing(), tmp_path / "id", tmp_path / "ca"
    write_key(file)
    write_key(authority)
    assert Reader(ring).read(file, Ed25519Key).public_blob is None
    subprocess.run(["ssh-keygen", "-q", "-s", authority, "-I", "me", "-n", "me", f"{file}.pub"], check=True)
    assert Reader(ring).read(file, Ed25519Key).public_blob is not None


def test_what_is_no_such_key_is_told_each_time(tmp_path: Path) -> None:
    ring, file = KeyRing(), tmp_path / "id"
    write_key(file, passphrase="correct horse")
    for _ in range(2):
        with pytest.raises(SSHException):
            Reader(ring).read(file, RSAKey, "correct horse")
        with pytest.raises(PasswordRequiredException):
            Reader(ring).read(file, Ed25519Key)
        with pytest.raises(SSHException):
            Reader(ring).read(file, Ed25519Key, "wrong")
    assert Reader(ring).read(file, Ed25519Key, "correct horse")
    with pytest.raises(FileNotFoundError):
        Reader(ring).read(tmp_path / "none", Ed25519Key)
