"""The choice between several passwords."""

from __future__ import annotations

import pytest

from agent.fleet.inventory import FleetHost
from agent.fleet.ssh.credentials import Credentials


@pytest.mark.parametrize(
    ("inventory", "given", "used"),
    [
        ({"password": "p", "sudo_password": "s"}, {"password": "P", "sudo_password": "S"}, ("p", "s")),
        ({"password": "p"}, {"password": "P", "sudo_password": "S"}, ("p", "S")),
        ({"password": "p"}, {"password": "P"}, ("p", "p")),
        ({}, {"password": "P"}, ("P", "P")),
        ({"sudo_password": "s"}, {"password": "P"}, ("P", "s")),
        ({}, {}, (None, None)),
    ],
)
def test_a_password_is(
    inventory: dict[str, str], given: dict[str, str], used: tuple[str | None, str | None]
) -> None:
    host = FleetHost("h", "h", **inventory)  # type: ignore[arg-type]
    credentials = Credentials(**given).of(host)
    assert (credentials.password, credentials.sudo_password) == used
