"""--set: its targets, changes and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.errors import UsageError
from agent.profile import Profile, load_sources, set_parameters
from agent.profile.finding import source_from_text

TEXT = """\
Description: d
Parameters: {Name: inner}
Actions:
- Type: SequentialExecution
  Components:
  - Type: A
    Parameters: {Scenario: "{Name}", Container: {Image: old, Gpus: all}, TargetQps: 1}
- Type: B
  Parameters: {Scenario: llama3.1-8b}
Monitors:
- Type: B
"""


def changed(**settings: str) -> Profile:
    profile = load_sources([source_from_text(TEXT)])
    return set_parameters(profile, {name.replace("__", "."): value for name, value in settings.items()})


def inner(profile: Profile) -> dict[str, Any]:
    return dict(profile.actions[0].components[0].parameters)


def test_a_member_of_a_group_by_the_scenario_that_it_comes_to() -> None:
    assert inner(changed(inner__target_qps="5"))["TargetQps"] == 5
    assert inner(changed(INNER__new="x"))["new"] == "x"


def test_into_a_mapping() -> None:
    assert inner(changed(inner__container__image="new:1"))["Container"] == {"Image": "new:1", "Gpus": "all"}
    assert inner(changed(inner__server__binary="/x"))["server"] == {"binary": "/x"}


def test_a_scenario_with_dots() -> None:
    profile = load_sources([source_from_text(TEXT)])
    assert set_parameters(profile, {"llama3.1-8b.x": "1"}).actions[1].parameters["x"] == 1


def test_a_type_means_all_of_that_type() -> None:
    profile = changed(b__x="1")
    assert profile.actions[1].parameters["x"] == profile.monitors[0].parameters["x"] == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("0.5", 0.5), ("", ""), ("a b", "a b"), ("[a, 1]", ["a", 1]), ("{a: 1}", {"a": 1}),
        ("{}", {}), ("{Name}", "{Name}"), ("{calculate(1 + 1)}", "{calculate(1 + 1)}"), ("a=b", "a=b"),
    ],
)  # fmt: skip
def test_values_are_yaml_s_and_expressions_stay(text: str, value: Any) -> None:
    assert inner(changed(inner__x=text))["x"] == value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"outer__x": "1"}, "no element has the scenario or type 'outer'"),
        ({"inner__api_key": "1"}, "has a secret's name"),
        ({"inner__x": "[a"}, "neither a list nor a mapping"),
    ],
)
def test_what_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        changed(**settings)
