"""Every kind of expression, as data; and cases that data cannot express."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import ProfileError
from agent.profile import Element, Profile, Variables, VariableUnavailableError, check, resolve
from agent.profile.yaml_text import read_yaml

CASES = read_yaml((Path(__file__).parent / "cases" / "expressions.yaml").read_text(encoding="utf-8")).data
PARAMETERS = CASES.pop("parameters")
VARIABLES = Variables(
    {
        "Platform": lambda: "linux-x64",
        "OS": lambda: "linux",
        "Architecture": lambda: "x64",
        "LogicalCoreCount": lambda: 7,
        "SystemMemoryGigabytes": lambda: 16,
        "LogDir": lambda: "/logs",
        "ScriptDir": lambda: "/scripts",
        "ClientId": lambda: "host1",
        "GpuCount": lambda: None,
    },
    {
        "PackageDir": lambda name: f"/packages/{name}" if name == "llama" else None,
        "PackageDir/Platform": lambda name: f"/packages/{name}/linux-x64",
        "ScriptDir": lambda name: f"/scripts/{name}",
    },
)


def value_of(text: Any, variables: Variables = VARIABLES, **own: Any) -> Any:
    profile = Profile("p", "d", parameters=PARAMETERS)
    element = Element("action", "ExecuteCommand", "actions[0]", {"The Value": text, **own})
    return resolve(element, profile, variables)["The Value"]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{group}: {case['text']}") for group, cases in CASES.items() for case in cases],
)
def test_expression(case: dict[str, Any]) -> None:
    if "error" not in case:
        value = value_of(case["text"])
        assert (type(value), value) == (type(case["value"]), case["value"])
        return
    with pytest.raises(ProfileError) as caught:
        value_of(case["text"])
    assert case["error"] in caught.value.message
    assert case.get("remedy", "") in (caught.value.remedy or "")
    assert "actions[0].parameters.The Value" in str(caught.value.where)


def test_an_element_s_own_parameter_comes_first_also_within_the_profile_s() -> None:
    assert value_of("{Text}", Text="own") == "own"
    assert value_of("$.Parameters.Text", Text="own") == "bert"
    assert value_of("{UsesThreads}", Threads=5) == "--threads=5"


def test_a_parameter_that_names_itself_passes_the_profile_s_on() -> None:
    profile = Profile("p", "d", parameters={"Port": 80, "GpuCount": "{GpuCount}"})
    element = Element("action", "X", "a", {"Port": "{Port}", "GpuCount": "$.Parameters.GpuCount"})
    assert resolve(element, profile, Variables.of(GpuCount=2)) == {"Port": 80, "GpuCount": 2}


def test_own_parameters_in_a_circle_name_the_circle() -> None:
    element = Element("action", "X", "a", {"A": "{B}", "B": "x{A}"})
    with pytest.raises(ProfileError, match=r"\{A\} → \{B\} → \{A\}"):
        resolve(element, Profile("p", "d"), Variables())


def test_what_the_host_lacks_now_is_an_error_of_its_own() -> None:
    with pytest.raises(VariableUnavailableError, match="GpuName"):
        value_of("{GpuName}")
    assert value_of("{GpuName}", Variables.of(GpuName="NVIDIA H100")) == "NVIDIA H100"


def test_a_value_with_braces_is_not_resolved_again() -> None:
    assert value_of("{GpuName} {Number}", Variables.of(GpuName="{Text}")) == "{Text} 8"


def test_variables_are_read_only_when_needed() -> None:
    def fail() -> int:
        raise AssertionError

    assert value_of("{Text}", Variables({"GpuCount": fail})) == "bert"


@pytest.mark.parametrize("name", ["HF_TOKEN", "Password", "ApiKey", "client_secret"])
def test_the_text_of_a_secret_is_not_told(name: str) -> None:
    element = Element("action", "X", "a", {name: "hunter2{nothing_such}"})
    other = Element("action", "X", "a", {"Command": f"--it {{{name}}}"})
    profile = Profile("p", "d", parameters={name: "hunter2{nothing_such}"}, actions=(element, other))
    for attempt in (
        lambda: resolve(element, profile, Variables()),
        lambda: resolve(other, profile, Variables()),
        lambda: check(profile),
    ):
        with pytest.raises(ProfileError) as caught:
            attempt()
        assert "***" in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert "nothing_such" not in str(caught.value)


def test_texts_that_double_are_bounded() -> None:
    parameters = {"P0": "x" * 64, **{f"P{n}": f"{{P{n - 1}}}{{P{n - 1}}}" for n in range(1, 25)}}
    with pytest.raises(ProfileError, match="longer than"):
        resolve(
            Element("action", "X", "a", {"Text": "{P24}"}),
            Profile("p", "d", parameters=parameters),
            Variables(),
        )


def test_numbers_that_square_are_bounded() -> None:
    parameters = {"P0": 3, **{f"P{n}": f"{{calculate({{P{n - 1}}} * {{P{n - 1}}})}}" for n in range(1, 20)}}
    with pytest.raises(ProfileError, match="too large"):
        resolve(
            Element("action", "X", "a", {"N": "{P19}"}), Profile("p", "d", parameters=parameters), Variables()
        )


def test_long_chains_end() -> None:
    parameters = {"P0": 1, **{f"P{n}": f"{{P{n - 1}}}" for n in range(1, 2000)}}
    with pytest.raises(ProfileError, match="in a row"):
        resolve(
            Element("action", "X", "a", {"N": "{P1999}"}),
            Profile("p", "d", parameters=parameters),
            Variables(),
        )


@pytest.mark.parametrize(
    "text",
    [
        "{" * 90_000,
        "{{" * 40_000 + "}}" * 40_000,
        "{a(" * 30_000,
        "{calculate(" * 9_000,
        "{calculate(" + "(" * 5_000 + ")}",
        "{calculate(" + "1+" * 150 + "1)}",
        "{calculate(" + "!" * 5_000 + "true)}",
        "{PackageDir:" + "{x" * 9_000,
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.cpu_limit(5)
def test_texts_made_to_hurt_are_read_or_refused_fast(text: str) -> None:
    try:
        value_of(text)
    except ProfileError as error:
        assert error.message  # noqa: PT017 - both outcomes are correct
