"""A server that refuses logins at once is tried again, within the time limit of one connection."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from agent.fleet.errors import ConnectionLostError
from agent.fleet.inventory import FleetHost
from agent.fleet.scheduling import run_task
from agent.fleet.ssh.config import read_ssh_config
from agent.fleet.ssh.connecting import Connector
from agent.fleet.ssh.credentials import Credentials
from agent.fleet.ssh.route import route_to

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("timeout_s", "attempts"), [(60.0, 3), (0.001, 1)])
def test_a_server_that_is_busy_is_tried_again_and_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float, attempts: int
) -> None:
    monkeypatch.setattr("agent.fleet.ssh.connecting._AGAIN_S", (0.05, 0.05))
    turned_away = 0

    def turn_away(server: socket.socket) -> None:
        nonlocal turned_away
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            turned_away += 1
            with client:
                client.sendall(b"Exceeded MaxStartups\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=turn_away, args=(server,))
        thread.start()
        host = FleetHost("a", "127.0.0.1", server.getsockname()[1], "root")
        route = route_to(host, read_ssh_config(tmp_path / "none"), tmp_path / "known")
        connector = Connector(timeout_s)
        with pytest.raises(ConnectionLostError, match="failed") as caught:
            run_task(connector.connect(route, Credentials()))
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert turned_away == attempts
    assert "MaxStartups" in str(caught.value.remedy)
