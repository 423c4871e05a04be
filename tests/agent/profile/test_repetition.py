"""Groups with ForEach: one for each value, with names for expressions and with their own keys."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from agent.core.errors import ProfileError
from agent.profile import Profile, Source, Variables, check, load_sources, repeat, resolve, select

HEAD = "Description: A test.\nParameters: {Variants: 'F16,Q4_0', Users: [1, 2]}\nActions:\n"


def repeated(actions: str, **overrides: str) -> Profile:
    profile = load_sources([Source("TEST", "TEST.yaml", HEAD + actions, "yaml")], overrides=overrides)
    return repeat(profile, Variables())


def commands(profile: Profile) -> list[Any]:
    return [
        resolve(element, profile, Variables())["Command"]
        for element in profile.elements()
        if element.type == "ExecuteCommand"
    ]


ONE = """
- Type: SequentialExecution
  Parameters: {Scenario: 'serve-{Variant}', ForEach: {Variant: $.Parameters.Variants}}
  Components:
  - Type: ExecuteCommand
    Parameters: {Scenario: 'load-{Variant}', Command: 'serve {Variant} of $.Parameters.Variant'}
"""


def test_a_group_is_run_for_each_value_and_its_expressions_see_it() -> None:
    profile = repeated(ONE)
    check(profile, Variables())
    assert commands(profile) == ["serve F16 of F16", "serve Q4_0 of Q4_0"]
    keys = [element.key for element in profile.elements()]
    assert len(set(keys)) == len(keys) == 4
    assert "actions[0]=Q4_0.components[0]" in keys


def test_the_command_line_gives_other_values() -> None:
    assert commands(repeated(ONE, Variants="Q8_0")) == ["serve Q8_0 of Q8_0"]


def test_scenarios_are_chosen_from_the_repeated_groups() -> None:
    profile = select(repeated(ONE), "load-Q4_0", Variables())
    assert commands(profile) == ["serve Q4_0 of Q4_0"]


def test_groups_within_groups_and_numbers_keep_their_type() -> None:
    profile = repeated(
        """
- Type: SequentialExecution
  Parameters: {ForEach: {Variant: $.Parameters.Variants}}
  Components:
  - Type: ParallelExecution
    Parameters: {ForEach: {Count: $.Parameters.Users}}
    Components:
    - Type: ExecuteCommand
      Parameters: {Command: 'x {Variant} {Count}', Timeout: '{Count}'}
"""
    )
    assert commands(profile) == ["x F16 1", "x F16 2", "x Q4_0 1", "x Q4_0 2"]
    timeouts = [
        resolve(element, profile, Variables())["Timeout"]
        for element in profile.elements()
        if element.type == "ExecuteCommand"
    ]
    assert timeouts == [1, 2, 1, 2]
    assert all("ForEach" not in element.parameters for element in profile.elements())


def test_an_element_may_pass_the_value_on_under_the_same_name() -> None:
    profile = repeated(ONE.replace("Command: '", "Variant: '{Variant}!', Command: '"))
    assert commands(profile) == ["serve F16! of F16", "serve Q4_0! of Q4_0"]


@pytest.mark.parametrize("none", ["", "[]", "null"])
def test_without_a_value_the_group_is_left_out(none: str) -> None:
    wish = f"{{Variant: {none or chr(39) * 2}}}"
    assert commands(repeated(ONE.replace("{Variant: $.Parameters.Variants}", wish))) == []


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("F16", "is one name with its values"),
        ("{A: [1], B: [2]}", "is one name with its values"),
        ("{Variant: [F16, F16]}", "not all different"),
        ("{Variant: $.Parameters.Nothing}", "refers to nothing"),
    ],
)
def test_what_is_no_list_of_values_is_told_with_its_line(wish: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message) as failure:
        repeated(ONE.replace("{Variant: $.Parameters.Variants}", wish))
    assert "TEST.yaml:6" in str(failure.value)


def test_what_is_repeated_is_bounded_before_it_is_made() -> None:
    values = ", ".join(map(str, range(16)))
    actions = "- Type: ExecuteCommand\n  Parameters: {Command: 'x'}\n"
    for number in range(6):
        inner = "".join(f"  {line}\n" for line in actions.splitlines())
        actions = (
            f"- Type: SequentialExecution\n  Parameters: {{ForEach: {{V{number}: [{values}]}}}}\n"
            f"  Components:\n{inner}"
        )
    tracemalloc.start()
    try:
        with pytest.raises(ProfileError, match="makes more than 10000 elements") as caught:
            repeated(actions)
        assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
    finally:
        tracemalloc.stop()
    assert "fewer" in str(caught.value)


def test_a_secret_value_names_nothing() -> None:
    profile = load_sources([Source("TEST", "TEST.yaml", HEAD + ONE, "yaml")], overrides={})
    keys = [
        one.key for one in repeat(profile, Variables(), lambda text: text.replace("F16", "***")).elements()
    ]
    assert any("Q4_0" in key for key in keys)
    assert not any("F16" in key for key in keys)
