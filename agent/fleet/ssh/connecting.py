"""Opens connections to hosts, through jump hosts if necessary, and checks the host keys."""

from __future__ import annotations

import logging
import os
import random
import shlex
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from fabric import Config, Connection
from paramiko import (
    AuthenticationException,
    MissingHostKeyPolicy,
    PasswordRequiredException,
    SSHClient,
    SSHConfig,
    SSHException,
)

from agent.fleet.errors import ConnectionLostError, UnknownHostKeyError, UnreachableError
from agent.fleet.scheduling import Wait, run_task
from agent.fleet.ssh.dialling import dialled
from agent.fleet.ssh.key_ring import KeyRing
from agent.fleet.ssh.known_hosts import KeyStanding, KnownHosts
from agent.fleet.ssh.login import Login
from agent.fleet.ssh.session import Session
from agent.fleet.ssh.transport import HostProxy, HostSocket, HostTransport
from agent.fleet.ssh.watchdog import Watchdog

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from paramiko import PKey

    from agent.fleet.scheduling import Task
    from agent.fleet.ssh.credentials import Credentials
    from agent.fleet.ssh.route import Hop

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it also raises what it logs
_IDLE_S = 10.0
"""Seconds between two looks of paramiko's idle thread; with its default of 0.1 s, 64 idle hosts cost several
percent of a core."""


_AGAIN_S = (0.5, 1.0, 2.0, 4.0)
"""The longest pause before the next attempt to connect, in seconds."""


_LESS_AT_ONCE = "if its sshd rejects logins because there are too many (MaxStartups), use a smaller --pool"


class Connector:
    """Opens connections to hosts; connections to jump hosts are shared.

    Args:
        timeout_s: seconds for one connection: network, keys and login.
        accept_new: whether a key is trusted and saved if no key of its server is known.
    """

    def __init__(self, timeout_s: float, *, accept_new: bool = False) -> None:
        self.known_hosts = KnownHosts()
        self.accepted: list[str] = []
        self._timeout_s = timeout_s
        self._accept_new = accept_new
        self._config = Config(ssh_config=SSHConfig())  # created once: that takes longer than to connect
        self._keys = KeyRing()
        self._watchdog = Watchdog()
        self._lock = threading.Lock()
        self._gateways: dict[tuple[Hop, ...], _Gateway] = {}

    def connect(self, route: tuple[Hop, ...], credentials: Credentials) -> Task[Session]:
        """Connect to the last server of a route; retry if sshd drops the connection at once.

        sshd does that if too many logins are open (MaxStartups), as on a bastion with many hosts behind it.

        Raises:
            UnreachableError: if the connection fails; an UnknownHostKeyError if a server's key is not known.
        """
        until = time.monotonic() + self._timeout_s
        for longest_s in _AGAIN_S:
            try:
                return (yield from self._connected(route, credentials, until))
            except ConnectionLostError:
                pause_s = longest_s * random.uniform(0.5, 1)  # noqa: S311 - so that not all retry at once
                if time.monotonic() + pause_s > until:
                    raise
            yield Wait(pause_s)
        return (yield from self._connected(route, credentials, until))

    def _connected(self, route: tuple[Hop, ...], credentials: Credentials, until: float) -> Task[Session]:
        hop, gateway, sock = route[-1], None, None
        if len(route) > 1:
            with self._lock:
                shared = self._gateways.setdefault(route[:-1], _Gateway())
            gateway = shared.opened(self, route[:-1], credentials)
        elif not hop.proxy_command:
            sock = yield from dialled(hop.address, hop.port, max(1.0, until - time.monotonic()))
        connection = self._open(hop, gateway, sock, credentials, until)
        return Session(connection, hop, self._watchdog)

    def close(self) -> None:
        """Close the connections to jump hosts."""
        for gateway in self._gateways.values():
            gateway.close()

    def _open(
        self,
        hop: Hop,
        gateway: Connection | None,
        sock: socket.socket | None,
        credentials: Credentials,
        until: float,
    ) -> Connection:
        until = max(until, time.monotonic() + 1.0)
        left_s = until - time.monotonic()
        arguments: dict[str, Any] = {
            "banner_timeout": left_s,
            "auth_timeout": left_s,
            "channel_timeout": left_s,
            "auth_strategy": Login(hop, credentials, self._keys),
            "transport_factory": partial(
                HostTransport,
                known=self.known_hosts.key_types(hop),
                certified=self.known_hosts.has_authority(hop),
            ),
        }
        if sock:
            arguments["sock"] = HostSocket(sock)
        connection = HostConnection(
            hop.address,
            user=hop.user,
            port=hop.port,
            config=self._config,
            gateway=gateway or hop.proxy_command or False,
            forward_agent=False,
            inline_ssh_env=False,
            connect_timeout=max(1, round(left_s)),
            connect_kwargs=arguments,
        )
        connection.client = SSHClient()
        connection.client.set_missing_host_key_policy(_Policy(self, hop))
        try:
            with _told(hop, self._timeout_s, until):
                connection.open()
        except BaseException:
            with suppress(Exception):
                connection.close()
            if sock:
                sock.close()
            raise
        connection.transport.sock.settimeout(_IDLE_S)
        return connection

    def judge(self, hop: Hop, key: PKey) -> None:
        """Raise an error if a host key is not known and cannot be accepted.

        Raises:
            UnreachableError: if it differs from the known key, or is revoked.
            UnknownHostKeyError: if no key of the server is known.
        """
        standing, problem = self.known_hosts.standing(hop, key)
        if standing is KeyStanding.KNOWN:
            return
        if standing is KeyStanding.UNKNOWN:
            if not self._accept_new:
                if hop.known_hosts_command:
                    problem = problem or (
                        "KnownHostsCommand is not run: write its output to a file, and name that file with "
                        "--known-hosts"
                    )
                raise UnknownHostKeyError(hop.host_key_name, key, problem)
            with self._lock:
                if self.known_hosts.standing(hop, key)[0] is not KeyStanding.KNOWN:
                    self.known_hosts.add(hop, key)
                    self.accepted.append(f"{hop.host_key_name} {key.get_name()} {key.fingerprint}")
            return
        raise UnreachableError(
            f"the host key of {hop.host_key_name} is not accepted: it presents {key.get_name()} "
            f"{key.fingerprint}, and {problem}",
            remedy="the connection may be intercepted. If the host was reinstalled, delete that line: "
            f"ssh-keygen -R '{hop.host_key_name}', then --accept-new-host-keys",
        )


