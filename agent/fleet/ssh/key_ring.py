"""Reads and decrypts each private key once for all hosts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from paramiko import ECDSAKey, Ed25519Key, PasswordRequiredException, RSAKey, SSHException

if TYPE_CHECKING:
    from paramiko import PKey


class KeyRing:
    """The keys that were tried, valid or not; a key is read again if its file has changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tried: dict[tuple[object, ...], PKey | SSHException] = {}

    def key(self, file: str, passphrase: str | None) -> PKey:
        """Return a private key.

        Args:
            file: the path of the key file.
            passphrase: the passphrase to decrypt it with.

        Raises:
            PasswordRequiredException: if the key is encrypted and there is no passphrase.
            SSHException: if the file is not a key, or cannot be decrypted.
            OSError: if the file cannot be read.
        """
        asked = (file, passphrase, Path(file).stat().st_mtime_ns)
        with self._lock:
            if asked not in self._tried:
                try:
                    self._tried[asked] = _read(file, passphrase)
                except SSHException as error:
                    self._tried[asked] = error
            found = self._tried[asked]
        if isinstance(found, SSHException):
            raise type(found)(*found.args)
        return found


def _read(file: str, passphrase: str | None) -> PKey:
    failed = SSHException("it is not a key")
    for kind in (Ed25519Key, ECDSAKey, RSAKey):
        try:
            return kind.from_private_key_file(file, passphrase)
        except PasswordRequiredException:
            raise
        except (SSHException, ValueError) as error:
            failed = SSHException(str(error))
    raise failed
