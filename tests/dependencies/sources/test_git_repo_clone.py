from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from agent.core.errors import DependencyFailedError, HostError
from dependencies.sources.git_credentials import GitAddress
from dependencies.sources.git_repo_clone import GitRepoClone, GitRepoCloneParameters, same_repository
from tests.dependencies.private_server import QUOTED_TOKEN, PrivateServer, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dependencies.conftest import RealHost


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin.git"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number in (1, 2, 3):
        (folder / "file").write_text(f"{number}\n")
        git(folder, "add", "file")
        git(folder, "commit", "-q", "-m", str(number))
        git(folder, "tag", f"v{number}")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    return folder


def clone(origin: Path, **parameters: Any) -> GitRepoClone:
    values = {"RepoUri": f"file://{origin}", "PackageName": "package", **parameters}
    return GitRepoClone(GitRepoCloneParameters.model_validate(values))


def test_it_is_cloned_once(real_host: RealHost, origin: Path) -> None:
    assert real_host.apply(clone(origin)) == ["clone"]
    assert real_host.apply(clone(origin)) == []
    assert (real_host.context.package_dir / "package" / "file").read_text() == "3\n"
    names = sorted(path.name for path in real_host.context.package_dir.iterdir())
    assert names == [".locks", "package"]


@pytest.mark.parametrize("depth", [None, 1])
def test_revisions(real_host: RealHost, origin: Path, depth: int | None) -> None:
    package = real_host.context.package_dir / "package"
    extra = {"Depth": depth} if depth else {}
    assert real_host.apply(clone(origin, Commit=git(origin, "rev-parse", "v1"), **extra)) == ["clone"]
    assert (package / "file").read_text() == "1\n"
    assert real_host.apply(clone(origin, Checkout="v2", **extra)) == ["checkout"]
    assert (package / "file").read_text() == "2\n"
    if depth is None:
        assert real_host.apply(clone(origin, Branch="main")) == ["checkout"]
        assert (package / "file").read_text() == "3\n"


def test_the_name_comes_from_the_address(real_host: RealHost, origin: Path) -> None:
    real_host.apply(clone(origin, PackageName="", Branch="v2", Depth=1))
    assert (real_host.context.package_dir / "origin" / "file").read_text() == "2\n"


def test_a_clone_that_was_cut_short_is_made_anew(real_host: RealHost, origin: Path) -> None:
    part = real_host.context.package_dir / ".package.part"
    part.mkdir()
    (part / "half").touch()
    assert real_host.apply(clone(origin)) == ["clone"]
    assert not part.exists()


def test_changes_in_a_checkout_are_not_lost(real_host: RealHost, origin: Path) -> None:
    real_host.apply(clone(origin))
    file = real_host.context.package_dir / "package" / "file"
    file.write_text("edited\n")
    with pytest.raises(HostError, match="has changes of its own: file") as error:
        real_host.apply(clone(origin, Checkout="v1"))
    assert "never overwritten" in (error.value.remedy or "")
    assert file.read_text() == "edited\n"
    plan = clone(origin, Branch="main").plan(real_host.facts.fresh())
    assert plan.nothing_to_do.endswith("is at main, with changes of its own: file")


