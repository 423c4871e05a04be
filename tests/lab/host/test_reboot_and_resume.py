"""A run that reboots its host resumes by itself: systemd, its unit and the reboot are real."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.host.lab_host import Hardware
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.host.lab_host import LabHost

pytestmark = pytest.mark.lab

UNITS = "/etc/systemd/system"


def element(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"Type": kind, "Parameters": parameters}


ACT = "echo acted >> /root/effects; env > /root/env"
PROFILE = {
    "Description": "Reboots twice.",
    "Dependencies": [
        element("RebootSystem", Reason="first"),
        element("RebootSystem", Reason="second"),
    ],
    "Actions": [element("ExecuteCommand", Scenario="act", Command=ACT)],
}


def wait_until_disarmed(host: LabHost) -> None:
    """Wait for the unit's removal, which happens just after the run's end is written."""
    host.wait_for(f"! find {UNITS} | grep vcagent-resume", LIMIT_S)


def wait_for_run(host: LabHost, exit_code: int, resumed: int, deadline_s: float = 300) -> dict[str, Any]:
    """Return run.json once the run has this exit code and number of resumes, also across reboots."""
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        read = host.run("cat /root/results/latest/run.json", check=False)
        if read.returncode == 0:
            found: dict[str, Any] = json.loads(read.stdout)
            if found["exit_code"] == exit_code and len(found["resumed"]) == resumed:
                return found
        time.sleep(0.5)
    journal = host.run("journalctl -u 'vcagent-resume-*'; cat /root/results/latest/run.json", check=False)
    raise TimeoutError(journal.stdout[-4000:])


@pytest.fixture
def host(make_host: Callable[[Hardware], LabHost]) -> LabHost:
    made = make_host(Hardware(gpus=0, nvswitches=0))
    made.put("/root/P.json", json.dumps(PROFILE))
    return made


def test_a_run_reboots_its_host_and_goes_on_by_itself(host: LabHost) -> None:
    before = host.boot()
    command = (
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvw VCAGENT_PACKAGE_DIR=/root/kept vcagent --profile P.json --yes"
    )
    host.run(command, check=False)  # the reboot may take the shell with it
    ended = wait_for_run(host, 0, resumed=2)
    assert host.boot() != before
    assert host.read("/root/effects") == "acted\n"
    assert [step["status"] for step in ended["steps"]] == ["done"] * 3
    environment = host.read("/root/env")
    assert "VCAGENT_PACKAGE_DIR=/root/kept" in environment
    assert "HF_TOKEN" not in environment
    wait_until_disarmed(host)


def test_armed_it_goes_on_after_a_power_cut(host: LabHost) -> None:
    armed = host.run("vcagent --profile P.json --arm", check=False)
    assert armed.returncode == 8, armed.stdout + armed.stderr
    assert "vcagent-resume" in host.run(f"ls {UNITS}/multi-user.target.wants").stdout
    for resumed, exit_code in ((1, 8), (2, 0)):  # each continues to the point of the next reboot
        host.engine.docker("kill", host.name)
        host.engine.docker("start", host.name)
        wait_for_run(host, exit_code, resumed)
    assert host.read("/root/effects") == "acted\n"
    wait_until_disarmed(host)
