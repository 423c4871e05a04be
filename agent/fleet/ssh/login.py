"""Logging in: with which keys, in which order, and by password at last."""

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
"""So many keys every server lets one try; one that ends the connection afterwards has seen too many."""
_SECOND_FACTORS = {"password", "keyboard-interactive"}


class Login:
    """Logs in to a server, in place of paramiko's own ways.

    Those ask no agent beside IdentitiesOnly, know no CertificateFile, and end at a file that is not there.

    Args:
        hop: the server.
        credentials: passwords.
        keys: the private keys that were read already.
        home: whose keys are tried where none are named; the user's home folder.
    """

    def __init__(self, hop: Hop, credentials: Credentials, keys: KeyRing, home: Path | None = None) -> None:
        self._hop = hop
        self._credentials = credentials
        self._keys = keys
        folder = (home or Path.home()) / ".ssh"
        self._default_files = tuple(str(folder / name) for name in _DEFAULT_FILES)
        self._unusable: AuthenticationException | None = None
        self._failed: SSHException = AuthenticationException("there is neither a key nor a password")

    def authenticate(self, transport: Transport) -> None:
        """Log in.

        Args:
            transport: the connection; the server has shown who it is.

        Raises:
            PasswordRequiredException: if a key is encrypted, and no other let us in.
            AuthenticationException: if nothing let us in.
            SSHException: if the connection broke.
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
        finally:
            self.close()

    def _with_keys(self, transport: Transport) -> set[str] | None:
        """What is wanted beside a key, if one was taken; None if that was enough."""
        for count, key in enumerate(self.candidates(), start=1):
            try:
                wanted = set(transport.auth_publickey(self._hop.user, key))
            except AuthenticationException as error:
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
        """Let the agent go, if it was asked."""
        if agent := self.__dict__.get("_agent"):
            agent.close()

    def candidates(self) -> Iterator[PKey]:
        """The keys to try: those of the named files, then the agent's and the default ones.

        Of a file that is encrypted or has only the public key, the agent is asked for the private one. A key
        with its certificate comes before the key alone. IdentitiesOnly keeps away what is not named; where
        nothing is, the default files are meant (ssh_config(5)).
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
            pass  # passed over, as ssh does; but its public key may be there
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
        """A key, before it each of its certificates; what was tried is left out."""
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
        except (SSHException, OSError):  # one that is not well is none
            return None

    @property
    def _agent_keys(self) -> tuple[AgentKey, ...]:
        return self._agent.get_keys() if self._agent else ()


class _AgentAt(Agent):
    """The agent of a socket, where paramiko knows that of SSH_AUTH_SOCK alone.

    Raises:
        OSError: if nobody answers there.
        SSHException: if it is no agent.
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


def _copy(key: PKey) -> PKey:
    """The key itself is shared with other hosts; one of the agent cannot be copied otherwise."""
    return AgentKey(key.agent, key.blob, key.comment) if isinstance(key, AgentKey) else copy.copy(key)
