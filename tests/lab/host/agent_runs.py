"""Profiles on lab hosts: written, planned, run, cut short, and awaited after a reboot."""

from __future__ import annotations

import configparser
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.lab.host.lab_host import LabHost

__all__ = [
    "await_resumed_run",
    "element",
    "latest_run",
    "needs_types",
    "planned_steps",
    "profile_with",
    "run_until",
]

RESUME_S = 300


def needs_types(*names: str) -> pytest.MarkDecorator:
    """Skip a test if a component type is not registered."""
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[3] / "setup.cfg")
    lines = setup["options.entry_points"]["vcagent.components"].split("\n")
    missing = sorted(set(names) - {line.partition("=")[0].strip() for line in lines})
    return pytest.mark.skipif(bool(missing), reason=f"not registered: {', '.join(missing)}")


def element(kind: str, scenario: str, **parameters: Any) -> dict[str, Any]:
    """Return an element of a profile."""
    return {"Type": kind, "Parameters": {"Scenario": scenario, **parameters}}


def profile_with(
    host: LabHost,
    dependencies: Iterable[dict[str, Any]] = (),
    actions: Iterable[dict[str, Any]] = (),
    name: str = "LAB",
) -> str:
    """Write a profile to a host; return its path there."""
    path = f"/root/{name}.json"
    content = {"Description": "A test.", "Dependencies": [*dependencies], "Actions": [*actions]}
    host.put(path, json.dumps(content))
    return path


def planned_steps(host: LabHost, profile: str, *options: str) -> list[str]:
    """Return the steps of the plan as ``Type: step``.

    Raises:
        RuntimeError: if planning fails.
    """
    plan = json.loads(host.vcagent("plan", "--profile", profile, "--json", *options, check=True).stdout)
    return [f"{part['type']}: {step['name']}" for part in plan["components"] for step in part["steps"]]


def run_until(host: LabHost, arguments: Sequence[str], line: str) -> None:
    """Start the agent and cut the host's power as soon as its progress shows a line.

    Raises:
        AssertionError: if the agent ends without it.
    """
    with host.start(["vcagent", *arguments]) as process:
        assert process.stdout
        shown = []
        for text in process.stdout:
            shown.append(text)
            if line in text:
                break
        else:
            raise AssertionError(f"the agent ended without {line!r}:\n{''.join(shown)}")
        host.power_cut()


def latest_run(host: LabHost) -> dict[str, Any]:
    """Return the description of the latest run."""
    description: dict[str, Any] = json.loads(host.read("/root/results/latest/run.json"))
    return description


def await_resumed_run(host: LabHost) -> dict[str, Any]:
    """Wait until the unit that resumes a run has ended and is removed; return the run's description.

    Raises:
        TimeoutError: if that takes too long; with the unit's output.
    """
    active = "systemctl list-units --no-legend --state=active,activating 'vcagent-*'"
    gone = "! ls -d /etc/systemd/system/vcagent-resume-*"
    host.wait_for(f'{gone} && active=$({active}) && [ -z "$active" ]', RESUME_S)
    return latest_run(host)
