"""The accepted host keys: files in OpenSSH's format, certificates signed by ssh-keygen."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from paramiko import Ed25519Key, Message
from paramiko.hostkeys import HostKeys

from agent.fleet.ssh.host_certificate import certificate_problem
from agent.fleet.ssh.known_hosts import KeyStanding, KnownHosts
from agent.fleet.ssh.route import Hop

if TYPE_CHECKING:
    from pathlib import Path

KEYGEN = shutil.which("ssh-keygen")
needs_keygen = pytest.mark.skipif(KEYGEN is None, reason="needs ssh-keygen (openssh-client)")


def key(number: int) -> Ed25519Key:
    message = Message()
    message.add_string("ssh-ed25519")
    message.add_string(bytes([number]) * 32)
    return Ed25519Key(data=message.asbytes())


def text(number: int) -> str:
    return f"ssh-ed25519 {key(number).get_base64()}"


def hop(file: Path, name: str = "gpu.example.com") -> Hop:
    return Hop("gpu.example.com", 22, "me", host_key_name=name, known_hosts=(str(file),))


CASES = {
    "nothing known": ("", "gpu.example.com", KeyStanding.UNKNOWN),
    "known": (f"gpu.example.com {text(1)}\n", "gpu.example.com", KeyStanding.KNOWN),
    "among several names": (
        f"a,gpu.example.com,10.0.0.1 {text(1)} c\n",
        "gpu.example.com",
        KeyStanding.KNOWN,
    ),
    "in other case": (f"GPU.example.com {text(1)}\n", "gpu.example.com", KeyStanding.KNOWN),
    "hashed": (f"{HostKeys.hash_host('gpu.example.com')} {text(1)}\n", "gpu.example.com", KeyStanding.KNOWN),
    "by a pattern": (f"*.example.com,!bad.example.com {text(1)}\n", "gpu.example.com", KeyStanding.KNOWN),
    "excepted": (f"*.example.com,!gpu.example.com {text(1)}\n", "gpu.example.com", KeyStanding.UNKNOWN),
    "of another host": (f"other {text(1)}\n", "gpu.example.com", KeyStanding.UNKNOWN),
    "changed": (f"gpu.example.com {text(2)}\n", "gpu.example.com", KeyStanding.CHANGED),
    "one of two": (
        f"gpu.example.com {text(2)}\ngpu.example.com {text(1)}\n",
        "gpu.example.com",
        KeyStanding.KNOWN,
    ),
    "on its port": (f"[gpu.example.com]:2222 {text(1)}\n", "[gpu.example.com]:2222", KeyStanding.KNOWN),
    "on another port": (f"[gpu.example.com]:2223 {text(1)}\n", "[gpu.example.com]:2222", KeyStanding.UNKNOWN),
    "without a port": (f"gpu.example.com {text(1)}\n", "[gpu.example.com]:2222", KeyStanding.KNOWN),
    "the host's, on a port of which nothing is known": (
        f"gpu.example.com {text(2)}\n",
        "[gpu.example.com]:2222",
        KeyStanding.UNKNOWN,
    ),
    "the host's, on a port that has another": (
        f"gpu.example.com {text(1)}\n[gpu.example.com]:2222 {text(2)}\n",
        "[gpu.example.com]:2222",
        KeyStanding.CHANGED,
    ),
    "the port's, where the host has another": (
        f"gpu.example.com {text(2)}\n[gpu.example.com]:2222 {text(1)}\n",
        "[gpu.example.com]:2222",
        KeyStanding.KNOWN,
    ),
    "the port's, on the host": (
        f"gpu.example.com {text(2)}\n[gpu.example.com]:2222 {text(1)}\n",
        "gpu.example.com",
        KeyStanding.CHANGED,
    ),
    "of a type that was not known": (
        f"gpu.example.com ssh-rsa {base64.b64encode(b'x').decode()}\n",
        "gpu.example.com",
        KeyStanding.CHANGED,
    ),
    "of a type that was not known, but the host's, on a port": (
        f"gpu.example.com {text(1)}\n[gpu.example.com]:2222 ssh-rsa {base64.b64encode(b'x').decode()}\n",
        "[gpu.example.com]:2222",
        KeyStanding.CHANGED,
    ),
    "revoked for the host, on a port": (
        f"[gpu.example.com]:2222 {text(1)}\n@revoked gpu.example.com {text(1)}\n",
        "[gpu.example.com]:2222",
        KeyStanding.REVOKED,
    ),
    "revoked for a port, on the host": (
        f"gpu.example.com {text(1)}\n@revoked [gpu.example.com]:2222 {text(1)}\n",
        "gpu.example.com",
        KeyStanding.KNOWN,
    ),
    "revoked": (f"gpu.example.com {text(1)}\n@revoked * {text(1)}\n", "gpu.example.com", KeyStanding.REVOKED),
    "an authority alone": (f"@cert-authority * {text(1)}\n", "gpu.example.com", KeyStanding.UNKNOWN),
    "rubbish around it": (
        f"# c\n\nx y\nz ssh-rsa %%%\ngpu.example.com\t{text(1)}\r\n",
        "gpu.example.com",
        KeyStanding.KNOWN,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_key_is(case: str, tmp_path: Path) -> None:
    lines, name, standing = CASES[case]
    file = tmp_path / "known_hosts"
    file.write_text(lines)
    assert KnownHosts().standing(hop(file, name), key(1))[0] is standing


def test_a_server_is_asked_for_keys_of_its_own_port(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"gpu.example.com {text(1)}\n[gpu.example.com]:2222 ssh-rsa eA==\n")
    types = {port: KnownHosts().key_types(hop(file, f"[gpu.example.com]:{port}")) for port in (2222, 2223)}
    assert types == {2222: ["ssh-rsa"], 2223: ["ssh-ed25519"]}


def test_a_changed_key_is_told_with_the_line_of_the_known_one(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"# c\ngpu.example.com {text(2)}\n")
    assert KnownHosts().standing(hop(file), key(1))[1] == f"a different key is known ({file}:2)"


def test_an_accepted_key_is_written_down_once_and_known(tmp_path: Path) -> None:
    file = tmp_path / "new" / "known_hosts"
    known = KnownHosts()
    known.add(hop(file), key(1))
    file.write_text(file.read_text().rstrip("\n"))
    known.add(hop(file, "[gpu.example.com]:2222"), key(2))
    assert file.read_text() == f"gpu.example.com {text(1)}\n[gpu.example.com]:2222 {text(2)}\n"
    assert known.standing(hop(file), key(1))[0] is KeyStanding.KNOWN
    assert known.key_types(hop(file)) == ["ssh-ed25519"]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two authorities and certificates signed by the first."""
    folder = tmp_path_factory.mktemp("ca")

    def keygen(*arguments: str) -> None:
        subprocess.run([str(KEYGEN), "-q", *arguments], cwd=folder, check=True, capture_output=True)

    for name in ("ca", "other", "host"):
        keygen("-t", "ed25519", "-N", "", "-f", name)
    for name, options in {
        "good": ["-h", "-n", "gpu.example.com,alias"],
        "wildcard": ["-h", "-n", "*.example.com"],
        "everywhere": ["-h"],
        "elsewhere": ["-h", "-n", "web.example.com"],
        "expired": ["-h", "-n", "gpu.example.com", "-V", "20200101:20200102"],
        "user": ["-n", "gpu.example.com"],
    }.items():
        shutil.copy(folder / "host.pub", folder / f"{name}.pub")
        keygen("-s", "ca", "-I", name, *options, f"{name}.pub")
    return folder


