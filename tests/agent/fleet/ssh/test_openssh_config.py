"""OpenSSH reads the files that paramiko cannot read: once per host, with its own error messages."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import UsageError
from agent.fleet.errors import UnknownHostKeyError
from agent.fleet.inventory import FleetHost
from agent.fleet.ssh.config import HostOptions
from agent.fleet.ssh.connecting import Connector
from agent.fleet.ssh.host_config import HostConfigs
from agent.fleet.ssh.openssh_config import OpenSshOptions, openssh_options, read_options
from agent.fleet.ssh.route import route_to

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")


def last(tmp_path: Path, text: str, **host: Any) -> Any:
    (tmp_path / "config").write_text(text)
    options = openssh_options(tmp_path / "config")
    assert options
    return route_to(FleetHost("h", "gpu-01", **host), options)


def test_the_first_of_command_and_jump_host_counts(tmp_path: Path) -> None:
    command, jump = "Host gpu-01\n  ProxyCommand nc %h %p\n", "Host *\n  ProxyJump bastion\n"
    (hop,) = last(tmp_path, command + jump)
    assert hop.proxy_command == "nc gpu-01 22"
    hops = last(tmp_path, jump.replace("*", "gpu-01") + command.replace("gpu-01", "*"))
    assert [hop.address for hop in hops] == ["bastion", "gpu-01"]


def test_a_program_of_match_is_asked_and_canonical_names_are_known(tmp_path: Path) -> None:
    text = "Match exec true\n  User told\nMatch final host gpu-01\n  Port 7\n"
    assert str(last(tmp_path, text)[-1]) == "told@gpu-01:7"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    seen: list[list[str]] = []
    run = subprocess.run

    def counted(command: list[str], **options: Any) -> Any:
        seen.append(command)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    return seen


def test_each_host_is_asked_for_once(tmp_path: Path, calls: list[list[str]]) -> None:
    (tmp_path / "config").write_text("Host *\n  User all\n")
    configs = HostConfigs(tmp_path / "config")
    hosts = [FleetHost(name, name) for name in ("a", "b", "c")] + [FleetHost("again", "a")]
    configs.prepare(hosts)
    for host in hosts * 2:
        assert str(route_to(host, configs.of(host))[-1]) == f"all@{host.address}"
    assert sorted(command[-1] for command in calls) == ["a", "b", "c", "localhost"]


def test_what_openssh_cannot_read_is_an_error_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"config: the SSH[\s\S]*Bad configuration option: nosuch[\s\S]*--ssh-config"
    ):
        last(tmp_path, "NoSuch yes\n")


def test_a_name_is_never_an_option(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    options = openssh_options(tmp_path / "config")
    assert options
    with pytest.raises(UsageError):
        options.of("-oProxyCommand=touch x", None, None)


def test_a_user_that_ssh_refuses_is_named_and_no_file_is_blamed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^ssh refuses -lroot@gpu-01: [\s\S]*in the inventory"):
        last(tmp_path, "", user="-lroot")


def test_where_there_is_no_openssh_paramiko_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert isinstance(HostConfigs(tmp_path / "config").of(FleetHost("a", "a")), HostOptions)


def test_the_systems_file_counts_beside_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Entry:
        pw_dir = str(tmp_path)

    monkeypatch.setattr("pwd.getpwuid", lambda _: Entry)
    own = openssh_options(tmp_path / ".ssh/config")
    other = openssh_options(tmp_path / "other")
    assert isinstance(own, OpenSshOptions)
    assert isinstance(other, OpenSshOptions)
    assert "-F" not in own._command
    assert other._command[-2:] == ["-F", "/dev/null"]


def test_lists_are_whole_and_the_first_value_counts() -> None:
    options = read_options("user a b\nuser c\nidentityfile /k one\nidentityfile /k/two\n")
    assert options == {"user": "a b", "identityfile": ["/k one", "/k/two"], "certificatefile": []}


def test_keys_of_a_program_that_is_not_run_are_told_as_such(tmp_path: Path) -> None:
    from paramiko import ECDSAKey

    (hop,) = last(tmp_path, "KnownHostsCommand /bin/keys %H\n")
    with pytest.raises(UnknownHostKeyError, match="KnownHostsCommand is not run"):
        Connector(1.0).judge(hop, ECDSAKey.generate())
