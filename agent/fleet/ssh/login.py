"""Logs in to a server: selects and orders the keys, and uses the password last."""

from __future__ import annotations

import copy
import socket
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from paramiko import (
    Agent,
    AgentKey,
    AuthenticationException,
    PasswordRequiredException,
    SSHException,
)
from paramiko.agent import AgentSSH

from agent.fleet.ssh.public_part import certified_key, public_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paramiko import PKey, Transport

    from agent.fleet.ssh.credentials import Credentials
    from agent.fleet.ssh.key_ring import KeyRing
    from agent.fleet.ssh.route import Hop

_DEFAULT_FILES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
"""ssh_config(5), IdentityFile."""
_FEW = 2
"""Every server accepts this many keys; if it then closes the connection, it has seen too many."""
_SECOND_FACTORS = {"password", "keyboard-interactive"}


class Login:
    """Logs in to a server, instead of paramiko's own methods.

    With IdentitiesOnly those use no agent; they ignore CertificateFile, and fail if a file is missing.

    Args:
        hop: the server.
        credentials: passwords.
        keys: the private keys that were already read.
        home: the home folder with the default keys; by default the user's.
    """

    def __init__(self, hop: Hop, credentials: Credentials, keys: KeyRing, home: Path | None = None) -> None:
        self._hop = hop
        self._credentials = credentials
        self._keys = keys
        folder = (home or Path.home()) / ".ssh"
        self._default_files = tuple(str(folder / name) for name in _DEFAULT_FILES)
        self._unusable: AuthenticationException | None = None
        self._failed: SSHException = AuthenticationException("no key and no password available")

    def authenticate(self, transport: Transport) -> None:
        """Log in.

        Args:
            transport: the connection, after the server's key was verified.

        Raises:
            PasswordRequiredException: if a key is encrypted, and no other key was accepted.
            AuthenticationException: if no key and no password was accepted.
            SSHException: if the connection broke.
            TimeoutError: if the server did not answer in time; no other key is tried then.
        """
        user, password = self._hop.user, self._credentials.password
        try:
            wanted = self._with_keys(transport)
            if wanted is None:
                return
            if password is not None:
                transport.auth_password(user, password)
            elif wanted:
                transport.auth_interactive_dumb(user)
            else:
                raise self._unusable or self._failed
        except AuthenticationException as error:
            if _is_timeout(error):
                raise TimeoutError(str(error)) from error
            raise
        finally:
            self.close()

    def _with_keys(self, transport: Transport) -> set[str] | None:
        """Try the keys; return the other methods that are still required, or None if a key was enough."""
        for count, key in enumerate(self.candidates(), start=1):
            try:
                wanted = set(transport.auth_publickey(self._hop.user, key))
            except AuthenticationException as error:
                if _is_timeout(error):
                    raise
                self._failed = error
            except SSHException as error:
                if transport.is_active():
                    self._failed = error
                elif count > _FEW:
                    message = f"it ended the connection after {count - 1} keys: name one, with IdentitiesOnly"
                    raise AuthenticationException(message) from error
                else:
                    raise
            else:
                if not wanted:
                    return None
                if wanted & _SECOND_FACTORS:
                    return wanted
        return set()

    def close(self) -> None:
        """Close the connection to the agent, if one was opened."""
        if agent := self.__dict__.get("_agent"):
            agent.close()

    def candidates(self) -> Iterator[PKey]:
        """Yield the keys to try: first those of the named files, then the agent's and the default ones.

        If a file is encrypted or has only the public key, the agent is asked for the private key. A key with
        its certificate comes before the key alone. With IdentitiesOnly only the named files are tried; if
        none is named, the default files (ssh_config(5)).
        """
        tried: set[bytes] = set()
        named = self._hop.identity_files or (self._default_files if self._hop.identities_only else ())
        for file in named:
            yield from self._of_file(file, tried)
        if self._hop.identities_only:
            return
        for key in self._agent_keys:
            yield from self._with_certificates(key, "", tried)
        for file in self._default_files:
            yield from self._of_file(file, tried)

    def _of_file(self, file: str, tried: set[bytes]) -> Iterator[PKey]:
        unusable: AuthenticationException | None = None
        try:
            key = self._keys.key(file, self._credentials.passphrase or self._credentials.password)
        except PasswordRequiredException as error:
            unusable = error
        except FileNotFoundError:
            pass  # skipped, as by ssh; its public key may exist
        except (SSHException, OSError) as error:
            unusable = AuthenticationException(f"{file} cannot be used: {error}")
        else:
            yield from self._with_certificates(key, file, tried)
            return
        public = public_part(file)
        found = [key for key in self._agent_keys if public in (key.blob, key.asbytes())]
        for key in found:
            yield from self._with_certificates(key, file, tried)
        self._unusable = self._unusable or (None if found else unusable)

    def _with_certificates(self, key: PKey, file: str, tried: set[bytes]) -> Iterator[PKey]:
        """Yield a key's certificates, then the key; skip what was already tried."""
        public = key.asbytes()
        offers = {key.blob if isinstance(key, AgentKey) else public: key}
        for certificate in (*([f"{file}-cert.pub"] if file else ()), *self._hop.certificate_files):
            if certified_key(certificate) == public:
                certified = _copy(key)
                certified.load_certificate(certificate)
                offers = {Path(certificate).read_bytes(): certified, **offers}
        for blob, offer in offers.items():
            if blob not in tried:
                tried.add(blob)
                yield offer

    @cached_property
    def _agent(self) -> Agent | None:
        place = self._hop.identity_agent
        if place.lower() == "none":
            return None
        try:
            return _AgentAt(place) if place else Agent()
        except (SSHException, OSError):  # a broken agent counts as none
            return None

    @property
    def _agent_keys(self) -> tuple[AgentKey, ...]:
        return self._agent.get_keys() if self._agent else ()


class _AgentAt(Agent):
    """An agent at a given socket; paramiko knows only the one of SSH_AUTH_SOCK.

    Raises:
        OSError: if nobody answers at the socket.
        SSHException: if an answer is not that of an agent.
    """

    def __init__(self, place: str) -> None:
        AgentSSH.__init__(self)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(place)
        except OSError:
            connection.close()
            raise
        self._connect(connection)  # type: ignore[attr-defined]  # left out of its types


def _is_timeout(error: AuthenticationException) -> bool:
    """Return True if the time for the login was over; paramiko has no class of its own for that."""
    return str(error).startswith("Authentication timeout")


def _copy(key: PKey) -> PKey:
    """Copy a key, which is shared with other hosts; a key of the agent needs its own way to be copied."""
    return AgentKey(key.agent, key.blob, key.comment) if isinstance(key, AgentKey) else copy.copy(key)
