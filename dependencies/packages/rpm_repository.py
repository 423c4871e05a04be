"""Adds a signed repository to dnf, yum, tdnf or zypper: recognises it by its address, writes it once."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.errors import ActionFailedError, DependencyFailedError, HostError
from agent.facts.bundle import bundle_of
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
        name: the identifier, and the name of the file.
        uri: the baseurl, without variables, so that all managers read it alike.
        key: the signing key.
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
        """The file to write if the host does not have the repository."""
        return _FOLDERS.get(self.manager, _FOLDER) / f"{self.name}.repo"

    @property
    def key_file(self) -> Path:
        """The file for the key."""
        return _KEYS / f"RPM-GPG-KEY-{self.name}"

    def text(self, key_file: Path | None = None) -> str:
        """Return the file's text (dnf.conf(5)).

        Args:
            key_file: the file with the key, if it is in another place.
        """
        return (
            "# Written by vcagent.\n"
            f"[{self.name}]\nname={self.name}\nbaseurl={self.uri}\nenabled=1\n"
            f"gpgcheck={int(self.signed_packages)}\nrepo_gpgcheck={int(self.signed_index)}\n"
            f"gpgkey=file://{key_file or self.key_file}\n"
            + ("module_hotfixes=1\n" if self.module_hotfixes else "")
            + (f"priority={self.priority}\n" if self.priority is not None else "")
        )

    def steps(self, facts: Facts, variables: dict[str, str]) -> list[Step]:
        """Return the steps that add the repository; none if it exists, or if a bundle takes its place.

        Args:
            facts: the facts about the host.
            variables: values of ``releasever`` and ``basearch``, for existing repositories.

        Raises:
            HostError: if it is disabled.
        """
        if bundle_of(facts):
            return []
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
        # dnf reads the key from the file that the repository names; zypper would ask whether to trust it.
        if self.manager == "zypper" and not self._trusted(facts):
            command = ["rpm", "--import", str(self.key_file)]
            # Only keys with a known fingerprint can be checked afterwards.
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
        # rpm lists a key as a package; its version is the end of the fingerprint, since rpm 6 the whole.
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
