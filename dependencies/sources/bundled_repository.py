"""Git repositories in a bundle: one file each, with all branches and tags, that git clones from."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from agent.component.downloads import Download, Fetching, run_captured
from agent.core.errors import HostError, LiftedBy
from agent.core.safe_files import make_folder
from agent.core.secrets import Secrets
from dependencies.sources.git_credentials import GitAddress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KIND = "git repository"
_FOLDER = "git"


def repository_download(address: GitAddress, revision: str, environment: Mapping[str, str]) -> Download:
    """Return the download of a repository.

    Args:
        address: its address.
        revision: a branch, tag or commit that must be in it; empty for the default branch.
        environment: variables with which git does not ask questions.
    """

    def fetch(fetching: Fetching) -> None:
        file = _file(fetching.folder, address.uri)
        clone = fetching.scratch / file.stem
        fetching.say(f"repository {address.uri}")
        if not clone.exists():
            make_folder(file.parent)
            command = ["git", *address.options, "clone", "--quiet", "--bare", "--", address.uri, str(clone)]
            _git(address, command, {**environment, **address.env})
            _git(address, ["git", "-C", str(clone), "bundle", "create", str(file), "--all"])
        # As a branch, a tag, or a commit of one of them.
        _git(address, ["git", "-C", str(clone), "rev-parse", "--verify", f"{revision or 'HEAD'}^{{commit}}"])

    return Download(KIND, (f"{address.uri} {revision}".strip(),), fetch)


def bundled_address(address: GitAddress, bundle: Path) -> GitAddress:
    """Return an address with which git takes a repository from a bundle and reaches no server."""
    return GitAddress(address.uri, ((f"url.{_file(bundle, address.uri)}.insteadOf", address.uri),))


def _file(bundle: Path, uri: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", uri.rstrip("/").rpartition("/")[2].removesuffix(".git"))
    return bundle / _FOLDER / f"{name}-{hashlib.sha256(uri.encode()).hexdigest()[:12]}.bundle"


def _git(address: GitAddress, command: list[str], environment: Mapping[str, str] | None = None) -> None:
    done = run_captured(command, {"LC_ALL": "C", **(environment or {})})
    if done.failed:
        raise HostError(
            f"the repository {address.uri} cannot be fetched",
            details=tuple(Secrets().mask(line) for line in done.errors.strip().splitlines()[-6:]),
            remedy="correct RepoUri, Branch, Commit or Checkout; a commit must be on a branch or a tag",
            lifted_by=LiftedBy.NOTHING,
        )
