from __future__ import annotations

from typing import Any

import pytest

from agent.core.errors import UsageError
from agent.fleet.inventory.host_address import host_address


@pytest.mark.parametrize(
    ("text", "name", "variables"),
    [
        ("root@[172.17.0.3]", "172.17.0.3", {"user": "root"}),
        ("root@[gate.example]:2222", "gate.example", {"user": "root", "port": "2222"}),
        ("[fe80::1%eth0]:22", "fe80::1%eth0", {"port": "22"}),
        ("fe80::1", "fe80::1", {}),
        ("root@fe80::1%eth0", "fe80::1%eth0", {"user": "root"}),
        ("2001:db8::[1:4]", "2001:db8::[1:4]", {}),
        ("gpu[01:16]:22", "gpu[01:16]", {"port": "22"}),
        ("ssh://node-1:23/", "node-1", {"port": "23"}),
        ("ssh://me@fe80::1/", "fe80::1", {"user": "me"}),
        ("me@node-1:23", "node-1", {"user": "me", "port": "23"}),
    ],
)
def test_openssh_writes_brackets_around_any_name(text: str, name: str, variables: dict[str, Any]) -> None:
    assert host_address(text) == (name, variables)


@pytest.mark.parametrize(
    "text", ["-oProxyCommand=x", "me@-oProxyCommand=x", "a b", "my user@a", "a:b:c", "a:", "@a", ""]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        host_address(text)
