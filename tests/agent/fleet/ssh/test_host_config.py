"""The SSH configuration that an inventory gives for a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.core.errors import UsageError
from agent.fleet.inventory import FleetHost, read_inventory
from agent.fleet.ssh.host_config import HostConfigs
from agent.fleet.ssh.route import route_to

if TYPE_CHECKING:
    from pathlib import Path


def test_a_host_is_reached_as_its_own_configuration_says(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host *\n  User fleet\n  Port 22\n")
    (tmp_path / "lab.conf").write_text("Host *\n  User lab\n  Port 2201\n")
    (tmp_path / "hosts").write_text(
        f"a\nb ansible_ssh_common_args='-F {tmp_path}/lab.conf'\n"
        "c ansible_ssh_common_args='-Fnone' ansible_user=me\n"
    )
    configs = HostConfigs(tmp_path / "config")
    hosts = read_inventory([str(tmp_path / "hosts")]).hosts.values()
    routes = [[str(hop) for hop in route_to(host, configs.of(host))] for host in hosts]
    assert routes == [["fleet@a"], ["lab@b:2201"], ["me@c"]]


def test_a_configuration_that_is_not_there_is_named_with_its_host(tmp_path: Path) -> None:
    configs = HostConfigs(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"host a: the SSH configuration /no/lab\.conf does not exist"):
        configs.of(FleetHost("a", "a", ssh_config="/no/lab.conf"))
