"""Checkouts of git repositories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GIT_VERSION", "GitCheckout", "git_changes", "git_checkout"]


@dataclass(frozen=True)
class GitCheckout:
    """A work tree.

    Args:
        uri: the address of its remote ``origin``; None where it has none.
        commit: what is checked out.
        branch: the branch that is checked out; None for a commit alone.
        tags: the tags of that commit.
    """

    uri: str | None
    commit: str
    branch: str | None = None
    tags: tuple[str, ...] = ()

    def is_at(self, revision: str) -> bool:
        """Whether a branch, a tag or a commit (7 digits or more of it) is what is checked out."""
        short = 7
        by_commit = len(revision) >= short and self.commit.startswith(revision.lower())
        return by_commit or revision == self.branch or revision in self.tags


def git_checkout(folder: Path) -> Fact[GitCheckout | None]:
    """The fact about one folder: None where it is not the top of a work tree with a commit."""

    def read(host: Host) -> GitCheckout | None:
        def git(*arguments: str) -> str | None:
            return host.output(["git", "-c", f"safe.directory={folder}", "-C", str(folder), *arguments])

        top = (git("rev-parse", "--show-toplevel") or "").strip()
        commit = (git("rev-parse", "--verify", "HEAD") or "").strip()
        if not commit or top != str(folder.resolve()):
            return None
        return GitCheckout(
            uri=(git("config", "--get", "remote.origin.url") or "").strip() or None,
            commit=commit,
            branch=(git("symbolic-ref", "--short", "--quiet", "HEAD") or "").strip() or None,
            tags=tuple((git("tag", "--points-at", "HEAD") or "").split()),
        )

    return Fact(f"git_checkout[{folder}]", f"git -C {folder}", read)


def git_changes(folder: Path) -> Fact[tuple[str, ...] | None]:
    """What would be lost with a clone: changed and new files, commits that no remote has; None if unknown."""

    def read(host: Host) -> tuple[str, ...] | None:
        git = ("git", "-c", f"safe.directory={folder}", "-C", str(folder))
        changed = host.output([*git, "status", "--porcelain"], timeout_s=60)
        own = host.output([*git, "log", "--oneline", "--branches", "HEAD", "--not", "--remotes", "--tags"])
        return None if changed is None or own is None else (*changed.splitlines(), *own.splitlines())

    return Fact(f"git_changes[{folder}]", f"git -C {folder} status, log", read)


GIT_VERSION: Fact[str | None] = Fact(
    "git_version",
    "git --version",
    lambda host: (host.output(["git", "--version"]) or "").removeprefix("git version").strip() or None,
)
