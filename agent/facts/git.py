"""Checkouts of git repositories, and the contents of their remotes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_REMOTE_TIMEOUT_S = 20


@dataclass(frozen=True)
class GitCheckout:
    """A work tree.

    Args:
        uri: the address of its remote ``origin``; None if it has none.
        commit: the checked-out commit.
        branch: the checked-out branch; None for a detached commit.
        tags: the tags of that commit.
        changed: tracked files that differ from that commit.
        ahead: branches with commits that the remote's did not have when last fetched.
    """

    uri: str | None
    commit: str
    branch: str | None = None
    tags: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()

    def is_at(self, revision: str) -> bool:
        """Return True if a branch, a tag or a commit (7 digits or more of it) is checked out."""
        short = 7
        by_commit = len(revision) >= short and self.commit.startswith(revision.lower())
        return by_commit or revision == self.branch or revision in self.tags


def git_checkout(folder: Path) -> Fact[GitCheckout | None]:
    """Return the fact of one folder; None if it is not the top of a work tree with a commit."""

    def read(host: Host) -> GitCheckout | None:
        def git(*arguments: str) -> str | None:
            options = ["--no-optional-locks", "-c", f"safe.directory={folder}", "-C", str(folder)]
            return host.output(["git", *options, *arguments])

        top = (git("rev-parse", "--show-toplevel") or "").strip()
        commit = (git("rev-parse", "--verify", "HEAD") or "").strip()
        if not commit or top != str(folder.resolve()):
            return None
        heads = git("for-each-ref", "--format=%(refname:short) %(upstream:track)", "refs/heads") or ""
        return GitCheckout(
            uri=(git("config", "--get", "remote.origin.url") or "").strip() or None,
            commit=commit,
            branch=(git("symbolic-ref", "--short", "--quiet", "HEAD") or "").strip() or None,
            tags=tuple((git("tag", "--points-at", "HEAD") or "").split()),
            changed=tuple((git("diff", "--no-ext-diff", "--name-only", "HEAD", "--") or "").splitlines()),
            ahead=tuple(line.partition(" ")[0] for line in heads.splitlines() if "[ahead" in line),
        )

    return Fact(f"git_checkout[{folder}]", f"git -C {folder}", read)


def remote_revision(text: str, revision: str) -> str:
    """Return the commit of a branch, or else of a tag, in the output of ``git ls-remote``; "" if none."""
    commits = {name: commit for commit, _, name in (line.partition("\t") for line in text.splitlines())}
    names = (f"refs/heads/{revision}", f"refs/tags/{revision}^{{}}", f"refs/tags/{revision}")
    return next((commits[name] for name in names if name in commits), "")


def remote_commit(
    uri: str, revision: str, options: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Fact[str | None]:
    """Return the fact of a branch's or tag's commit in a remote repository; None if not reachable.

    Args:
        uri: the repository, without credentials.
        revision: the branch or tag; the fact is empty if the repository does not have it.
        options: options of git itself.
        env: variables for git, such as those that hold credentials.
    """

    def read(host: Host) -> str | None:
        command = ["git", *options, "ls-remote", "--", uri]
        command += [f"refs/heads/{revision}", f"refs/tags/{revision}", f"refs/tags/{revision}^{{}}"]
        text = host.output(command, timeout_s=_REMOTE_TIMEOUT_S, env=env)
        return None if text is None else remote_revision(text, revision)

    return Fact(f"remote_commit[{uri}][{revision}]", f"git ls-remote {uri}", read)


def git_changes(folder: Path) -> Fact[tuple[str, ...] | None]:
    """Return the fact of the work that deleting a clone would lose; None if unknown."""

    def read(host: Host) -> tuple[str, ...] | None:
        git = ("git", "--no-optional-locks", "-c", f"safe.directory={folder}", "-C", str(folder))
        changed = host.output([*git, "status", "--porcelain"], timeout_s=60)
        own = host.output([*git, "log", "--oneline", "--branches", "HEAD", "--not", "--remotes", "--tags"])
        return None if changed is None or own is None else (*changed.splitlines(), *own.splitlines())

    return Fact(f"git_changes[{folder}]", f"git -C {folder} status, log", read)


GIT_VERSION: Fact[str | None] = Fact(
    "git_version",
    "git --version",
    lambda host: (host.output(["git", "--version"]) or "").removeprefix("git version").strip() or None,
)
