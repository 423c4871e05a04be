"""Small profiles made to fill the memory, run for hours or cause a traceback: refused at once."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest

from agent.core.errors import ProfileError
from agent.profile import Variables, check, convert, resolve
from agent.profile.finding import source_from_text
from agent.profile.loading import load_sources


def profile_of(parameters: dict[str, Any], command: Any, **own: Any) -> str:
    element = {"Type": "ExecuteCommand", "Parameters": {"Command": command, **own}}
    return json.dumps({"Description": "d", "Parameters": parameters, "Actions": [element]})


def nested(text: str, depth: int) -> Any:
    value: Any = text
    for _ in range(depth):
        value = [value]
    return value


def chain(first: Any, following: Any, count: int = 25) -> dict[str, Any]:
    """Return parameters that each refer to the previous one; ``following`` makes one from the reference."""
    return {"a0": first, **{f"a{n}": following(f"{{a{n - 1}}}") for n in range(1, count + 1)}}


HOSTILE = {
    "lists that hold lists twice": (
        profile_of(chain(["x"] * 2, lambda a: [a, a]), "echo {a25}"),
        "longer than",
    ),
    "mappings": (profile_of(chain({"x": 1}, lambda a: {"k": a, "l": a}), "{a25}"), "longer than"),
    "a value used twice": (profile_of(chain(["x"] * 2, lambda a: [a, a]), "{a15}", X="{a15}"), "longer than"),
    "gigabytes in one text": (
        profile_of({"a": "x" * 1000, "b": "{a}" * 900, "c": "{b}" * 20_000}, "echo {c}"),
        "longer than",
    ),
    "gigabytes in a calculation": (
        profile_of({"a": "x" * 90_000}, f"{{fn(string.concat({','.join(['{a}'] * 190)}))}}"),
        "longer than",
    ),
    "calculations within calculations": (
        profile_of({}, "echo " + "{fn(" * 14_000 + ")}" * 14_000),
        "nested deeper",
    ),
    "fewer of them": (profile_of({}, "{fn(" * 400 + "1" + ")}" * 400), "nested deeper"),
    "a calculation without end": (profile_of({}, "{calculate(" + "1+" * 40_000), "does not end within"),
    "many calculations without end": (profile_of({}, ("{fn('" + "1" * 20_000) * 4), "does not end within"),
    "lists nested through references": (profile_of(chain(1, lambda a: nested(a, 40)), "{a25}"), "too deeply"),
    "sums in sums": (profile_of(chain(1, lambda a: f"{{fn({a}{'+1' * 190})}}"), "{a25}"), "too large"),
}


def refusal(text: str, label: str) -> str:
    with pytest.raises(ProfileError) as caught:  # noqa: PT012 - any of these may refuse first
        profile = load_sources([source_from_text(text, label=label)])
        for element in profile.elements():
            resolve(element, profile, Variables())
    return str(caught.value)


@pytest.mark.parametrize(("text", "message"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.cpu_limit(10)
def test_it_is_refused_fast_and_in_little_memory(text: str, message: str) -> None:
    tracemalloc.start()
    try:
        assert message in refusal(text, "profile.json")
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("text", "message"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.cpu_limit(10)
def test_checking_it_ends(text: str, message: str) -> None:
    profile = load_sources([source_from_text(text, label="profile.json")])
    try:
        check(profile)
    except ProfileError as error:
        assert error.message  # noqa: PT017 - both outcomes are correct


ACTIONS = "actions: [{type: ExecuteCommand, parameters: {command: id}}]\n"
YAML = {
    "a mapping merged into itself": (f"description: d\nparameters: &a\n  <<: *a\n{ACTIONS}", "nested deeper"),
    "twice": (f"description: d\nparameters: &a\n  <<: [*a, *a]\n  b: 1\n{ACTIONS}", "nested deeper"),
    "by way of another": (
        f"description: d\nparameters: &a {{<<: [{{b: 1, <<: *a}}]}}\n{ACTIONS}",
        "nested deeper",
    ),
    "a long text again and again": (
        f"description: &a {'x' * 90_000}\nparameters: {{p: [{'*a, ' * 8_000}]}}\n{ACTIONS}",
        "characters, those of aliases",
    ),
}


@pytest.mark.parametrize(("text", "message"), YAML.values(), ids=YAML)
@pytest.mark.cpu_limit(10)
def test_yaml_that_grows(text: str, message: str) -> None:
    assert message in refusal(text, "profile.yaml")
    with pytest.raises(ProfileError, match=message):
        convert(text, "yaml")


@pytest.mark.parametrize("opening", ["[", "{", "- "])
@pytest.mark.cpu_limit(5)
def test_yaml_nested_without_end(opening: str) -> None:
    limit = sys.getrecursionlimit()  # which other libraries raise
    sys.setrecursionlimit(50_000)
    try:
        assert "nested deeper than 50" in refusal(opening * 20_000, "profile.yaml")
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.cpu_limit(20)
def test_thousands_of_wrong_names_are_told_in_time() -> None:
    text = profile_of({f"P{n}": 1 for n in range(3000)}, "id", **{f"O{n}": f"{{Q{n}}}" for n in range(3000)})
    with pytest.raises(ProfileError, match="50 problems"):
        check(load_sources([source_from_text(text, label="profile.json")]))


def test_what_large_profiles_need_is_still_taken() -> None:
    script = "x" * 90_000
    text = profile_of({"Script": script, "List": list(range(2000))}, "{Script} {List}", Again="{Script}")
    profile = load_sources([source_from_text(text, label="profile.json")])
    values = resolve(profile.actions[0], profile, Variables())
    assert values["Again"] == script
    assert values["Command"].endswith("1998,1999")


@pytest.mark.parametrize("name", ["FirstTokenLimitMs", "apiKeyEnv", "KeyCount", "maxOutputTokens"])
def test_the_expression_of_an_ordinary_name_is_told(name: str) -> None:
    text = profile_of({}, "id", **{name: "{MaxOutputTokns}"})
    assert "{MaxOutputTokns} refers to nothing" in refusal(text, "profile.json")
