"""A private key is read once for all hosts, and again when it has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from paramiko import PasswordRequiredException, SSHException

from agent.fleet.ssh.key_ring import KeyRing
from tests.agent.fleet.ssh.test_known_hosts import needs_keygen

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_keygen


def write_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> None:
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", path], check=True)


def test_hosts_share_one_key_until_its_file_changes(tmp_path: Path) -> None:
    ring, file = KeyRing(), tmp_path / "id"
    write_key(file)
    first = ring.key(str(file), None)
    assert ring.key(str(file), None) is first
    os.utime(file, ns=(0, 0))
    again = ring.key(str(file), None)
    assert again is not first
    assert again == first


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_each_kind_is_read_plain_and_encrypted(kind: str, tmp_path: Path) -> None:
    ring, plain, encrypted = KeyRing(), tmp_path / "plain", tmp_path / "encrypted"
    write_key(plain, kind=kind)
    shutil.copy(plain, encrypted)  # one key is enough: an RSA key takes seconds to make
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "correct horse", "-f", encrypted], check=True)
    assert kind in ring.key(str(plain), None).get_name()
    for _ in range(2):
        with pytest.raises(PasswordRequiredException):
            ring.key(str(encrypted), None)
        with pytest.raises(SSHException) as caught:
            ring.key(str(encrypted), "wrong")
        assert not isinstance(caught.value, PasswordRequiredException)
    assert kind in ring.key(str(encrypted), "correct horse").get_name()


def test_what_is_no_key_is_told_each_time(tmp_path: Path) -> None:
    ring, file = KeyRing(), tmp_path / "id"
    file.write_bytes(b"\xff nothing")
    for _ in range(2):
        with pytest.raises(SSHException):
            ring.key(str(file), None)
    with pytest.raises(FileNotFoundError):
        ring.key(str(tmp_path / "none"), None)
