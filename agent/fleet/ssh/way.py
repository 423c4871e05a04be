"""The SSH transport: everything that its hosts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from agent.fleet.host_run import Way
from agent.fleet.ssh.connecting import Connector
from agent.fleet.ssh.host_config import HostConfigs
from agent.fleet.ssh.host_run import SshHostRun
from agent.fleet.ssh.route import route_to

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.fleet.host_run import HostPart, Surroundings
    from agent.fleet.inventory import FleetHost
    from agent.fleet.ssh.credentials import Credentials


class OverSsh(Way):
    """Reaches hosts over SSH.

    Args:
        around: the settings that all hosts share.
        credentials: passwords.

    Raises:
        UsageError: if the SSH configuration cannot be used.
    """

    def __init__(self, around: Surroundings, credentials: Credentials) -> None:
        options = around.options
        self._around = around
        self._credentials = credentials
        self._configs = HostConfigs(options.ssh_config.expanduser())
        self._connector = Connector(options.connect_timeout_s, accept_new=options.accept_new_host_keys)

    @override
    def expect(self, hosts: Iterable[FleetHost]) -> None:
        self._configs.prepare(hosts)

    @override
    def host_run(self, part: HostPart) -> SshHostRun:
        return SshHostRun(
            part,
            self._around,
            connector=self._connector,
            route=route_to(part.host, self._configs.of(part.host), self._around.options.known_hosts),
            credentials=self._credentials.of(part.host),
        )

    def notes(self) -> list[str]:
        """Return messages about the host keys that were accepted."""
        return [f"host key accepted: {key}" for key in self._connector.accepted]

    def close(self, *, complete: bool) -> None:  # noqa: ARG002
        """Close the connections to jump hosts."""
        self._connector.close()
