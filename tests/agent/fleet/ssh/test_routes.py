"""The way to a host, from its inventory and the SSH configuration."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import UsageError
from agent.core.yaml_data import yaml_data
from agent.fleet.inventory import FleetHost
from agent.fleet.ssh.config import read_ssh_config
from agent.fleet.ssh.openssh_config import openssh_options
from agent.fleet.ssh.route import route_to

CASES = yaml_data((Path(__file__).parent / "cases" / "routes.yaml").read_text())


def prepared(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetHost:
    for name, value in case.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    for name, text in {"config": case.get("config", ""), **case.get("files", {})}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    values = {**case["host"], "identity_files": tuple(case["host"].get("identity_files", ()))}
    return FleetHost(name="h", **values)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_way_is_the_same_as_openssh_reads_its_files(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ssh looks for relative files in the user's folder.
    case = {**case, "config": case.get("config", "").replace("Include ", f"Include {tmp_path}/")}
    host = prepared(case, tmp_path, monkeypatch)
    config = openssh_options(tmp_path / "config")
    assert config
    user = pwd.getpwuid(os.getuid()).pw_name
    if "!User root" in case["config"] and user == "root":
        pytest.skip("the case is about somebody else than root")
    try:
        route = route_to(host, config)
    except UsageError as error:
        if "Invalid ProxyJump" not in str(error):
            raise
        pytest.skip("this OpenSSH takes no tokens in ProxyJump")
    assert [str(hop) for hop in route] == [re.sub("^me@", f"{user}@", hop) for hop in case["route"]]
    for key, value in case.get("last", {}).items():
        found = getattr(route[-1], key)
        if key == "known_hosts":
            assert set(value) <= set(found)
        else:
            assert (list(found) if isinstance(found, tuple) else found) == value


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_way_is(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    host = prepared(case, tmp_path, monkeypatch)
    if "refused" in case:
        with pytest.raises(UsageError, match=rf"{case['refused']}[\s\S]*install OpenSSH"):
            read_ssh_config(tmp_path / "config")
        return
    route = route_to(host, read_ssh_config(tmp_path / "config"))
    assert [str(hop) for hop in route] == case["route"]
    for key, value in case.get("last", {}).items():
        found = getattr(route[-1], key)
        assert (list(found) if isinstance(found, tuple) else found) == value


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host a\n  Port\n")
    with pytest.raises(UsageError, match=r"config: the SSH configuration cannot be read[\s\S]*--ssh-config"):
        read_ssh_config(tmp_path / "config")


@pytest.mark.parametrize(
    "criterion", ["tagged x", "Host gpu-* localnetwork 10.0.0.0/8", "!version 9", "host 'a"]
)
def test_what_cannot_be_matched_is_refused_with_its_line(criterion: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"Port 3\nMatch {criterion}\n  User other\n")
    with pytest.raises(UsageError, match=r"config:2: .* Match "):
        read_ssh_config(tmp_path / "config")
