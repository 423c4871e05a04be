from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from agent.errors import DependencyFailedError, HostError
from dependencies.git_repo_clone import GitRepoClone, GitRepoCloneParameters, same_repository

if TYPE_CHECKING:
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
    assert [path.name for path in real_host.context.package_dir.iterdir()] == [".locks", "package"]


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
    with pytest.raises(DependencyFailedError, match="checkout"):
        real_host.apply(clone(origin, Checkout="v1"))
    assert file.read_text() == "edited\n"


def test_what_is_there_and_is_something_else_is_never_touched(real_host: RealHost, origin: Path) -> None:
    folder = real_host.context.package_dir / "package"
    folder.mkdir()
    (folder / "precious").touch()
    with pytest.raises(HostError, match="no clone"):
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
