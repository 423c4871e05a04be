"""Has a signed repository in dnf, yum, tdnf or zypper: recognised by its address, written once."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.errors import ActionFailedError, DependencyFailedError, HostError
from agent.facts.packages import INSTALLED_PACKAGES
from agent.facts.repositories import RPM_REPOSITORIES
from dependencies.packages.system_file import write_system_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.facts import Facts
    from agent.facts.repositories import RpmRepository
    from dependencies.packages.signing_key import SigningKey

_FOLDERS = {"zypper": Path("/etc/zypp/repos.d")}
_FOLDER = Path("/etc/yum.repos.d")
_KEYS = Path("/etc/pki/rpm-gpg")


@dataclass(frozen=True)
class RpmRepositoryWish:
    """A repository that dnf or zypper must have.

    Args:
        name: its identifier, and the name of its file.
        uri: its baseurl, without variables, so that every manager reads it alike.
        key: what it is signed with.
        signed_packages: whether each package is signed (``gpgcheck``).
        signed_index: whether its index is signed (``repo_gpgcheck``).
        manager: the host's package manager.
        module_hotfixes: whether dnf offers what belongs to streams that are not enabled (dnf.conf(5)): every
            version is there to choose from, and one is named.
        priority: dnf's own: the lower number wins, others have 99 (dnf.conf(5)).
    """

    name: str
    uri: str
    key: SigningKey
    signed_packages: bool
    signed_index: bool
    manager: str
    module_hotfixes: bool = False
    priority: int | None = None

    @property
    def file(self) -> Path:
        """Where it is written if the host does not have it."""
        return _FOLDERS.get(self.manager, _FOLDER) / f"{self.name}.repo"

    @property
    def key_file(self) -> Path:
        """Where its key goes."""
        return _KEYS / f"RPM-GPG-KEY-{self.name}"

    def text(self) -> str:
        """The file's text (dnf.conf(5))."""
        return (
            "# Written by vcagent.\n"
            f"[{self.name}]\nname={self.name}\nbaseurl={self.uri}\nenabled=1\n"
            f"gpgcheck={int(self.signed_packages)}\nrepo_gpgcheck={int(self.signed_index)}\n"
            f"gpgkey=file://{self.key_file}\n"
            + ("module_hotfixes=1\n" if self.module_hotfixes else "")
            + (f"priority={self.priority}\n" if self.priority is not None else "")
        )

    def steps(self, facts: Facts, variables: dict[str, str]) -> list[Step]:
        """What is to be done that the manager has it; nothing where it is there.

        Args:
            facts: the host.
            variables: values of ``releasever`` and ``basearch``, for repositories that are there.

        Raises:
            HostError: if somebody has switched it off.
        """
        present = self._present(facts, variables)
        if any(repository.enabled for repository in present):
            return []
        if present:
            raise HostError(
                f"the repository {present[0].identifier} is in {present[0].file}, switched off",
                remedy=f"switch it on there (enabled=1), or remove it from {present[0].file}",
            )
        steps = []
        if reason := self.key.wrong(facts, self.key_file):
            steps.append(self.key.step(facts, self.key_file, reason, text=True))
        # dnf takes the key from the file that its repository names; zypper would ask whether to trust it.
        if self.manager == "zypper" and not self._trusted(facts):
            command = ["rpm", "--import", str(self.key_file)]
            # Whether it is known afterwards can be told of keys whose fingerprint is known.
            holds = self._trusted if self.key.fingerprints else None
            steps.append(
                Step("trust", "rpm does not know the key", _runner(command), shlex.join(command), holds)
            )
        steps.append(
            Step(
                "repository",
                f"{self.manager} does not have {self.uri}",
                self._write,
                f"write {self.file}",
                lambda fresh: any(repository.enabled for repository in self._present(fresh, variables)),
                undo={"file": str(self.file), "text": self.text()},
            )
        )
        return steps

    def _present(self, facts: Facts, variables: dict[str, str]) -> list[RpmRepository]:
        return [one for one in facts[RPM_REPOSITORIES] if one.offers(self.uri, variables)]

    def _trusted(self, facts: Facts) -> bool:
        # rpm lists a key as a package; its version is the end of the fingerprint, since rpm 6 all of it.
        installed = facts[INSTALLED_PACKAGES]
        return bool(self.key.fingerprints) and all(
            f"gpg-pubkey-{fingerprint[-8:].lower()}" in installed
            or f"gpg-pubkey-{fingerprint.lower()}" in installed
            for fingerprint in self.key.fingerprints
        )

    def _write(self, _context: StepContext) -> StepOutcome:
        write_system_file(self.file, self.text().encode())
        return StepOutcome(f"{self.file} written")


def _runner(command: list[str]) -> Callable[[StepContext], StepOutcome]:
    def run(context: StepContext) -> StepOutcome:
        try:
            context.processes.run(command, log=context.log)
        except ActionFailedError as error:
            raise DependencyFailedError(error.message, remedy=error.remedy, details=error.details) from error
        return StepOutcome("done")

    return run