class HostConnection(Connection):  # type: ignore[misc]
    """A connection that does not change the configuration that all connections share.

    Fabric stores attributes that its class lacks in the configuration and merges it again; meanwhile other
    threads find it empty.
    """

    inline_ssh_env = False

    def open_gateway(self) -> Any:
        """Open the gateway like Fabric, but notice the end of a proxy command."""
        return HostProxy(self.gateway) if isinstance(self.gateway, str) else super().open_gateway()


class _Policy(MissingHostKeyPolicy):
    """Checks host keys; Fabric would accept any key."""

    def __init__(self, connector: Connector, hop: Hop) -> None:
        self._connector = connector
        self._hop = hop

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:  # noqa: ARG002
        """Check a key; every key comes here because the client has none to compare with."""
        self._connector.judge(self._hop, key)


class _Gateway:
    """A shared connection to a jump host, opened by the first host that needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._failed: UnreachableError | None = None
        self._failed_at = 0.0

    def opened(self, connector: Connector, route: tuple[Hop, ...], credentials: Credentials) -> Connection:
        """Return the connection; if it just failed, raise the same error for every host behind it."""
        with self._lock:
            if self._session and self._session.is_open:
                return self._session.connection
            if self._failed and time.monotonic() - self._failed_at < _IDLE_S:
                raise UnreachableError(self._failed.message, remedy=self._failed.remedy)
            try:
                self._session = run_task(connector.connect(route, credentials))
            except UnknownHostKeyError:
                raise
            except UnreachableError as error:
                message = f"jump host {route[-1]}: {error.message}"
                self._failed = UnreachableError(message, remedy=error.remedy)
                self._failed_at = time.monotonic()
                raise self._failed from error
            return self._session.connection

    def close(self) -> None:
        """Close the connection if it is open."""
        if self._session:
            self._session.close()


@contextmanager
def _told(hop: Hop, timeout_s: float, until: float) -> Iterator[None]:
    """Convert errors of Fabric and paramiko to vcagent's errors."""
    try:
        yield
    except UnreachableError:
        raise
    except PasswordRequiredException as error:
        raise UnreachableError(
            f"the private key for {hop} is encrypted",
            remedy="add it to the agent (ssh-add), or give --ask-passphrase",
        ) from error
    except AuthenticationException as error:
        raise _not_let_in(hop, str(error) or type(error).__name__) from error
    except TimeoutError as error:
        raise _too_slow(hop, timeout_s) from error
    except (SSHException, OSError, EOFError) as error:
        said = str(error) or type(error).__name__
        if time.monotonic() >= until:  # then paramiko's own error is misleading
            raise _too_slow(hop, timeout_s) from error
        raise ConnectionLostError(
            f"the connection to {hop} failed: {said}", remedy=_LESS_AT_ONCE if "banner" in said else None
        ) from error


def _too_slow(hop: Hop, timeout_s: float) -> ConnectionLostError:
    return ConnectionLostError(
        f"the login at {hop} took longer than {timeout_s:g} s, although its sshd answers",
        remedy="allow more time: --connect-timeout 60. Logins are slow if sshd looks up names (UseDNS), "
        "or a PAM module waits for a server",
    )


def _not_let_in(hop: Hop, said: str) -> UnreachableError:
    missing = [file for file in hop.identity_files if not any(map(os.path.exists, (file, f"{file}.pub")))]
    login = shlex.quote(f"{hop.user}@{hop.address}")
    return UnreachableError(
        f"{hop} rejected the login: {said.rstrip('.')}"
        + (f"; IdentityFile does not exist: {', '.join(missing)}" if missing else ""),
        remedy=f"try `ssh -p {hop.port} {login}`; to log in by password: --ask-password",
    )
