"""The selection of the elements to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.errors import UsageError
from agent.profile import Element, Profile, Variables, applies_to, load, select

EXAMPLE = str(Path(__file__).parent / "profiles" / "PERF-EXAMPLE.yaml")


def kept(profile: Profile) -> list[str]:
    return [
        str(element.parameters["Scenario"])
        for element in profile.elements()
        if "Scenario" in element.parameters
    ]


@pytest.mark.parametrize(
    ("scenarios", "expected"),
    [
        ("", ["InstallCuda", "Server", "Client", "Report", "Watch"]),
        ("Report", ["InstallCuda", "Report", "Watch"]),
        ("server", ["InstallCuda", "Server", "Watch"]),
        ("Client, Report", ["InstallCuda", "Client", "Report", "Watch"]),
        ("-Client", ["InstallCuda", "Server", "Report", "Watch"]),
        ("-InstallCuda,-Watch", ["Server", "Client", "Report"]),
        ("-Server,-Client", ["InstallCuda", "Report", "Watch"]),
        ("Report,-Report", ["InstallCuda", "Report", "Watch"]),
        ("Report,-Watch", ["InstallCuda", "Report"]),
    ],
)
def test_scenarios(scenarios: str, expected: list[str]) -> None:
    profile = select(load([EXAMPLE]), scenarios)
    assert kept(profile) == expected
    assert all(element.components for element in profile.actions if element.type == "ParallelExecution")


def test_to_name_a_group_is_to_name_its_members() -> None:
    members = (
        Element("action", "X", "a", {"Scenario": "One"}),
        Element("action", "X", "b", {"Scenario": "Two"}),
    )
    group = Element("action", "SequentialExecution", "g", {"Scenario": "Both"}, components=members)
    profile = Profile("p", "d", actions=(group,))
    assert kept(select(profile, "Both,-Two")) == ["Both", "One"]


def test_a_scenario_that_is_an_expression() -> None:
    element = Element("action", "X", "a", {"Scenario": "bt.{Class}.x", "Other": "{GpuCount}"})
    profile = Profile("p", "d", parameters={"Class": "D"}, actions=(element,))
    assert select(profile, "bt.D.x", Variables()).actions == (element,)


@pytest.mark.parametrize(
    ("scenarios", "remedy"), [("Reprot", "Report"), ("-Wach", "Watch"), ("InstallCuda", "known")]
)
def test_an_unknown_scenario(scenarios: str, remedy: str) -> None:
    with pytest.raises(UsageError, match="no scenario") as caught:
        select(load([EXAMPLE]), scenarios)
    assert remedy in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("parameters", "metadata", "reason"),
    [
        ({}, {}, None),
        ({"SupportedPlatforms": "linux-arm64,linux-x64"}, {}, None),
        (
            {"supported_platforms": "win-x64, linux-arm64"},
            {},
            "meant for win-x64, linux-arm64; this host is linux-x64",
        ),
        ({}, {"SupportedPlatforms": "win-x64"}, "meant for win-x64"),
        ({"SupportedPlatforms": "linux-x64"}, {"SupportedPlatforms": "win-x64"}, None),
        ({"SupportedLinuxDistributions": "Debian,Ubuntu"}, {}, None),
        ({"SupportedLinuxDistributions": ["RHEL8"]}, {}, "meant for RHEL8; this host has ubuntu"),
        ({"Role": "Client,Server"}, {}, None),
        ({"Enabled": True}, {}, None),
        ({"enabled": "False"}, {}, "switched off"),
        ({}, {"Enabled": "false"}, None),
        ({"Role": "Server"}, {}, "meant for the role Server; this host is client"),
    ],
)
def test_elements_for_other_hosts(
    parameters: dict[str, object], metadata: dict[str, object], reason: str | None
) -> None:
    element = Element("action", "X", "a", parameters, metadata)
    found = applies_to(element, "linux-x64", "ubuntu", role="client")
    assert found is None if reason is None else (found or "").startswith(reason)


@pytest.mark.parametrize(
    ("host", "listed"),
    [("rhel", "RedHat"), ("azurelinux", "AzLinux"), ("opensuse-leap", "OpenSuse"), ("centos", "CentOS8")],
)
def test_names_of_distributions(host: str, listed: str) -> None:
    element = Element("action", "X", "a", {"SupportedLinuxDistributions": listed})
    assert applies_to(element, "linux-x64", host) is None
    assert applies_to(element, "linux-x64", "ubuntu")
    assert applies_to(element, "linux-x64") is None
