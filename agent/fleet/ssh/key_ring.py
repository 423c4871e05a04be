"""Private keys, each read and decrypted once for all hosts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from paramiko import SSHClient, SSHException

if TYPE_CHECKING:
    from collections.abc import Callable

    from paramiko import PKey

__all__ = ["KeyRing", "KeyRingClient"]

_CERTIFICATE = "-cert.pub"


class KeyRing:
    """The keys that were tried, good or not; one whose files have changed since is read again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tried: dict[tuple[object, ...], PKey | SSHException] = {}

    def key(self, file: str, kind: type[PKey], passphrase: str | None, read: Callable[[], PKey]) -> PKey:
        """A key, with its certificate if it has one.

        Args:
            file: of the key or of its certificate.
            kind: what it is tried as.
            passphrase: what it is decrypted with.
            read: reads it.

        Raises:
            SSHException: if it is none of that kind, or cannot be decrypted.
            OSError: if it cannot be read.
        """
        private = file.removesuffix(_CERTIFICATE)
        asked = (file, kind, passphrase, _changed_ns(private), _changed_ns(private + _CERTIFICATE))
        with self._lock:
            if asked not in self._tried:
                try:
                    self._tried[asked] = read()
                except SSHException as error:
                    self._tried[asked] = error
            found = self._tried[asked]
        if isinstance(found, SSHException):
            raise type(found)(*found.args)
        return found


class KeyRingClient(SSHClient):
    """Takes its keys from a key ring: paramiko's reads them for each connection, as each kind of key.

    Args:
        keys: the key ring.
    """

    def __init__(self, keys: KeyRing) -> None:
        super().__init__()
        self._keys = keys

    def _key_from_filepath(self, filename: str, klass: type[PKey], password: str | None) -> PKey:
        def read() -> PKey:
            key: PKey = super(KeyRingClient, self)._key_from_filepath(filename, klass, password)  # type: ignore[misc]
            return key

        return self._keys.key(filename, klass, password, read)


def _changed_ns(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0
