"""Servers are queried through the host's proxies, whose passwords do not appear in process lists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent.facts.reachability import apt_proxies, origins, unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DUMP = """\
Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://ann:planted-word@proxy:3128";
Acquire::https::Proxy "DIRECT";
"""


class RecordingHost:
    """Answers apt-config, and keeps the command of the query."""

    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[str], Mapping[str, str]]] = []

    def output(self, command: Sequence[str], **options: Any) -> str:
        if command[0] == "apt-config":
            return DUMP
        self.asked.append((command, options["env"]))
        return '{"http://archive.ubuntu.com/": "timed out"}'


def test_a_proxy_s_password_is_no_argument() -> None:
    host = RecordingHost()
    servers = ["http://bob:planted-too@archive.ubuntu.com/ubuntu", "https://example.com/x"]
    assert unreachable(servers).read(host) == {"http://archive.ubuntu.com/": "timed out"}  # type: ignore[arg-type]
    ((command, variables),) = host.asked
    assert "planted" not in " ".join(command)
    assert json.loads(variables["VCAGENT_PROXIES"]) == {"http": "http://ann:planted-word@proxy:3128"}


def test_which_proxies_and_servers_there_are() -> None:
    assert apt_proxies(DUMP) == {"http": "http://ann:planted-word@proxy:3128"}
    assert apt_proxies(None) == {}
    assert origins(["https://u:p@a.example/x/y", "http://b.example", "file:/x", "https://a.example/z"]) == (
        "https://a.example/", "http://b.example/",
    )  # fmt: skip
