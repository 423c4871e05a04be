"""Actions that serve or ask at 127.0.0.1 are refused while the loopback interface is down."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from actions.commands.services import CommandService
from agent.component.component import Action, ComponentParameters, Dependency, Plan, Step
from agent.core.addresses import is_on_loopback
from agent.core.errors import HostError
from agent.facts import Facts, LocalHost
from agent.facts.loopback import LOOPBACK
from agent.planning.planner import _require_loopback

if TYPE_CHECKING:
    from pathlib import Path

STEP = Plan((Step("step", "a reason", lambda _: None),))
UP, DOWN = (Facts(None, {LOOPBACK.name: up}) for up in (True, False))


class Asking(Action):
    """Has the parameters that a test chooses."""

    def __init__(self, **parameters: Any) -> None:
        super().__init__(ComponentParameters())
        self.parameters = SimpleNamespace(**{"container": None, **parameters})  # type: ignore[assignment]

    def plan(self, facts: Facts) -> Plan:
        return STEP


class Installing(Dependency):
    """A dependency."""

    def plan(self, facts: Facts) -> Plan:
        return STEP


BRIDGE, HOST = SimpleNamespace(network="bridge"), SimpleNamespace(network="host")


@pytest.mark.parametrize(
    "component",
    [
        Asking(endpoint="http://127.0.0.1:8000"),
        Asking(endpoint="http://user@localhost:8000/v1"),
        Asking(endpoint="http://[::1]:8000"),
        Asking(server={"model": "m"}, endpoint=""),
        Asking(vllm={"model": "m"}),
        Asking(server={"model": "m"}, container=HOST),
        CommandService(CommandService.Parameters.model_validate({"command": "serve"})),
    ],
)
def test_it_is_refused(component: Action) -> None:
    _require_loopback(component, UP)
    with pytest.raises(HostError, match="the loopback interface is down") as caught:
        _require_loopback(component, DOWN)
    assert caught.value.exit_code == 4
    assert "ip link set lo up" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "component",
    [
        Asking(),
        Asking(endpoint="http://gpu-1:8000", server=None),
        Asking(endpoint="service:Server"),
        Asking(server={"model": "m"}, container=BRIDGE),
        Installing(ComponentParameters()),
    ],
)
def test_everything_else_is_not(component: Action) -> None:
    _require_loopback(component, DOWN)


@pytest.mark.parametrize("url", ["localhost:8000", "127.9.9.9", "http://LOCALHOST./v1"])
def test_addresses_of_this_host(url: str) -> None:
    assert is_on_loopback(url)


@pytest.mark.parametrize("url", ["http://[bad", "", "http://10.0.0.1:80", "http://localhost.example.com"])
def test_other_addresses(url: str) -> None:
    assert not is_on_loopback(url)


def in_a_new_network(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a network namespace of its own, whose loopback interface is down."""
    return subprocess.run(
        ["unshare", "--net", sys.executable, *arguments], check=False, capture_output=True, text=True
    )


needs_namespace = pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run(["unshare", "--net", "true"], check=False).returncode != 0,
    reason="this account cannot make a network namespace",
)


@needs_namespace
def test_the_fact_is_that_of_the_namespace() -> None:
    assert Facts(LocalHost())[LOOPBACK], "this test needs a host with a loopback interface that is up"
    program = "from agent.facts import Facts, LocalHost; from agent.facts.loopback import LOOPBACK; "
    assert in_a_new_network("-c", f"{program}print(Facts(LocalHost())[LOOPBACK])").stdout == "False\n"


def test_a_host_that_does_not_say_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported() -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(psutil, "net_if_stats", unsupported)
    assert Facts(LocalHost())[LOOPBACK]


@needs_namespace
@pytest.mark.parametrize("command", ["plan", "doctor", "run"])
def test_a_profile_with_a_server_is_refused(tmp_path: Path, command: str) -> None:
    profile = tmp_path / "P.json"
    action = {"Type": "CommandService", "Parameters": {"Command": f"touch {tmp_path / 'started'}"}}
    profile.write_text(json.dumps({"Description": "P", "Actions": [action]}))
    where = ("--profile", str(profile), "--results-dir", str(tmp_path / "results"))
    ended = in_a_new_network("-m", "agent", command, *where)
    assert ended.returncode == 4, ended.stderr
    told = " ".join((ended.stdout + ended.stderr).split())
    assert "the loopback interface is down" in told
    assert "ip link set lo up" in told
    assert not (tmp_path / "started").exists()
