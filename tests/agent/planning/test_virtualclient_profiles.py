"""VirtualClient's own profiles: valid unchanged if their types exist; else all missing types are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.cli.show import show
from agent.core.errors import ProfileError
from agent.core.secrets import Secrets
from agent.facts import Facts
from agent.planning.planner import Planner
from agent.planning.variables import run_variables
from agent.profile import Source, find, load_sources

if TYPE_CHECKING:
    from agent.profile import Profile

WRAPPED: dict[str, Any] = {
    "Description": "As EXAMPLE-CLIENT-SERVER-WORKLOAD-3.json.",
    "Actions": [{
        "Type": "ClientServerProxyExecutor",
        "Components": [{"Type": "GeekbenchExecutor", "Parameters": {"Scenario": "ScoreSystem"}}],
    }],
}  # fmt: skip
MONITORS: dict[str, Any] = {
    "Description": "As MONITORS-GPU-NVIDIA.json.",
    "Parameters": {"MonitorIterations": -1},
    "Monitors": [{
        "Type": "NvidiaSmiMonitor",
        "Parameters": {
            "MonitorFrequency": "00:01:00", "MonitorWarmupPeriod": "00:01:00",
            "MonitorIterations": "$.Parameters.MonitorIterations",
        },
    }],
}  # fmt: skip
DISKS: dict[str, Any] = {
    "Description": "As SETUP-FORMAT-DISKS.json.",
    "Dependencies": [{"Type": "FormatDisks", "Parameters": {"DiskFilter": "OSDisk:false", "Force": True}}],
}


def validated(profile: Profile) -> None:
    facts = Facts(None, {"platform": "linux-x64", "package_dir": Path("/p")})
    Planner(profile, run_variables(facts, Path("/r"), "e", "c"), Secrets()).validate()


def loaded(profile: dict[str, Any]) -> Profile:
    return load_sources([Source("P", "P.json", json.dumps(profile), "json")])


@pytest.mark.parametrize("profile", [MONITORS, DISKS], ids=["MonitorIterations", "Force"])
def test_their_parameters_are_known(profile: dict[str, Any]) -> None:
    validated(loaded(profile))


def test_components_of_another_type_are_named_as_not_implemented() -> None:
    with pytest.raises(ProfileError) as error:
        validated(loaded(WRAPPED))
    told = str(error.value)
    assert "type 'ClientServerProxyExecutor' is not implemented" in told
    assert "actions[0].components[0]: type 'GeekbenchExecutor' is not implemented" in told


def test_show_names_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "WRAPPED.json"
    path.write_text(json.dumps(WRAPPED))
    show([str(path)], as_json=True)
    (action,) = json.loads(capsys.readouterr().out)["actions"]
    assert action["not_implemented"] is True
    assert action["components"][0]["type"] == "GeekbenchExecutor"
    assert action["components"][0]["not_implemented"] is True


def test_a_type_that_is_known_and_no_group_takes_no_components() -> None:
    wrong = {**WRAPPED, "Actions": [{"Type": "ExecuteCommand", "Components": [{"Type": "ExecuteCommand"}]}]}
    with pytest.raises(ProfileError, match="ExecuteCommand is not a group and takes no Components"):
        validated(loaded(wrong))


@pytest.mark.parametrize(
    "name",
    [
        "EXECUTE-COMMAND",
        "MONITORS-GPU-NVIDIA",
        "PERF-GPU-MLPERF",
        "SETUP-GPU-NVIDIA-A100",
        "SETUP-GPU-NVIDIA-GB200",
    ],
)
def test_their_profiles_are_valid_unchanged(name: str, shared: Path) -> None:
    validated(load_sources([find(str(shared / "peers" / "virtualclient" / "profiles" / f"{name}.json"))]))
