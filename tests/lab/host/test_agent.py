"""The agent on a separate host: real apt, a real lock, and a power cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.lab.host.agent_runs import element, latest_run, planned_steps, profile_with, run_until

if TYPE_CHECKING:
    from tests.lab.host.lab_host import LabHost

pytestmark = pytest.mark.lab

HOLD_LOCK = """
import fcntl, sys
with open("/var/lib/dpkg/lock-frontend", "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def hello(**parameters: str) -> dict[str, object]:
    return element("LinuxPackageInstallation", "hello", Packages="hello", **parameters)


def test_facts_tell_what_is_plugged_in(lab_host: LabHost) -> None:
    facts = json.loads(lab_host.vcagent("facts", "--json", check=True).stdout)["facts"]
    assert facts["distribution"]["id"] == "ubuntu"
    assert facts["package_manager"] == "apt"
    assert [facts["gpu_count"], facts["nvswitch_count"]] == [8, 4]
    assert {gpu["pci_id"] for gpu in facts["gpus"]} == {"0x2330"}
    assert facts["driver_version"] is None


def test_a_package_from_the_signed_repository_is_installed_once(lab_host: LabHost) -> None:
    profile = profile_with(lab_host, [hello()])
    assert planned_steps(lab_host, profile) == [
        f"LinuxPackageInstallation: {step}" for step in ("update", "install")
    ]
    lab_host.vcagent("--profile", profile, check=True)
    assert lab_host.run("dpkg-query -W hello").stdout == "hello\t1.0-1\n"
    assert planned_steps(lab_host, profile) == []


def test_an_unsigned_repository_is_refused_with_a_remedy(lab_host: LabHost) -> None:
    lab_host.put("/etc/apt/sources.list", "deb http://unsigned.lab /\n")
    result = lab_host.vcagent("--profile", profile_with(lab_host, [hello()]))
    assert result.returncode == 5
    assert "renew the key of that repository" in result.stdout + result.stderr


def test_a_held_lock_is_waited_for(lab_host: LabHost) -> None:
    profile = profile_with(lab_host, [hello()])
    with lab_host.start(["python3", "-c", HOLD_LOCK]) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        short = profile_with(lab_host, [hello(LockTimeout="1")], name="SHORT")
        refused = lab_host.vcagent("--profile", short)
        assert refused.returncode == 5
        assert "python3 (process" in refused.stderr + refused.stdout
        with lab_host.start(["vcagent", "--profile", profile]) as agent:
            assert agent.stdout
            while "hello: update" not in (line := agent.stdout.readline()):
                assert line, "the agent ended"
            assert agent.poll() is None
            holder.stdin.close()
            assert agent.wait(60) == 0
    assert planned_steps(lab_host, profile) == []


def test_after_a_power_cut_a_run_goes_on_where_it_was(lab_host: LabHost) -> None:
    count = "echo once >>/root/effects"
    wait = "echo started >>/root/effects; test -e /root/gate || sleep 600"
    actions = [
        element("ExecuteCommand", "first", Command=count),
        element("ExecuteCommand", "second", Command=wait),
    ]
    run_until(lab_host, ["--profile", profile_with(lab_host, [hello()], actions)], "second")
    lab_host.run("touch /root/gate")
    lab_host.vcagent("resume", check=True)
    assert lab_host.read("/root/effects").split().count("once") == 1
    assert {step["status"] for step in latest_run(lab_host)["steps"]} == {"done"}
