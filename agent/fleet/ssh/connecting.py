"""Connections to hosts, through others where need be, to servers whose keys are known."""

from __future__ import annotations

import logging
import os
import random
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

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it logs, it raises as well
_IDLE_S = 10.0
"""How often paramiko's thread looks up while nothing comes; its own tenth of a second costs 64 idle hosts
several percent of a core."""


_AGAIN_S = (0.5, 1.0, 2.0, 4.0)
"""Seconds until the next attempt to connect, at most."""


_LESS_AT_ONCE = "if its sshd turns away logins because there are too many (MaxStartups): a smaller --pool"


class Connector:
    """Opens connections; those to jump hosts are shared.

    Args:
        timeout_s: seconds for one connection: network, keys and login.
        accept_new: whether keys of servers of which none is known are written down and trusted.
    """

    def __init__(self, timeout_s: float, *, accept_new: bool = False) -> None:
        self.known_hosts = KnownHosts()
        self.accepted: list[str] = []
        self._timeout_s = timeout_s
        self._accept_new = accept_new
        self._config = Config(ssh_config=SSHConfig())  # made once: it takes longer than to connect
        self._keys = KeyRing()
        self._watchdog = Watchdog()
        self._lock = threading.Lock()
        self._gateways: dict[tuple[Hop, ...], _Gateway] = {}

    def connect(self, route: tuple[Hop, ...], credentials: Credentials) -> Task[Session]:
        """Connect to the last server of a route; one that turns us away at once is tried again.

        sshd does that where too many log in at once (MaxStartups), as on a bastion with many hosts behind it.

        Raises:
            UnreachableError: with the reason; an UnknownHostKeyError if a server's key is not known.
        """
        until = time.monotonic() + self._timeout_s
        for longest_s in _AGAIN_S:
            try:
                return (yield from self._connected(route, credentials, until))
            except ConnectionLostError:
                pause_s = longest_s * random.uniform(0.5, 1)  # noqa: S311 - so that not all come at once again
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
        """Refuse a key that is not known.

        Raises:
            UnreachableError: if it is another than the known one, or revoked.
            UnknownHostKeyError: if none is known.
        """
        standing, problem = self.known_hosts.standing(hop, key)
        if standing is KeyStanding.KNOWN:
            return
        if standing is KeyStanding.UNKNOWN:
            if not self._accept_new:
                if hop.known_hosts_command:
                    problem = problem or (
                        "KnownHostsCommand is not run: write what it prints to a file, and name that with "
                        "--known-hosts"
                    )
                raise UnknownHostKeyError(hop.host_key_name, key, problem)
            with self._lock:
                if self.known_hosts.standing(hop, key)[0] is not KeyStanding.KNOWN:
                    self.known_hosts.add(hop, key)
                    self.accepted.append(f"{hop.host_key_name} {key.get_name()} {key.fingerprint}")
            return
        raise UnreachableError(
            f"the host key of {hop.host_key_name} is not the one that is known: it shows {key.get_name()} "
            f"{key.fingerprint}, and {problem}",
            remedy="somebody may be listening in. If the host was installed anew, delete that line: "
            f"ssh-keygen -R '{hop.host_key_name}', then --accept-new-host-keys",
        )


class HostConnection(Connection):  # type: ignore[misc]
    """Leaves the configuration that all connections share as it is.

    Fabric writes attributes that its class does not have into the configuration, and merges that anew: other
    threads find it empty meanwhile.
    """

    inline_ssh_env = False

    def open_gateway(self) -> Any:
        """See Fabric; a command's end is noticed."""
        return HostProxy(self.gateway) if isinstance(self.gateway, str) else super().open_gateway()


class _Policy(MissingHostKeyPolicy):
    """Fabric would take any key."""

    def __init__(self, connector: Connector, hop: Hop) -> None:
        self._connector = connector
        self._hop = hop

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:  # noqa: ARG002
        """See paramiko: every key comes here, because the client is given none to compare with."""
        self._connector.judge(self._hop, key)


class _Gateway:
    """A connection to a jump host, made by whoever needs it first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._failed: UnreachableError | None = None
        self._failed_at = 0.0

    def opened(self, connector: Connector, route: tuple[Hop, ...], credentials: Credentials) -> Connection:
        """The connection; where it just failed, everybody behind it is told so at once."""
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
        """Close it, if it is open."""
        if self._session:
            self._session.close()


@contextmanager
def _told(hop: Hop, timeout_s: float, until: float) -> Iterator[None]:
    """Tell errors of Fabric and paramiko as ours."""
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
        if time.monotonic() >= until:  # paramiko says that there is no session yet
            raise _too_slow(hop, timeout_s) from error
        raise ConnectionLostError(
            f"the connection to {hop} failed: {said}", remedy=_LESS_AT_ONCE if "banner" in said else None
        ) from error


def _too_slow(hop: Hop, timeout_s: float) -> ConnectionLostError:
    return ConnectionLostError(
        f"the login at {hop} took longer than {timeout_s:g} s, although its sshd answers",
        remedy="give it more time: --connect-timeout 60. Logins are slow where sshd looks names up (UseDNS), "
        "or a PAM module waits for a server",
    )


def _not_let_in(hop: Hop, said: str) -> UnreachableError:
    missing = [file for file in hop.identity_files if not any(map(os.path.exists, (file, f"{file}.pub")))]
    return UnreachableError(
        f"{hop} does not let us in: {said.rstrip('.')}"
        + (f"; there is no IdentityFile {', '.join(missing)}" if missing else ""),
        remedy=f"try `ssh -p {hop.port} {hop.user}@{hop.address}`; to log in by password: --ask-password",
    )
