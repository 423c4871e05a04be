"""Clones a git repository."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.core.errors import ActionFailedError, DependencyFailedError, HostError, LiftedBy
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.bundle import bundle_of
from agent.facts.files import exists
from agent.facts.git import GIT_VERSION, GitCheckout, git_changes, git_checkout, remote_commit
from dependencies.packages.package_folder import locked
from dependencies.sources.bundled_repository import bundled_address, repository_download
from dependencies.sources.git_credentials import GitAddress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts

_ENVIRONMENT = {
    # Nobody is there to answer: fail instead of asking. ssh has no terminal to ask on anyway.
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS_REQUIRE": "never",
}

_REMEDIES = (
    (
        r"Authentication failed|could not read Username|Permission denied",
        "give this user access to the repository",
    ),
    (
        r"Could not resolve host|unable to access|Connection (?:refused|timed out)",
        "see whether this host reaches it",
    ),
    (
        r"[Rr]emote branch .* not found|couldn't find remote ref|did not match any",
        "correct Branch, Commit or Checkout",
    ),
    (
        r"Unable to create '([^']+\.lock)': File exists",
        "end the git that works in that folder; if there is none, one was killed there: remove {0}",
    ),
    (r"not found|does not exist|does not appear to be a git repository", "correct RepoUri"),
    (r"No space left on device", "free some space, or choose another folder for packages"),
)


class GitRepoCloneParameters(ComponentParameters):
    """VirtualClient's parameters (GitRepoClone.cs), and Branch, Commit and Depth."""

    repo_uri: str = Field(..., min_length=1, description="The address of the repository.")
    package_name: str = Field("", description="Its folder's name; by default the repository's own.")
    branch: str = Field("", description="A branch or tag to check out.")
    commit: str = Field("", description="A commit to check out.")
    checkout: str = Field("", description="A branch, tag or commit to check out.")
    depth: int | None = Field(None, ge=1, description="Number of commits to fetch; by default all.")

    @field_validator("repo_uri", "branch", "commit", "checkout")
    @classmethod
    def _no_option(cls, value: str) -> str:
        if value.startswith("-"):
            raise ValueError("it must not begin with a dash")
        return value

    @field_validator("repo_uri")
    @classmethod
    def _address(cls, value: str) -> str:
        GitAddress.parse(value)
        return value

    @field_validator("package_name")
    @classmethod
    def _one_folder(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", value):
            raise ValueError("it must be the name of a folder: letters, digits, . _ -")
        return value

    @property
    def revision(self) -> str:
        """The revision to check out; empty for the default branch."""
        return self.commit or self.checkout or self.branch

    @property
    def address(self) -> GitAddress:
        """The address of the repository, separate from its credentials."""
        return GitAddress.parse(self.repo_uri)

    @property
    def folder_name(self) -> str:
        """The folder's name below the package folder."""
        own = re.sub(r"[^A-Za-z0-9._-]", "-", self.address.uri.rstrip("/").rpartition("/")[2])
        return self.package_name or own.removesuffix(".git") or "repository"


def same_repository(one: str | None, other: str) -> bool:
    """Return True if two addresses mean one repository, despite ``.git``, a final slash, or a password."""

    def plain(uri: str) -> str:
        return re.sub(r"(?<=://)[^/@]*@", "", uri).rstrip("/").removesuffix(".git")

    return one is not None and plain(one) == plain(other)


class GitRepoClone(Dependency):
    """Clones a repository into the package folder, at the requested revision."""

    lifts = frozenset()
    Parameters = GitRepoCloneParameters
    parameters: GitRepoCloneParameters

    def plan(self, facts: Facts) -> Plan:
        """Clone it, or check the revision out in the existing clone."""
        parameters = self.parameters
        uri = parameters.address.uri
        folder = facts[PACKAGE_DIR] / parameters.folder_name
        reason = f"the clone is not there: {folder}"
        name, run, commands = "clone", self._clone, self._clone_commands(facts, folder)
        if facts[exists(folder)]:
            checkout = facts[git_checkout(folder)]
            if checkout is None or not same_repository(checkout.uri, uri):
                what = f"a clone of {checkout.uri or 'nothing'}" if checkout else "something else"
                raise HostError(
                    f"{folder} exists and is {what}, not a clone of {uri}",
                    remedy="move it away, or choose another PackageName; it is never deleted",
                    lifted_by=LiftedBy.SYSTEM,
                )
            reason, kept = self._compared(facts, folder, checkout)
            if not reason:
                return Plan(nothing_to_do=kept)
            if own := self._would_be_lost(checkout):
                raise HostError(
                    f"{reason}, and has changes of its own: {own}",
                    remedy=f"commit and push them, or move {folder} away; they are never overwritten",
                    lifted_by=LiftedBy.SYSTEM,
                )
            commands = self._checkout_commands(facts, folder, branch=checkout.branch == parameters.revision)
            name, run = "checkout", self._checkout
        if facts[GIT_VERSION] is None:
            raise HostError(
                f"git is needed to clone {uri}",
                remedy="install git: a LinuxPackageInstallation with Packages: git before this element",
                lifted_by=LiftedBy.PROGRAM,
            )
        undo = {"folder": str(folder), "uri": uri} if name == "clone" else None
        return Plan((Step(name, reason, run, _shown(commands), self._holds, undo=undo),))

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Return the repository, with all branches and tags."""
        parameters = self.parameters
        return (repository_download(parameters.address, parameters.revision, _ENVIRONMENT),)

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Remove the clone, unless there is anything in it that the remote does not have."""
        folder = Path(values["folder"])
        if not facts[exists(folder)]:
            return Plan(nothing_to_do=f"{folder} is gone")
        checkout = facts[git_checkout(folder)]
        if checkout is None or not same_repository(checkout.uri, values["uri"]):
            return Plan(nothing_to_do=f"{folder} is no longer a clone of {values['uri']}")
        if changes := facts[git_changes(folder)]:
            return Plan(nothing_to_do=f"{folder} has changes of its own: {changes[0].strip()}, …")
        if changes is None:
            return Plan(nothing_to_do=f"nobody can tell what was changed in {folder}")

        def remove(context: StepContext) -> None:
            with locked(folder.parent, folder.name, context):
                shutil.rmtree(folder)

        reason = f"the clone is unchanged: {folder}"
        command = shlex.join(["rm", "-r", str(folder)])
        return Plan((Step("remove", reason, remove, command, lambda fresh: not fresh[exists(folder)]),))

    def _compared(self, facts: Facts, folder: Path, checkout: GitCheckout) -> tuple[str, str]:
        """Return the reason for a checkout, and otherwise a description of the state that is kept."""
        revision, address = self.parameters.revision, self._address(facts)
        if revision and not checkout.is_at(revision):
            return f"the clone is not at {revision}: {folder}", ""
        kept = f"the clone {folder} is at {checkout.branch or checkout.commit}"
        if checkout.changed:
            kept += f", with changes of its own: {', '.join(checkout.changed[:5])}"
        if revision and revision == checkout.branch:
            env = {**_ENVIRONMENT, **address.env}
            now = facts[remote_commit(address.uri, revision, address.options, env)]
            if now is None:
                kept += f"; {address.uri} is not reached, so newer commits are not known"
            elif now not in ("", checkout.commit):
                found = f"the clone is at {checkout.commit[:10]}"
                return f"{found}, and {revision} is at {now[:10]} by now: {folder}", ""
        return "", kept

    def _would_be_lost(self, checkout: GitCheckout) -> str:
        if self.parameters.revision in checkout.ahead:
            return f"commits on {self.parameters.revision}"
        return ", ".join(checkout.changed[:5])

    def _holds(self, facts: Facts) -> bool:
        return not self.plan(facts).steps

    def _address(self, facts: Facts) -> GitAddress:
        """Return the address that git opens: with a bundle, its file takes the place of the server."""
        bundle = bundle_of(facts)
        address = self.parameters.address
        return bundled_address(address, bundle.folder) if bundle else address

    def _depth(self, facts: Facts) -> list[str]:
        """Return the option for a part of the history; a bundle has all of it, and git takes it whole."""
        depth = self.parameters.depth
        return [f"--depth={depth}"] if depth and bundle_of(facts) is None else []

    def _clone_commands(self, facts: Facts, folder: Path) -> list[list[str]]:
        parameters = self.parameters
        depth = self._depth(facts)
        late = bool(parameters.commit or parameters.checkout)
        branch = [f"--branch={parameters.branch}"] if parameters.branch and not late else []
        address = self._address(facts)
        git = ["git", *address.options]
        clone = [*git, "clone", "--progress", *depth, *branch, "--", address.uri, str(folder)]
        return [clone, *(self._checkout_commands(facts, folder) if late else ())]

    def _checkout_commands(self, facts: Facts, folder: Path, *, branch: bool = False) -> list[list[str]]:
        """Fetch, and check out the fetched commit.

        Args:
            facts: the host.
            folder: the clone.
            branch: whether the revision is a branch of the remote, which the local branch must follow.
        """
        address = self._address(facts)
        git = ["git", *address.options, "-C", str(folder)]
        # The clone's own address may contain credentials, which git would show in its command lines.
        noted = ["git", "-C", str(folder), "remote", "set-url", "origin", address.uri]
        revision = self.parameters.revision
        if depth := self._depth(facts):
            fetch = [*git, "fetch", "--progress", *depth, "--force", "origin", revision]
            # A branch of that name records the fetched commit: a shallow fetch brings no names.
            name = ["--detach"] if re.fullmatch(r"[0-9a-f]{7,}", revision) else ["-B", revision]
            return [noted, fetch, [*git, "checkout", *name, "FETCH_HEAD"]]
        heads = "+refs/heads/*:refs/remotes/origin/*"
        name = ["-B", revision, f"refs/remotes/origin/{revision}"] if branch else [revision]
        return [
            noted,
            [*git, "fetch", "--progress", "--tags", "--force", "origin", heads],
            [*git, "checkout", *name],
        ]

    def _clone(self, context: StepContext) -> StepOutcome:
        name = self.parameters.folder_name
        folder = context.package_dir / name
        part = context.package_dir / f".{name}.part"
        with locked(context.package_dir, name, context):
            if not self._holds_now(context, folder):
                if part.exists():
                    shutil.rmtree(part)  # a leftover of an interrupted clone
                for command in self._clone_commands(context.facts, part):
                    self._git(context, command)
                part.rename(folder)
        return StepOutcome(f"cloned into {folder}")

    def _checkout(self, context: StepContext) -> StepOutcome:
        folder = context.package_dir / self.parameters.folder_name
        with locked(context.package_dir, self.parameters.folder_name, context):
            for command in self._checkout_commands(context.facts, folder)[:-1]:
                self._git(context, command)
            known = ["show-ref", "--verify", "--quiet", f"refs/remotes/origin/{self.parameters.revision}"]
            result = context.processes.run(["git", "-C", str(folder), *known], log=context.log, check=False)
            branch = result.exit_code == 0
            self._git(context, self._checkout_commands(context.facts, folder, branch=branch)[-1])
        return StepOutcome(f"checked out {self.parameters.revision}")

    def _holds_now(self, context: StepContext, folder: Path) -> bool:
        """Return True if another agent has done the work meanwhile."""
        facts = context.facts.fresh()
        return facts[exists(folder)] and self._holds(facts)

    def _git(self, context: StepContext, command: list[str]) -> None:
        def show(line: str) -> None:
            match = re.match(r"(?:remote: )?(.*?):\s+(\d+)% ", line)
            if match:
                context.progress.update(match.group(1), done=float(match.group(2)), total=100)

        try:
            env = {**_ENVIRONMENT, **self._address(context.facts).env}
            context.processes.run(command, log=context.log, env=env, on_line=show)
        except ActionFailedError as error:
            output = "\n".join(error.details)
            raise DependencyFailedError(
                error.message, remedy=_remedy(output) or error.remedy, details=error.details
            ) from error


def _remedy(output: str) -> str | None:
    found = ((re.search(pattern, output), text) for pattern, text in _REMEDIES)
    return next((text.format(*match.groups()) for match, text in found if match), None)


def _shown(commands: list[list[str]]) -> str:
    return " && ".join(map(shlex.join, commands))
