"""Names of elements for people: the scenario, else the type, with the line if names are equal."""

from __future__ import annotations

from agent.profile import Source, Variables, element_names, load_sources, repeat

PROFILE = """
Description: A test.
Parameters: {Name: first}
Dependencies:
- Type: LinuxPackageInstallation
Actions:
- Type: ExecuteCommand
  Parameters: {Scenario: '$.Parameters.Name of all', Command: 'true'}
- Type: ExecuteCommand
  Parameters: {Command: 'true'}
- Type: SequentialExecution
  Parameters: {ForEach: {Count: [1, 2]}}
  Components:
  - Type: ExecuteCommand
    Parameters: {Command: 'true {Count}'}
- Type: ExecuteCommand
  Parameters: {Scenario: '{Nobody}', Command: 'true'}
"""


def test_an_element_has_its_scenario_or_its_type_and_line() -> None:
    profile = repeat(load_sources([Source("TEST", "/etc/of/TEST.yaml", PROFILE, "yaml")]), Variables())
    assert list(element_names(profile, Variables()).values()) == [
        "LinuxPackageInstallation",
        "first of all",
        "ExecuteCommand (TEST.yaml:9)",
        "ExecuteCommand (TEST.yaml:14, Count=1)",
        "ExecuteCommand (TEST.yaml:14, Count=2)",
        "ExecuteCommand (TEST.yaml:16)",
    ]
