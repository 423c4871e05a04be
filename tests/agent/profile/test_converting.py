"""JSON to YAML and back without losses; and the commands that show and convert profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from agent.cli.convert import convert as convert_command
from agent.cli.profiles import profiles as profiles_command
from agent.core.errors import ProfileError, UsageError
from agent.profile import Variables, convert, load, resolve
from agent.profile.json_text import read_json
from agent.profile.yaml_text import read_yaml

PROFILES = Path(__file__).parent / "profiles"
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40) | st.sampled_from(
    [
        "",
        " ",
        "~",
        "null",
        "yes",
        "on",
        "NO",
        "true",
        "12.10",
        "1e5",
        ".5",
        "007",
        "0x1F",
        "0o7",
        "1_000",
        "00:01:00",
        "1.02:03:04",
        "2024-01-01",
        "=",
        "<<",
        "- a",
        "a: b",
        "#c",
        "{A}",
        "$.Parameters.A",
        "a\nb",
        "a\n",
        "\n",
        " a\n b\n",
        "a\r\nb",
        "\ta",
        "a \nb",
        "---",
        "...",
        "\x00",
        "\x85",
        "\u2028",
        "\ufeff",
        "é",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
@example({"a": [[], {}, [[]], {"b": {}}]})
def test_there_and_back_nothing_is_lost(data: dict[str, Any]) -> None:
    text = json.dumps(data, ensure_ascii=False)
    as_yaml = convert(text, "json")
    back = convert(as_yaml, "yaml")
    assert json.dumps(json.loads(back)) == json.dumps(data)
    assert json.dumps(read_yaml(as_yaml).data) == json.dumps(data)


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_json_is_read_as_the_standard_library_reads_it(data: dict[str, Any]) -> None:
    for text in (json.dumps(data), json.dumps(data, indent=1, ensure_ascii=False)):
        assert json.dumps(read_json(text).data) == json.dumps(json.loads(text))


@pytest.mark.parametrize(
    "text", ["yes", "on", "00:01:00", "012", "1_000", "2024-01-01", "1e5", "12.10", "null"]
)
def test_other_readers_of_yaml_see_text_too(text: str) -> None:
    assert yaml.safe_load(convert(json.dumps({"a": text}), "json")) == {"a": text}


def test_a_text_of_several_lines_stays_readable() -> None:
    text = convert(json.dumps({"Command": "first\nsecond\n", "Long": "word " * 60}), "json")
    assert text.startswith("Command: |\n  first\n  second\n")
    assert len(text.splitlines()) == 4


def test_a_profile_means_the_same_after_conversion(tmp_path: Path) -> None:
    source = PROFILES / "PERF-EXAMPLE.json"
    target = tmp_path / "PERF-EXAMPLE.yaml"
    target.write_text(convert(source.read_text(), "json"))
    one, other = load([str(source)]), load([str(target)])
    assert "minimum" not in target.read_text()
    assert one.parameters == other.parameters
    host = Variables.of(LogicalCoreCount=8)
    assert [resolve(element, one, host) for element in one.elements()] == [
        resolve(element, other, host) for element in other.elements()
    ]


@pytest.mark.parametrize(
    ("text", "source", "message"),
    [
        ("{", "json", "profile:1: not valid JSON at column 2"),
        ("a: [", "yaml", "not valid YAML at column"),
        ('{"a": "\\ud800"}', "json", "half of a surrogate pair"),
        ('{"a": 1, "a": 2}', "json", "stands twice"),
    ],
)
def test_what_cannot_be_converted(text: str, source: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        convert(text, source)
    assert message in str(caught.value)
    with pytest.raises(UsageError, match="'toml' is not a format"):
        convert(text, "toml")


def app(command: Any) -> typer.Typer:
    made = typer.Typer()
    made.command()(command)
    return made


def invoke(command: Any, *arguments: str) -> str:
    result = CliRunner().invoke(app(command), arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_writes_a_file_but_not_over_one(tmp_path: Path) -> None:
    source, target = str(PROFILES / "PERF-EXAMPLE.yaml"), tmp_path / "out.json"
    assert "written" in invoke(convert_command, source, str(target))
    assert json.loads(target.read_text())["minimum_execution_interval"] == "00:01:00"
    target.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        invoke(convert_command, source, str(target))
    assert target.read_text() == "mine"
    outcome = json.loads(invoke(convert_command, source, str(target), "--force", "--json"))
    assert outcome["schema_version"] == 1
    assert (outcome["source"], outcome["from"], outcome["to"]) == (source, "yaml", "json")
    assert (outcome["target"], outcome["text"]) == (str(target), None)
    assert target.read_text() != "mine"


def test_the_command_shows_the_text_without_a_target() -> None:
    source = str(PROFILES / "PERF-EXAMPLE.json")
    text = invoke(convert_command, source)
    assert read_yaml(text).data["Parameters"]["Duration"] == "00:10:00"
    assert json.loads(invoke(convert_command, source, "--to", "yaml", "--json"))["text"] == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "json"], "is json already"),
        (["--to", "toml"], "is not a format"),
        (["x.txt"], "'txt' is not a format"),
    ],
)
def test_the_command_refuses(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        invoke(convert_command, str(PROFILES / "PERF-EXAMPLE.json"), *arguments)
    with pytest.raises(UsageError, match="cannot be written"):
        invoke(convert_command, str(PROFILES / "PERF-EXAMPLE.json"), "no/such/folder.yaml")


def test_the_list_of_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "BROKEN.yaml").write_text("Descripton: d\n")
    (tmp_path / "GOOD.yaml").write_text("Description: >\n  Does\n  something.\nActions: [{Type: X}]\n")
    monkeypatch.setattr("agent.profile.finding.resources.files", lambda _: tmp_path)
    rows = json.loads(invoke(profiles_command, "--json"))["profiles"]
    assert [row["name"] for row in rows] == ["BROKEN", "GOOD"]
    assert "did you mean Description" in rows[0]["error"]
    text = invoke(profiles_command)
    assert "GOOD    Does something." in text
    assert "broken:" in text
    (tmp_path / "BROKEN.yaml").unlink()
    (tmp_path / "GOOD.yaml").unlink()
    assert invoke(profiles_command) == "No profile is installed.\n"