def blob(path: Path) -> bytes:
    return base64.b64decode(path.read_text().split()[1])


@needs_keygen
@pytest.mark.parametrize(
    ("certificate", "authority", "problem"),
    [
        ("good", "ca", ""),
        ("wildcard", "ca", ""),
        ("everywhere", "ca", ""),
        ("elsewhere", "ca", "its certificate is for web.example.com"),
        ("expired", "ca", "has expired"),
        ("user", "ca", "is not a host certificate"),
        ("good", "other", "from an authority that is not trusted for it"),
    ],
)
def test_a_certificate_vouches(signed: Path, certificate: str, authority: str, problem: str) -> None:
    found = certificate_problem(
        blob(signed / f"{certificate}-cert.pub"), "gpu.example.com", [blob(signed / f"{authority}.pub")]
    )
    assert problem in found
    assert bool(found) == bool(problem)


@needs_keygen
def test_a_forged_certificate_does_not(signed: Path) -> None:
    certificate = bytearray(blob(signed / "elsewhere-cert.pub"))
    at = certificate.index(b"web.example.com")
    certificate[at : at + 3] = b"gpu"
    found = certificate_problem(bytes(certificate), "gpu.example.com", [blob(signed / "ca.pub")])
    assert "is not authentic" in found


@needs_keygen
def test_an_authority_of_the_file_makes_a_host_known(signed: Path, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"@cert-authority *.example.com {(signed / 'ca.pub').read_text()}")
    shown = Ed25519Key(data=blob(signed / "good-cert.pub"))
    known = KnownHosts()
    assert known.has_authority(hop(file))
    assert known.standing(hop(file), shown)[0] is KeyStanding.KNOWN
    assert known.standing(replace(hop(file), host_key_name="x"), shown)[0] is KeyStanding.UNKNOWN
    other_port = hop(file, "[gpu.example.com]:2222")
    assert known.standing(other_port, shown)[0] is KeyStanding.KNOWN
    file.write_text(f"{file.read_text()}[gpu.example.com]:2222 {text(2)}\n")
    assert KnownHosts().standing(other_port, shown)[0] is KeyStanding.CHANGED
    now_s = time.time()
    authority = [blob(signed / "ca.pub")]
    assert certificate_problem(blob(signed / "good-cert.pub"), "alias", authority, now_s) == ""


def test_a_planted_link_gets_no_host_key(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious\n")
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "known_hosts").symlink_to(tmp_path / "victim")
    KnownHosts().add(hop(folder / "known_hosts"), key(1))
    assert "gpu.example.com" in (tmp_path / "victim").read_text()  # the account's own link
    (tmp_path / "victim").write_text("precious\n")
    if os.geteuid() != 0:
        pytest.skip("only root writes to folders that others may write to")
    folder.chmod(0o777)
    with pytest.raises(OSError, match="symbolic links"):
        KnownHosts().add(hop(folder / "known_hosts"), key(1))
    assert (tmp_path / "victim").read_text() == "precious\n"
