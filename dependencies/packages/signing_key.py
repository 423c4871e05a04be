"""Keys that repositories are signed with: fetched without prompts, checked, written whole."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlsplit

from agent.component.component import Step, StepOutcome
from agent.core.errors import DependencyFailedError, HostError
from agent.facts.keyrings import keyring, keyring_of, plain_fingerprint, unarmored
from dependencies.packages.system_file import back_up, write_system_file

if TYPE_CHECKING:
    from pathlib import Path

    from agent.facts import Facts

_LIMIT_BYTES = 1024 * 1024
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class SigningKey:
    """A publisher's key.

    Args:
        uri: where it is offered.
        fingerprints: of the primary keys that it may hold; empty where they are not known, and whatever
            the address delivers over HTTPS is believed.
    """

    uri: str
    fingerprints: frozenset[str] = frozenset()

    @classmethod
    def of(cls, uri: str, fingerprints: str) -> SigningKey:
        """A key with its fingerprints as people write them: blanks inside, commas between."""
        return cls(uri, frozenset(filter(None, map(plain_fingerprint, fingerprints.split(",")))))

    def check_address(self) -> None:
        """Refuse an address from which anybody on the way could slip in another key.

        Raises:
            HostError: if it is neither HTTPS nor a file, and no fingerprint is known.
        """
        scheme = urlsplit(self.uri).scheme
        if scheme not in ("https", "file") and not (scheme == "http" and self.fingerprints):
            raise HostError(
                f"the key {self.uri} would be fetched without any proof of where it comes from",
                remedy="give an https address, or the key's fingerprint",
            )

    def wrong(self, facts: Facts, path: Path) -> str:
        """Why a file is not this key, or nothing; further keys beside it do no harm."""
        present = facts[keyring_of(path)]
        if present is None:
            return f"the key {path} is not there"
        if present.problem:
            return f"the key {path} is damaged: {present.problem}"
        if self.fingerprints and not self.fingerprints & present.fingerprints:
            return f"the key {path} is another: {', '.join(sorted(present.fingerprints))}"
        return ""

    def step(self, facts: Facts, path: Path, reason: str, *, text: bool) -> Step:
        """The step that writes the key; see ``write``.

        Raises:
            HostError: if its address proves nothing.
        """
        self.check_address()
        known = {"keyring": str(path), "fingerprints": sorted(self.fingerprints)}
        return Step(
            "key",
            reason,
            lambda _context: StepOutcome(self.write(path, text=text)),
            f"fetch {self.uri}, check it, write {path}",
            lambda fresh: not self.wrong(fresh, path),
            undo=known if facts[keyring_of(path)] is None else None,
        )

    def write(self, path: Path, *, text: bool) -> str:
        """Fetch the key, check it and write it; a file that is replaced is kept beside.

        Args:
            path: where it goes.
            text: as rpm takes it, ASCII-armoured; otherwise as apt takes it everywhere, binary.

        Returns:
            A line for people.

        Raises:
            DependencyFailedError: if it cannot be fetched, is no key, or is another.
        """
        data = self._fetched()
        found = keyring(data)
        if found.problem:
            raise DependencyFailedError(
                f"{self.uri} delivers no key: {found.problem}",
                remedy="see whether a proxy answers in its place, or correct the address",
            )
        if self.fingerprints and not found.fingerprints <= self.fingerprints:
            raise DependencyFailedError(
                f"{self.uri} delivers another key: {', '.join(sorted(found.fingerprints))}",
                remedy=f"expected was {', '.join(sorted(self.fingerprints))}; see whether the publisher has "
                "announced a new key, and give its fingerprint",
            )
        if text and b"-----BEGIN PGP" not in data:
            raise DependencyFailedError(
                f"{self.uri} delivers a binary key, and rpm takes text alone",
                remedy="give the address of the key's text form",
            )
        kept = back_up(path)
        write_system_file(path, data if text else unarmored(data))
        return f"{path} written" + (f"; the one before is {kept}" if kept else "")

    def _fetched(self) -> bytes:
        self.check_address()
        try:
            with urllib.request.urlopen(self.uri, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked above
                data: bytes = answer.read(_LIMIT_BYTES + 1)
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise DependencyFailedError(
                f"the key {self.uri} cannot be fetched: {reason}",
                remedy="see whether this host reaches it: DNS, route, HTTPS_PROXY, certificates",
            ) from error
        if len(data) > _LIMIT_BYTES:
            raise DependencyFailedError(
                f"{self.uri} delivers more than {_LIMIT_BYTES} bytes: no key", remedy="correct the address"
            )
        return data
