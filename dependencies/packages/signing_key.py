"""The keys that sign repositories: fetched without prompts, checked, and written atomically."""

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
    """The key of a publisher.

    Args:
        uri: the address of the key.
        fingerprints: the primary keys that it may contain; if empty, they are unknown, and the content of the
            address is trusted over HTTPS.
    """

    uri: str
    fingerprints: frozenset[str] = frozenset()

    @classmethod
    def of(cls, uri: str, fingerprints: str) -> SigningKey:
        """Return a key with fingerprints as people write them: blanks inside, commas between."""
        return cls(uri, frozenset(filter(None, map(plain_fingerprint, fingerprints.split(",")))))

    def check_address(self) -> None:
        """Refuse an address whose content an attacker on the network could replace.

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
        """Return the reason why a file is not this key, or nothing; additional keys are accepted."""
        present = facts[keyring_of(path)]
        if present is None:
            return f"the key {path} is not there"
        if present.problem:
            return f"the key {path} is damaged: {present.problem}"
        if self.fingerprints and not self.fingerprints & present.fingerprints:
            return f"the key {path} is another: {', '.join(sorted(present.fingerprints))}"
        return ""

    def step(self, facts: Facts, path: Path, reason: str, *, text: bool) -> Step:
        """Return the step that writes the key; see ``write``.

        Raises:
            HostError: if its address is not trustworthy.
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
        """Fetch the key, check it and write it; a replaced file is kept beside it.

        Args:
            path: the file to write.
            text: whether to write ASCII armour, as rpm needs it, instead of binary, which every apt reads.

        Returns:
            A message.

        Raises:
            DependencyFailedError: if it cannot be fetched, is not a key, or is a different one.
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
                f"{self.uri} delivers more than {_LIMIT_BYTES} bytes: no key",
                remedy="correct the address",
            )
        return data
