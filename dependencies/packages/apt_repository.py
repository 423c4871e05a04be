"""Adds a signed repository to apt: recognises both formats, writes it once, checks it with its own key."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.errors import HostError
from agent.facts.bundle import bundle_of
from agent.facts.files import names_in
from agent.facts.linux import ARCHITECTURE
from agent.facts.repositories import APT_REPOSITORIES, conflicting_keys
from dependencies.packages.apt import run_apt, update_command
from dependencies.packages.system_file import write_system_file

if TYPE_CHECKING:
    from agent.facts import Facts
    from agent.facts.repositories import AptRepository
    from dependencies.packages.signing_key import SigningKey

_LISTS = Path("/var/lib/apt/lists")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def deb_architecture(machine: str) -> str:
    """Return Debian's name of an architecture: ``x86_64`` is ``amd64``."""
    return _ARCHITECTURES.get(machine, machine)


def require_readable_sources(facts: Facts) -> None:
    """Check that apt can read its sources: if two entries differ in their key, it reads none at all.

    Raises:
        HostError: if it cannot read them; with the two files.
    """
    repositories = facts[APT_REPOSITORIES]
    if both := conflicting_keys(repositories, deb_architecture(facts[ARCHITECTURE])):
        one, other = both
        keys = f"{one.signed_by or 'none'} and {other.signed_by or 'none'}"
        raise HostError(
            f"apt cannot read its sources: {one.uri} {one.suite} is in {one.file} and in {other.file}, with "
            f"different Signed-By ({keys})",
            remedy=f"remove it from {other.file}, or write the same Signed-By in both",
        )


@dataclass(frozen=True)
class AptRepositoryWish:
    """A repository that apt must have.

    Args:
        name: the name of the files: ``sources.list.d/<name>.sources``, ``keyrings/<name>.gpg``.
        uri: the address.
        suite: a suite such as ``noble``; ``/`` for a flat repository.
        components: components such as ``stable``; none for a flat repository.
        architecture: Debian's name of the architecture.
        key: the signing key; None for the key of other entries with the same address.
        folder: apt's configuration folder.
    """

    name: str
    uri: str
    suite: str
    components: tuple[str, ...]
    architecture: str
    key: SigningKey | None
    folder: Path = Path("/etc/apt")

    @property
    def file(self) -> Path:
        """The file to write if the host does not have the repository."""
        return self.folder / "sources.list.d" / f"{self.name}.sources"

    @property
    def keyring(self) -> Path:
        """The file for the key if the host does not have the repository."""
        return self.folder / "keyrings" / f"{self.name}.gpg"

    def text(self, signed_by: str | None = None) -> str:
        """Return the file's text, in the format deb822 (sources.list(5)), which apt reads since 1.1.

        Args:
            signed_by: the keyring that other entries of the address name; empty for apt's own keyrings.
        """
        keyring = str(self.keyring) if signed_by is None else signed_by
        checked = f"Signed-By: {keyring}\n" if keyring else ""
        components = f"Components: {' '.join(self.components)}\n" if self.components else ""
        return (
            "# Written by vcagent.\n"
            f"Types: deb\nURIs: {self.uri}\nSuites: {self.suite}\n{components}"
            f"Architectures: {self.architecture}\n{checked}"
        )

    def steps(self, facts: Facts, lock_timeout_s: float) -> list[Step]:
        """Return the steps that add the repository; none if it exists in either format.

        With a bundle there are none: the bundle has the packages, and no server is reached.

        Raises:
            HostError: if it is disabled, or apt cannot read its sources.
        """
        if bundle_of(facts):
            return []
        require_readable_sources(facts)
        present = self._present(facts)
        enabled = next((repository for repository in present if repository.enabled), None)
        if present and not enabled:
            raise HostError(
                f"the repository {self.uri} {self.suite} is in {present[0].file}, switched off",
                remedy=f"switch it on there (Enabled: yes), or remove it from {present[0].file}",
            )
        steps = []
        keyring = self.keyring
        # An existing repository names the place of its key; without one, apt's own keyrings are used.
        kin = enabled or self._kin(facts)
        if kin:
            keyring = Path(kin.signed_by)
        checked = not kin or (keyring.is_absolute() and not kin.trusted)
        if self.key and checked and (reason := self.key.wrong(facts, keyring)):
            steps.append(self.key.step(facts, keyring, reason, text=keyring.suffix == ".asc"))
        if not enabled:
            steps.append(self._file_step(kin.signed_by if kin else None))
        if steps:
            steps.append(self.refresh_step(facts, lock_timeout_s))
        return steps

    def is_listed(self, facts: Facts) -> bool:
        """Return True if apt has fetched the lists; their names are addresses with ``_`` for ``/``."""
        address = re.sub(r"^\w+:/{0,2}", "", self.uri).strip("/").replace("_", "%5f").replace("/", "_")
        return any(name.startswith(f"{address}_") for name in facts[names_in(_LISTS)])

    def _present(self, facts: Facts) -> list[AptRepository]:
        component = self.components[0] if self.components else None
        return [
            repository
            for repository in facts[APT_REPOSITORIES]
            if repository.offers(self.uri, self.suite, component, self.architecture)
        ]

    def _kin(self, facts: Facts) -> AptRepository | None:
        """Return another entry of the same address, which determines the key for this one too.

        Raises:
            HostError: if that entry contains its key in its file.
        """
        same = (
            one
            for one in facts[APT_REPOSITORIES]
            if one.enabled and one.is_of(self.uri, self.suite, self.architecture)
        )
        kin = next(same, None)
        if kin and kin.signed_by == "inline":
            raise HostError(
                f"{self.uri} {self.suite} is in {kin.file} with a key of its own, without {self._lacks(kin)}",
                remedy=f"add that to the entry in {kin.file}: a second one would have to repeat its key",
            )
        return kin

    def _lacks(self, kin: AptRepository) -> str:
        """Return what an entry of the address lacks."""
        if kin.kind != "deb":
            return "its packages (Types: deb)"
        missing = [one for one in self.components if one not in kin.components]
        return f"the component {missing[0]}" if missing else f"the architecture {self.architecture}"

    def _file_step(self, signed_by: str | None) -> Step:
        text = self.text(signed_by)

        def write(_context: StepContext) -> StepOutcome:
            write_system_file(self.file, text.encode())
            return StepOutcome(f"{self.file} written")

        return Step(
            "repository",
            f"apt does not have {self.uri} {self.suite}",
            write,
            f"write {self.file}",
            lambda facts: any(repository.enabled for repository in self._present(facts)),
            undo={"file": str(self.file), "text": text},
        )

    def refresh_step(self, facts: Facts, lock_timeout_s: float) -> Step:
        """Return the step that fetches the repository's lists."""
        file = next((Path(one.file) for one in self._present(facts) if one.enabled), self.file)
        # Only this repository: others of the host, which may be broken, are not touched.
        only = [f"--option=Dir::Etc::sourcelist={file}", "--option=Dir::Etc::sourceparts=-"]
        command = update_command(*only, "--option=APT::Get::List-Cleanup=0")

        def run(context: StepContext) -> StepOutcome:
            result = run_apt(context, command, lock_timeout_s)
            return StepOutcome(f"done in {result.duration_s:.0f} s")

        return Step("refresh", f"the lists of {self.uri} are not there yet", run, shlex.join(command))
