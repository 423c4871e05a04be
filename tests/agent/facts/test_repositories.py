from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from agent.facts import Facts, LocalHost
from agent.facts.keyrings import Keyring, keyring, keyring_of, plain_fingerprint
from agent.facts.repositories import (
    APT_REPOSITORIES,
    AptRepository,
    RpmRepository,
    deb822_repositories,
    one_line_repositories,
    repo_file,
    same_address,
)

DOCKER = "https://download.docker.com/linux/ubuntu"
TOOLKIT = "https://nvidia.github.io/libnvidia-container/stable/deb"


def offers_docker(repository: AptRepository) -> bool:
    return repository.offers(DOCKER, "noble", "stable", "amd64")


@pytest.mark.parametrize(
    ("line", "same"),
    [
        (f"deb {DOCKER} noble stable", True),
        (f"deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] {DOCKER} noble stable", True),
        (f"  deb\t[ arch=amd64,arm64 ]\t{DOCKER}/  noble  stable test # Docker", True),
        (f"deb http://user:secret@{DOCKER[8:]} noble stable", True),
        (f"deb [arch=arm64] {DOCKER} noble stable", False),
        (f"deb {DOCKER} jammy stable", False),
        (f"deb {DOCKER} noble test", False),
        (f"# deb {DOCKER} noble stable", False),
        (f"deb-src {DOCKER} noble stable", False),
        ("deb https://example.com/linux/ubuntu noble stable", False),
        ("deb", False),
        ("", False),
    ],
)
def test_one_line(line: str, same: bool) -> None:  # noqa: FBT001 - a table's column
    assert any(map(offers_docker, one_line_repositories(line, "f"))) is same


def test_flat_one_line() -> None:
    (repository,) = one_line_repositories(
        f"deb [signed-by=/usr/share/keyrings/nvidia.gpg] {TOOLKIT}/$(ARCH) /\n"
        f"#deb {TOOLKIT.replace('stable', 'experimental')}/$(ARCH) /\n",
        "nvidia.list",
    )
    assert repository.offers(f"{TOOLKIT}/amd64", "/", None, "amd64")
    assert not repository.offers(f"{TOOLKIT}/amd64", "/", None, "arm64")
    assert repository.signed_by == "/usr/share/keyrings/nvidia.gpg"


def test_deb822() -> None:
    text = f"""\
# made by hand
Types: deb deb-src
URIs: {DOCKER}
# between
Suites: jammy
 noble
Components: stable
Architectures: amd64
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: {TOOLKIT}/$(ARCH)
Suites: /
Signed-By: /usr/share/keyrings/nvidia.gpg
"""
    repositories = deb822_repositories(text, "f.sources")
    assert [(one.kind, one.suite) for one in repositories] == [
        ("deb", "jammy"), ("deb", "noble"), ("deb-src", "jammy"), ("deb-src", "noble"), ("deb", "/"),
    ]  # fmt: skip
    assert sum(map(offers_docker, repositories)) == 1
    assert {one.signed_by for one in repositories[:4]} == {"inline"}
    assert not repositories[-1].enabled
    assert repositories[-1].offers(f"{TOOLKIT}/arm64", "", None, "arm64")


def test_repo_file() -> None:
    text = """\
[docker-ce-stable]
name=Docker CE Stable - $basearch
baseurl=https://download.docker.com/linux/centos/$releasever/$basearch/stable
enabled=1
gpgcheck=1
gpgkey=https://download.docker.com/linux/centos/gpg

[docker-ce-test]
baseurl=https://download.docker.com/linux/centos/$releasever/$basearch/test/
enabled=0
"""
    stable, test = repo_file(text, "f")
    assert stable.offers("https://download.docker.com/linux/centos/$releasever/$basearch/stable/")
    assert stable.offers(
        "https://download.docker.com/linux/centos/9/x86_64/stable", {"releasever": "9", "basearch": "x86_64"}
    )
    assert not stable.offers("https://download.docker.com/linux/centos/9/x86_64/stable")
    assert stable.enabled
    assert test == RpmRepository(
        "docker-ce-test",
        ("https://download.docker.com/linux/centos/$releasever/$basearch/test/",),
        False,
        "f",
    )
    assert repo_file("no section\n", "f") == ()


def test_addresses() -> None:
    assert same_address("http://a.example/x/", "https://a.example/x")
    assert not same_address("https://a.example/x", "https://a.example/y")


@pytest.mark.skipif(not Path("/etc/apt").is_dir(), reason="needs apt")
def test_the_repositories_of_this_host() -> None:
    shown = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    enabled = [one for one in Facts(LocalHost())[APT_REPOSITORIES] if one.enabled and one.kind == "deb"]
    for line in filter(None, shown.splitlines()):
        uri, _, suite = line.partition(" ")
        assert any(same_address(one.uri, uri) and one.suite == suite for one in enabled), line


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes, bytes]:
    """Return a real key: its fingerprint, binary and text."""
    if not shutil.which("gpg"):
        pytest.skip("needs gpg")
    home = tmp_path_factory.mktemp("g")
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    subprocess.run(
        [*gpg, "--passphrase", "", "--quick-gen-key", "Test <t@example.com>", "rsa2048"], check=True
    )

    def output(*options: str) -> bytes:
        return subprocess.run([*gpg, *options], check=True, capture_output=True).stdout

    listed = output("--with-colons", "--list-keys").decode()
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
    exported = fingerprint, output("--export"), output("--armor", "--export")
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)
    return exported


def test_a_real_key(key: tuple[str, bytes, bytes], tmp_path: Path) -> None:
    fingerprint, binary, text = key
    expected = Keyring(frozenset({fingerprint}))
    assert keyring(binary) == keyring(text) == keyring(text.replace(b"\n", b"\r\n")) == expected
    path = tmp_path / "key.gpg"
    path.write_bytes(binary)
    assert Facts(LocalHost())[keyring_of(path)] == expected
    assert Facts(LocalHost())[keyring_of(tmp_path / "none")] is None


def test_a_key_cut_at_any_byte_is_none(key: tuple[str, bytes, bytes]) -> None:
    _, binary, text = key
    for length in range(0, len(binary), 3):
        assert keyring(binary[:length]).problem, length
    for length in range(0, text.rindex(b"-----END"), 3):
        assert keyring(text[:length]).problem, length


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "no public key"),
        (b"<html>404</html>", "not OpenPGP data"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQIN", "cut short"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!!\n-----END PGP PUBLIC KEY BLOCK-----", "damaged"),
        (b"\x99\x00\x01\x03", "version 3"),
    ],
)
def test_what_is_no_key(data: bytes, problem: str) -> None:
    assert problem in keyring(data).problem


def test_fingerprints_are_compared_without_blanks() -> None:
    assert plain_fingerprint("9dc8 5822 9fc7") == "9DC858229FC7"