def commit(folder: Path, text: str) -> str:
    (folder / "file").write_text(text)
    git(folder, "commit", "-q", "-a", "-m", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.mark.parametrize("depth", [None, 1])
def test_a_branch_follows_its_remote(real_host: RealHost, origin: Path, depth: int | None) -> None:
    extra = {"Depth": depth} if depth else {}
    wish = clone(origin, Branch="main", **extra)
    assert real_host.apply(wish) == ["clone"]
    assert real_host.apply(wish) == []
    newest = commit(origin, "4\n")
    (step,) = wish.plan(real_host.facts.fresh()).steps
    assert f"main is at {newest[:10]} by now" in step.reason
    assert real_host.apply(wish) == ["checkout"]
    package = real_host.context.package_dir / "package"
    assert (git(package, "rev-parse", "HEAD"), git(package, "branch", "--show-current")) == (newest, "main")

    # Rewritten history.
    git(origin, "reset", "-q", "--hard", "v2")
    newest = commit(origin, "another 3\n")
    assert real_host.apply(wish) == ["checkout"]
    assert git(package, "rev-parse", "HEAD") == newest


def test_commits_of_ones_own_are_not_lost(real_host: RealHost, origin: Path) -> None:
    real_host.apply(clone(origin, Branch="main"))
    package = real_host.context.package_dir / "package"
    own = commit(package, "own\n")
    commit(origin, "4\n")
    with pytest.raises(HostError, match="of its own: commits on main"):
        real_host.apply(clone(origin, Branch="main"))
    assert real_host.apply(clone(origin, Checkout="v1")) == ["checkout"]
    with pytest.raises(HostError, match="of its own: commits on main"):
        real_host.apply(clone(origin, Branch="main"))
    assert git(package, "rev-parse", "main") == own


def test_a_remote_that_is_not_reached(real_host: RealHost, origin: Path) -> None:
    real_host.apply(clone(origin, Branch="main"))
    shutil.move(origin, origin.with_name("gone"))
    plan = clone(origin, Branch="main").plan(real_host.facts.fresh())
    assert "is at main" in plan.nothing_to_do
    assert "is not reached" in plan.nothing_to_do


def test_a_lock_that_a_killed_git_left(real_host: RealHost, origin: Path) -> None:
    real_host.apply(clone(origin))
    lock = real_host.context.package_dir / "package" / ".git" / "index.lock"
    lock.touch()
    with pytest.raises(DependencyFailedError) as error:
        real_host.apply(clone(origin, Checkout="v1"))
    assert f"remove {lock}" in (error.value.remedy or "")
    assert lock.exists()


@pytest.fixture
def private(origin: Path) -> Iterator[str]:
    """Return the address of a repository that needs a password."""
    git(origin, "update-server-info")
    with serving(origin.parent) as host:
        yield f"{host}/origin.git/.git"


def test_credentials_are_shown_to_nobody(real_host: RealHost, origin: Path, private: str) -> None:
    address = f"http://user:{QUOTED_TOKEN}@{private}"
    wish = clone(origin, RepoUri=address, Branch="main")
    (step,) = wish.plan(real_host.facts.fresh()).steps
    assert "T0ken" not in step.command
    assert step.undo
    assert "T0ken" not in str(step.undo), "the journal keeps it"
    assert real_host.apply(wish) == ["clone"]
    package = real_host.context.package_dir / "package"
    assert git(package, "remote", "get-url", "origin") == f"http://{private}"

    # An address with credentials, as an earlier version left it, and newer commits.
    git(package, "remote", "set-url", "origin", address)
    commit(origin, "4\n")
    git(origin, "update-server-info")
    assert real_host.apply(wish) == ["checkout"]
    assert (package / "file").read_text() == "4\n"
    assert PrivateServer.served
    assert PrivateServer.seen == []
    files = [path for path in real_host.context.package_dir.parent.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if b"T0ken" in path.read_bytes()] == []


def test_without_the_credentials_there_is_a_remedy(real_host: RealHost, origin: Path, private: str) -> None:
    with pytest.raises(DependencyFailedError) as error:
        real_host.apply(clone(origin, RepoUri=f"http://user:wrong@{private}"))
    assert "give this user access" in (error.value.remedy or "")


@pytest.mark.parametrize(
    ("text", "uri", "credentials"),
    [
        ("https://token@host/a.git", "https://host/a.git", ["token", ""]),
        ("https://user7:p%40x@host:8443/a", "https://host:8443/a", ["user7", "p@x"]),
        ("https://host/a", "https://host/a", []),
        ("ssh://git@host/a.git", "ssh://git@host/a.git", []),
        ("git@host:a.git", "git@host:a.git", []),
        ("/folder/a@b", "/folder/a@b", []),
    ],
)
def test_what_of_an_address_is_a_credential(text: str, uri: str, credentials: list[str]) -> None:
    address = GitAddress.parse(text)
    assert address.uri == uri
    assert list(address.env.values()) == credentials
    assert not any(value and value in " ".join(address.options) for value in credentials)


def test_what_is_there_and_is_something_else_is_never_touched(real_host: RealHost, origin: Path) -> None:
    folder = real_host.context.package_dir / "package"
    folder.mkdir()
    (folder / "precious").touch()
    with pytest.raises(HostError, match="is something else, not a clone"):
        real_host.apply(clone(origin))
    assert (folder / "precious").exists()


@pytest.mark.parametrize(
    ("parameters", "remedy"),
    [
        ({"RepoUri": "file:///no/such/repository"}, "correct RepoUri"),
        ({"Branch": "no-such-branch"}, "correct Branch"),
        ({"RepoUri": "http://127.0.0.1:9/x.git"}, "whether this host reaches it"),
    ],
)
def test_failures_have_a_remedy(
    real_host: RealHost, origin: Path, parameters: dict[str, str], remedy: str
) -> None:
    with pytest.raises(DependencyFailedError) as error:
        real_host.apply(clone(origin, **parameters))
    assert remedy in (error.value.remedy or "")
    assert not (real_host.context.package_dir / "package").exists()


def test_options_cannot_be_smuggled_in() -> None:
    for values in ({"repo_uri": "--upload-pack=x"}, {"repo_uri": "x", "branch": "-f"}):
        with pytest.raises(ValidationError, match="dash"):
            GitRepoCloneParameters.model_validate(values)
    with pytest.raises(ValidationError, match="name of a folder"):
        GitRepoCloneParameters.model_validate({"repo_uri": "x", "package_name": "../x"})


def test_addresses_of_one_repository() -> None:
    assert same_repository("https://user:secret@host/a/b.git", "https://host/a/b/")
    assert not same_repository("https://host/a/b", "https://host/a/c")
    assert not same_repository(None, "https://host/a/b")
