"""The keys that are tried on a server: files written by ssh-keygen, and a real agent."""

from __future__ import annotations

import inspect
import os
import subprocess
from contextlib import closing
from dataclasses import dataclass
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any, cast

import pytest
from paramiko import AgentKey, AuthenticationException, PKey, auth_handler

from agent.fleet.ssh.credentials import Credentials
from agent.fleet.ssh.key_ring import KeyRing
from agent.fleet.ssh.login import Login
from agent.fleet.ssh.public_part import public_part
from agent.fleet.ssh.route import Hop
from tests.agent.fleet.ssh.test_key_ring import write_key
from tests.agent.fleet.ssh.test_known_hosts import needs_keygen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_keygen

PASSPHRASE = "correct horse"
NAMES = ("plain", "locked", "agent-a", "agent-b", "id_ed25519")
IN_AGENT = ("agent-a", "locked", "agent-b")


@dataclass(frozen=True)
class Keys:
    """A home with keys, some of them in its agent.

    The file of ``locked`` is encrypted; of ``agent-b`` only the public key exists.
    """

    home: Path
    socket: str

    @property
    def folder(self) -> Path:
        return self.home / ".ssh"

    def described(self, key: PKey) -> str:
        """Return a key in the form of the cases: its name, its source, and whether it has a certificate."""
        name = next(name for name in NAMES if public_part(str(self.folder / name)) == key.asbytes())
        certificate = " certified" if key.public_blob else ""
        return name + (" by agent" if isinstance(key, AgentKey) else "") + certificate


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    home = tmp_path_factory.mktemp("home")
    made = Keys(home, str(home / "agent"))
    made.folder.mkdir()
    for name in NAMES:
        write_key(made.folder / name)

    environment = {**os.environ, "SSH_AUTH_SOCK": made.socket}

    def call(*words: str | Path) -> None:
        subprocess.run(words, cwd=made.folder, env=environment, check=True, capture_output=True)

    for name, certificate in {
        "plain": "plain-cert.pub",
        "locked": "elsewhere.pub",
        "agent-a": "a.pub",
    }.items():
        call("ssh-keygen", "-q", "-s", "id_ed25519", "-I", "me", "-n", "me", f"{name}.pub")
        (made.folder / f"{name}-cert.pub").rename(made.folder / certificate)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", made.socket], stdout=DEVNULL)
    try:
        # Its socket is there before it listens. 2: no agent answers.
        while subprocess.call(["ssh-add", "-l"], env=environment, stdout=DEVNULL, stderr=DEVNULL) == 2:
            assert agent.poll() is None
        call("ssh-add", "-q", *IN_AGENT)
        call("ssh-keygen", "-q", "-p", "-P", "", "-N", PASSPHRASE, "-f", "locked")
        (made.folder / "locked.pub").unlink()
        (made.folder / "agent-b").unlink()
        yield made
    finally:
        agent.terminate()
        agent.wait()


ALL_BY_AGENT = ["agent-a by agent", "locked by agent", "agent-b by agent"]
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing named: the agent, then the default files": ({}, [*ALL_BY_AGENT, "id_ed25519"]),
    "a file that is not there is passed over": (
        {"identity_files": ["gone", "plain"]},
        ["plain certified", "plain", *ALL_BY_AGENT, "id_ed25519"],
    ),
    "an encrypted one that the agent has": (
        {"identity_files": ["locked"]},
        ["locked by agent", "agent-a by agent", "agent-b by agent", "id_ed25519"],
    ),
    "no other than those named, by the agent too": (
        {"identity_files": ["locked", "agent-b", "gone"], "identities_only": True},
        ["locked by agent", "agent-b by agent"],
    ),
    "named by the public key": (
        {"identity_files": ["agent-b.pub"], "identities_only": True},
        ["agent-b by agent"],
    ),
    "no other than those named, and none is named": ({"identities_only": True}, ["id_ed25519"]),
    "no file": ({"identity_files": ["none"], "identities_only": True}, []),
    "with a passphrase": (
        {"identity_files": ["locked"], "identities_only": True, "passphrase": PASSPHRASE},
        ["locked"],
    ),
    "certificates of keys in files and of the agent's": (
        {
            "identity_files": ["plain", "locked"],
            "certificate_files": ["elsewhere.pub", "gone", "locked", "a.pub"],
        },
        [
            *("plain certified", "plain", "locked by agent certified", "locked by agent"),
            *("agent-a by agent certified", "agent-a by agent", "agent-b by agent", "id_ed25519"),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_keys_to_try_are(case: str, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", keys.socket)
    values, expected = CASES[case]
    files = {
        name: tuple(str(keys.folder / file) for file in values.get(name, ()))
        for name in ("identity_files", "certificate_files")
    }
    hop = Hop("gpu", 22, "me", identities_only=values.get("identities_only", False), **files)
    with closing(Login(hop, Credentials(passphrase=values.get("passphrase")), KeyRing(), keys.home)) as login:
        assert [keys.described(key) for key in login.candidates()] == expected


@pytest.mark.parametrize(
    ("place", "expected"), [("agent", ALL_BY_AGENT), ("none", []), ("gone", []), (".ssh/plain", [])]
)
def test_an_agent_of_its_own_is_asked(
    place: str, expected: list[str], keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "agent":
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    else:
        monkeypatch.setenv("SSH_AUTH_SOCK", keys.socket)
    hop = Hop("gpu", 22, "me", identity_agent=place if place == "none" else str(keys.home / place))
    with closing(Login(hop, Credentials(), KeyRing(), keys.home)) as login:
        assert [keys.described(key) for key in login.candidates()] == [*expected, "id_ed25519"]


def test_a_certificate_of_one_host_is_not_shown_to_another(keys: Keys) -> None:
    ring, file = KeyRing(), str(keys.folder / "locked")
    certificate = str(keys.folder / "elsewhere.pub")
    credentials = Credentials(passphrase=PASSPHRASE)
    with_it = Hop(
        "a", 22, "me", identity_files=(file,), certificate_files=(certificate,), identities_only=True
    )
    without = Hop("b", 22, "me", identity_files=(file,), identities_only=True)
    found = [
        list(map(keys.described, Login(hop, credentials, ring).candidates())) for hop in (with_it, without)
    ]
    assert found == [["locked certified", "locked"], ["locked"]]


@pytest.mark.parametrize("password", [None, "right-horse"])
def test_a_login_that_takes_too_long_is_not_called_a_rejection(keys: Keys, password: str | None) -> None:
    tried: list[object] = []

    class SlowServer:
        def is_active(self) -> bool:
            return True

        def auth_publickey(self, _: str, key: PKey) -> None:
            tried.append(key)
            raise AuthenticationException("Authentication timeout.")

        def auth_password(self, _: str, word: str) -> None:
            tried.append(word)
            raise AuthenticationException("Authentication timeout.")

    files = () if password else (str(keys.folder / "plain"), str(keys.folder / "agent-a"))
    hop = Hop("a", 22, "me", identity_files=files, identities_only=True, identity_agent="none")
    home = keys.home / "none" if password else keys.home
    with pytest.raises(TimeoutError, match="Authentication timeout"):
        Login(hop, Credentials(password=password), KeyRing(), home).authenticate(cast("Any", SlowServer()))
    assert len(tried) == 1


def test_paramiko_still_reports_a_slow_login_by_this_text() -> None:
    assert 'AuthenticationException("Authentication timeout' in inspect.getsource(auth_handler)
