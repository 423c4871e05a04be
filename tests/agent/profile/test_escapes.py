"""A backslash before an expression makes it text."""

from __future__ import annotations

import pytest

from agent.core.errors import ProfileError
from agent.profile import Variables, check, load_sources, resolve
from agent.profile.finding import source_from_text


def resolved(command: str) -> str:
    text = (
        "description: x\nparameters: {Name: value, Written: '\\{Name}'}\n"
        f"actions: [{{type: ExecuteCommand, parameters: {{command: '{command}'}}}}]\n"
    )
    profile = load_sources([source_from_text(text, label="p.yaml")])
    check(profile, Variables())
    return str(resolve(profile.actions[0], profile, Variables())["command"])


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (r"curl -w %\{http_code} {Name}", "curl -w %{http_code} value"),
        (r"\{Name}", "{Name}"),
        (
            r"\{PackageDir:x} \{calculate(1 + 1)} \{calculat(1)}",
            "{PackageDir:x} {calculate(1 + 1)} {calculat(1)}",
        ),
        (r"echo \$.Parameters.Name $.Parameters.Name", "echo $.Parameters.Name value"),
        (r"$.Parameters.Written stays", "{Name} stays"),
        (r"find -exec rm \{\} \; awk \{print $1}", r"find -exec rm \{\} \; awk \{print $1}"),
    ],
)
def test_a_backslash_makes_an_expression_text(command: str, text: str) -> None:
    assert resolved(command) == text


def test_the_error_for_an_unknown_name_names_the_escape() -> None:
    with pytest.raises(ProfileError) as refusal:
        resolved("curl -w %{http_code}")
    assert r"write a backslash: \{http_code}" in str(refusal.value)
