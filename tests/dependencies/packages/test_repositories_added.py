"""Signed repositories in the real apt, and invalid keys."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import DependencyFailedError, HostError
from agent.facts import Facts, LocalHost
from agent.facts.keyrings import keyring
from agent.facts.packages import AVAILABLE_PACKAGES
from dependencies.packages.apt_repository import AptRepositoryWish
from dependencies.packages.rpm_repository import RpmRepositoryWish
from dependencies.packages.signing_key import SigningKey
from tests.lab.host.web.apt_repository import publish_flat, signing_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dependencies.conftest import RealHost

NAME = f"vcagent-test-{os.getpid()}"
PACKAGE = f"{NAME}-package"

needs_gpg = pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg")
real_apt = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("apt-get", "apt-ftparchive", "dpkg-deb", "gpg"))),
    reason="needs root, apt, apt-utils and gpg",
)


@pytest.fixture
def repository() -> Iterator[AptRepositoryWish]:
    """Return a signed flat repository with one package, and restore apt afterwards."""
    with tempfile.TemporaryDirectory(prefix="vcagent-repository-") as folder:
        Path(folder).chmod(0o755)  # apt fetches as the user _apt
        root, tree = Path(folder) / "repository", Path(folder) / "tree"
        root.mkdir()
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN" / "control").write_text(
            f"Package: {PACKAGE}\nVersion: 1.0\nArchitecture: all\n"
            "Maintainer: t <t@example.com>\nDescription: test\n"
        )
        subprocess.run(["dpkg-deb", "--build", tree, root / "p.deb"], check=True, stdout=subprocess.DEVNULL)
        with signing_key("Test <test@example.com>") as key:
            publish_flat(root, "Test", key)
            (root / "gpgkey").write_bytes(key.public())
        uri = f"file://{root}"
        fingerprints = keyring((root / "gpgkey").read_bytes()).fingerprints
        yield AptRepositoryWish(NAME, uri, "/", (), "amd64", SigningKey(f"{uri}/gpgkey", fingerprints))
        for path in Path("/etc/apt").glob(f"*/{NAME}*"):
            path.unlink()
        for path in Path("/var/lib/apt/lists").glob(f"*{Path(folder).name}*"):
            path.unlink()


def apply(host: RealHost, wish: AptRepositoryWish) -> list[str]:
    steps = wish.steps(host.facts.fresh(), 60)
    for step in steps:
        step.run(host.context)
        assert step.holds is None or step.holds(host.facts.fresh()), step.name
    assert wish.steps(host.facts.fresh(), 60) == []
    return [step.name for step in steps]


@real_apt
@pytest.mark.root
def test_added_once_and_found_in_either_format(real_host: RealHost, repository: AptRepositoryWish) -> None:
    assert apply(real_host, repository) == ["key", "repository", "refresh"]
    assert PACKAGE in real_host.facts.fresh()[AVAILABLE_PACKAGES]
    assert repository.keyring.stat().st_mode & 0o777 == 0o644
    # The same in the notation of older guides.
    repository.file.with_suffix(".list").write_text(
        f"deb [signed-by={repository.keyring}] {repository.uri}/ /\n"
    )
    repository.file.unlink()
    assert apply(real_host, repository) == []


@real_apt
@pytest.mark.root
def test_a_damaged_key_is_replaced_and_kept(real_host: RealHost, repository: AptRepositoryWish) -> None:
    apply(real_host, repository)
    damaged = repository.keyring.read_bytes()[5:]
    repository.keyring.write_bytes(damaged)
    assert apply(real_host, repository) == ["key", "refresh"]
    (kept,) = repository.keyring.parent.glob(f"{repository.keyring.name}.*.bak")
    assert kept.read_bytes() == damaged


@real_apt
@pytest.mark.root
def test_a_repository_signed_by_somebody_else(real_host: RealHost, repository: AptRepositoryWish) -> None:
    with signing_key("Other <other@example.com>") as other:
        other_key = Path(repository.uri.removeprefix("file://")) / "other"
        other_key.write_bytes(other.public())
    fingerprints = keyring(other_key.read_bytes()).fingerprints
    wrong = AptRepositoryWish(
        NAME, repository.uri, "/", (), "amd64", SigningKey(f"file://{other_key}", fingerprints)
    )
    *steps, refresh = wrong.steps(real_host.facts.fresh(), 60)
    for step in steps:
        step.run(real_host.context)
    with pytest.raises(DependencyFailedError) as error:
        refresh.run(real_host.context)
    assert "renew the key of that repository" in (error.value.remedy or "")


@needs_gpg
def test_another_key_than_expected_is_never_written(tmp_path: Path) -> None:
    with signing_key("Test <test@example.com>") as key:
        (tmp_path / "gpgkey").write_bytes(key.public())
        (tmp_path / "binary").write_bytes(key.public(armored=False))
    expected = SigningKey.of(f"file://{tmp_path}/gpgkey", "9DC8 5822 9FC7 DD38 854A E2D8 8D81 803C 0EBF CD88")
    with pytest.raises(DependencyFailedError, match="delivers another key"):
        expected.write(tmp_path / "written.gpg", text=False)
    assert not (tmp_path / "written.gpg").exists()
    with pytest.raises(DependencyFailedError, match="rpm takes text alone"):
        SigningKey(f"file://{tmp_path}/binary").write(tmp_path / "written.gpg", text=True)
    SigningKey(f"file://{tmp_path}/gpgkey").write(tmp_path / "written.asc", text=True)
    assert (tmp_path / "written.asc").read_bytes() == (tmp_path / "gpgkey").read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>", "delivers no key: it is not OpenPGP data"),
        (b"x" * 2**21, "no key"),
        (None, "cannot be fetched"),
    ],
)
def test_what_is_no_key(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(DependencyFailedError, match=message):
        SigningKey(f"file://{tmp_path}/key").write(tmp_path / "written", text=False)
    assert not (tmp_path / "written").exists()


def test_an_address_that_anybody_could_answer_for() -> None:
    with pytest.raises(HostError, match="without any proof"):
        SigningKey("http://example.com/key").check_address()
    SigningKey.of("http://example.com/key", "9DC8 5822").check_address()
    for address in ("ftp://example.com/key", "data:,x", "key"):
        with pytest.raises(HostError):
            SigningKey.of(address, "9DC8 5822").check_address()


def test_what_is_written_is_recognised() -> None:
    key = SigningKey.of("https://example.com/gpgkey", "9DC8 5822")
    for manager in ("dnf", "zypper"):
        wish = RpmRepositoryWish(
            "vcagent-x",
            "https://example.com/9/x86_64",
            key,
            signed_packages=True,
            signed_index=False,
            manager=manager,
        )

        class Host(LocalHost):
            def text(self, path: str) -> str | None:
                return wish.text() if path == str(wish.file) else None  # noqa: B023 - used in this iteration

            def names(self, folder: str) -> list[str]:
                return [wish.file.name] if folder == str(wish.file.parent) else []  # noqa: B023

        assert wish.steps(Facts(Host()), {}) == []
        assert (
            "gpgcheck=1\nrepo_gpgcheck=0\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-vcagent-x" in wish.text()
        )
