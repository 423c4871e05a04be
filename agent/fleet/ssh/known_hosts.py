"""The known host keys: plain, hashed, of an authority, or revoked (sshd(8), SSH_KNOWN_HOSTS)."""

from __future__ import annotations

import base64
import binascii
import os
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from paramiko.hostkeys import HostKeys

from agent.core.safe_files import distrust, make_folder, open_file
from agent.fleet.ssh.host_certificate import certificate_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paramiko import PKey

    from agent.fleet.ssh.route import Hop

_AUTHORITY = "@cert-authority"
_REVOKED = "@revoked"
_PATTERN = re.compile(r"[*?!|]")
_PORT = re.compile(r"\[(.*)\]:\d+")


class KeyStanding(Enum):
    """The standing of a host key in the known_hosts files."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True)
class _Entry:
    where: str
    marker: str
    names: tuple[str, ...]
    key_type: str
    key: bytes
    of_host: bool = False
    """True if the entry is for the host itself, while the server listens on another port."""

    def fits(self, name: str) -> bool:
        """Return True if the entry is about a server."""
        found = False
        for pattern in self.names:
            if pattern.startswith("|1|"):
                found |= HostKeys.hash_host(name, pattern) == pattern
            elif pattern.startswith("!"):
                if _wildcard(pattern[1:], name):
                    return False
            else:
                found |= _wildcard(pattern, name)
        return found


@dataclass(frozen=True)
class _File:
    """The entries of a file: by plain server name, and those that are compared with every name."""

    named: defaultdict[str, list[_Entry]] = field(default_factory=lambda: defaultdict(list))
    others: list[_Entry] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> _File:
        """Read a file; a missing one has no entries."""
        file = cls()
        for entry in _read(path):
            if any(_PATTERN.search(name) for name in entry.names):
                file.others.append(entry)
            else:
                for name in entry.names:
                    file.named[name.lower()].append(entry)
        return file

    def entries(self, name: str) -> list[_Entry]:
        """Return the entries about a server."""
        return [*self.named.get(name.lower(), ()), *(entry for entry in self.others if entry.fits(name))]


class KnownHosts:
    """The known keys of all files; each file is read once. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._found: dict[tuple[str, tuple[str, ...]], list[_Entry]] = {}

    def _entries(self, hop: Hop) -> list[_Entry]:
        asked = (hop.host_key_name, hop.known_hosts)
        with self._lock:
            if asked not in self._found:
                for file in hop.known_hosts:
                    if file not in self._files:
                        self._files[file] = _File.read(Path(file))
                self._found[asked] = list(self._about(hop))
            return self._found[asked]

    def _about(self, hop: Hop) -> Iterator[_Entry]:
        """Yield the entries about a server.

        For a port other than 22, the entries for that port apply. Only if there are none, the host's own keys
        can identify the server, as with ssh; a different key then does not count as changed, because another
        server may listen there. A key that is revoked for the host is revoked on all its ports.
        """
        files = [self._files[file] for file in hop.known_hosts]
        own = [entry for file in files for entry in file.entries(hop.host_key_name)]
        yield from own
        if port := _PORT.fullmatch(hop.host_key_name):
            unknown = all(entry.marker for entry in own)
            for file in files:
                for entry in file.entries(port[1]):
                    if unknown or entry.marker == _REVOKED:
                        yield replace(entry, of_host=True)

    def key_types(self, hop: Hop) -> list[str]:
        """Return the types of the server's known keys: the types to request from it."""
        return [entry.key_type for entry in self._entries(hop) if not entry.marker]

    def has_authority(self, hop: Hop) -> bool:
        """Return True if a certificate authority is known for the server."""
        return any(entry.marker == _AUTHORITY for entry in self._entries(hop))

    def standing(self, hop: Hop, key: PKey) -> tuple[KeyStanding, str]:
        """Return the standing of a key that a server presents, and the problem if it is not accepted.

        Args:
            hop: the server.
            key: its key, with its certificate if it presented one.
        """
        entries = self._entries(hop)
        shown = key.asbytes()
        authorities = [entry.key for entry in entries if entry.marker == _AUTHORITY]
        if any(entry.marker == _REVOKED and entry.key in (shown, *authorities) for entry in entries):
            return KeyStanding.REVOKED, "it is marked as revoked"
        plain = [entry for entry in entries if not entry.marker]
        if any(entry.key == shown for entry in plain):
            return KeyStanding.KNOWN, ""
        problem = ""
        certificate = getattr(key, "public_blob", None)
        if certificate is not None and authorities:
            name = _PORT.sub(r"\1", hop.host_key_name)
            problem = certificate_problem(certificate.key_blob, name, authorities)
            if not problem:
                return KeyStanding.KNOWN, ""
        for entry in plain:
            # Regardless of its type: an attacker could present a key of a type that is not known yet.
            if not entry.of_host:
                return KeyStanding.CHANGED, problem or f"a different key is known ({entry.where})"
        return KeyStanding.UNKNOWN, problem

    def add(self, hop: Hop, key: PKey) -> None:
        """Add a server's key, and write it to the first of its files.

        Raises:
            OSError: if the file cannot be written.
        """
        path = Path(hop.known_hosts[0]).absolute()
        if not distrust(path.parent):  # a link of the account's own is followed, as by ssh
            path = path.resolve()
        line = f"{hop.host_key_name} {key.get_name()} {key.get_base64()}\n"
        with self._lock:
            make_folder(path.parent, 0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            with os.fdopen(open_file(path, flags, other_names=True), "r+", encoding="utf-8") as file:
                file.seek(0)
                text = file.read()
                file.write(line if not text or text.endswith("\n") else f"\n{line}")
            self._files.pop(hop.known_hosts[0], None)
            self._found.clear()


def _read(path: Path) -> Iterator[_Entry]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for number, line in enumerate(lines, start=1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):  # noqa: PLR2004 - names, type and key
            continue
        try:
            key = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        yield _Entry(f"{path}:{number}", marker, tuple(words[0].split(",")), words[1], key)


def _wildcard(pattern: str, name: str) -> bool:
    """Return True if a name matches a pattern of ``*`` and ``?`` (ssh_config(5), PATTERNS)."""
    expression = re.escape(pattern.lower()).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, name.lower()) is not None
