"""A repository comes from a bundle; its server is not asked."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.component.downloads import Fetching, lacking
from agent.core.errors import HostError
from agent.facts import Facts, LocalHost
from agent.facts.bundle import BUNDLE, Bundle
from tests.dependencies.sources.test_git_repo_clone import clone, git, origin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dependencies.conftest import RealHost

__all__ = ["origin"]


def with_bundle(host: RealHost, *wishes: object) -> RealHost:
    """Fetch what components download, and return the host with the bundle."""
    folder, scratch = host.context.package_dir.parent / "bundle", host.context.package_dir.parent / "scratch"
    scratch.mkdir()
    downloads = [one for wish in wishes for one in wish.downloads(Facts(None))]  # type: ignore[attr-defined]
    for download in downloads:
        download.fetch(Fetching(folder, scratch, Facts(None)))
    contents = frozenset((one.kind, name) for one in downloads for name in one.names)
    bundle = Bundle(folder, "test", contents)
    facts = Facts(LocalHost(), {"package_dir": host.context.package_dir, BUNDLE: bundle})
    return replace(host, facts=facts, context=replace(host.context, facts=facts))


def test_a_clone_without_its_server(real_host: RealHost, origin: Path) -> None:
    address = f"file://{origin}"
    first = clone(origin, RepoUri=address, Checkout="v1", Depth=1)
    second = clone(origin, RepoUri=address, Branch="main", PackageName="second")
    host = with_bundle(real_host, first, second)
    assert len(list((host.context.package_dir.parent / "bundle").rglob("*.bundle"))) == 1
    shutil.rmtree(origin)

    assert lacking(first.downloads(host.facts), host.facts) is None
    assert host.apply(first) == ["clone"]
    assert host.apply(second) == ["clone"]
    assert (host.context.package_dir / "package" / "file").read_text() == "1\n"
    assert (host.context.package_dir / "second" / "file").read_text() == "3\n"
    # Git's own configuration names the server, not the bundle.
    config = (host.context.package_dir / "second" / ".git" / "config").read_text()
    assert address in config
    assert ".bundle" not in config

    # Another revision of the same clone.
    third = clone(origin, RepoUri=address, Checkout="v2", PackageName="second")
    missing = lacking(third.downloads(host.facts), host.facts)
    assert missing is not None
    assert f"lacks git repository {address} v2" in missing.message
    assert host.apply(third) == ["checkout"]
    assert (host.context.package_dir / "second" / "file").read_text() == "2\n"


@pytest.mark.parametrize("revision", ["v9", "0" * 40])
def test_a_revision_that_does_not_exist(real_host: RealHost, origin: Path, revision: str) -> None:
    with pytest.raises(HostError, match="cannot be fetched") as caught:
        with_bundle(real_host, clone(origin, RepoUri=f"file://{origin}", Checkout=revision))
    assert "a commit must be on a branch or a tag" in str(caught.value.remedy)


def test_a_commit_is_found(real_host: RealHost, origin: Path) -> None:
    commit = git(origin, "rev-parse", "v2")
    wish = clone(origin, RepoUri=f"file://{origin}", Commit=commit)
    host = with_bundle(real_host, wish)
    shutil.rmtree(origin)
    host.apply(wish)
    assert (host.context.package_dir / "package" / "file").read_text() == "2\n"
