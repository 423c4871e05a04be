"""``--json``: every command has it; it prints one document of a published schema, an error too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from agent.cli.main import app
from agent.core.errors import ExitCode
from agent.store.command_documents import (
    CleanDocument,
    ErrorDocument,
    FactsDocument,
    PlanDocument,
    ProfilesDocument,
    RunsDocument,
    ShowDocument,
    command_documents,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GROUP = """
description: loops
parameters:
  # The text.
  Text: hello
parameterson:
- {condition: "{calculate(1 == 1)}", Text: changed}
actions:
- type: SequentialExecution
  parameters: {LoopCount: 2, Scenario: both}
  components:
  - {type: ExecuteCommand, parameters: {command: "echo $.Parameters.Text", scenario: one}}
"""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def all_commands() -> dict[str, Any]:
    from actions.submission.commands import app as submission

    everything = typer.Typer()
    everything.add_typer(app, name="vcagent")
    everything.add_typer(submission, name="submission")
    return dict(commands(typer.main.get_command(everything)))


@pytest.mark.parametrize(("name", "command"), all_commands().items())
def test_every_command_prints_json(name: str, command: Any) -> None:
    assert "--json" in [option for parameter in command.params for option in parameter.opts], name


@pytest.mark.parametrize("document", command_documents(), ids=lambda document: document.NAME)
def test_every_document_has_a_version(document: Any) -> None:
    assert document.model_json_schema()["properties"]["schema_version"]["const"] == 1


@pytest.mark.parametrize(
    ("arguments", "document"),
    [
        (("plan", "LOOP.yaml"), PlanDocument),
        (("show", "LOOP.yaml"), ShowDocument),
        (("facts", "platform"), FactsDocument),
        (("profiles",), ProfilesDocument),
        (("runs",), RunsDocument),
        (("clean", "--dependencies"), CleanDocument),
        (("--clean=logs",), CleanDocument),
    ],
)
def test_a_command_prints_one_document_of_its_schema(
    arguments: tuple[str, ...],
    document: Any,
    vcagent: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "LOOP.yaml").write_text(GROUP)
    code, out, err = vcagent(*arguments, "--json")
    assert code == 0, err
    read = document.model_validate(json.loads(out))
    assert read.schema_version == 1
    assert not read.model_extra
    if document is PlanDocument:
        assert (read.step_count, read.refused) == (2, False)
        (component,) = read.components
        assert (component.repeats, component.groups) == (2, ["both: 2 times, one after the other"])
        assert component.steps[0].command == "echo changed"
    if document is ShowDocument:
        (parameter,) = read.parameter_details
        assert (parameter.value, parameter.default, parameter.description) == (
            "changed",
            "hello",
            "The text.",
        )


@pytest.mark.parametrize(
    ("arguments", "code", "error", "remedy"),
    [
        (("resume",), ExitCode.USAGE, "there are no runs", "--results-dir"),
        (("plan",), ExitCode.USAGE, "no profile is named", "vcagent profiles"),
        (("plan", "NO-SUCH"), ExitCode.PROFILE_INVALID, "NO-SUCH", ""),
        (("facts", "--nonsense"), ExitCode.USAGE, "--nonsense", "vcagent facts -h"),
        (("frobnicate",), ExitCode.USAGE, "frobnicate", "vcagent -h lists the commands"),
        (("compare",), ExitCode.USAGE, "Missing argument", "such as: vcagent compare RUN_A RUN_B"),
        (("bundle",), ExitCode.USAGE, "--platform", "such as: vcagent bundle --profile"),
        (("@missing",), ExitCode.USAGE, "response file", "options and values"),
    ],
)
def test_an_error_is_a_document(  # noqa: PLR0917 - a table's columns
    arguments: tuple[str, ...],
    code: ExitCode,
    error: str,
    remedy: str,
    vcagent: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, out, err = vcagent(*arguments, "--json")
    found = ErrorDocument.model_validate(json.loads(out))
    assert (ended, found.exit_code) == (code, code)
    assert error in found.error
    assert remedy in (found.remedy or "")
    assert "Traceback" not in err


def test_a_defect_is_a_document_too(vcagent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("agent.profile.finding.installed", fails)
    code, out, _ = vcagent("profiles", "--json")
    assert code == ExitCode.UNEXPECTED
    assert "by design" in json.loads(out)["error"]
