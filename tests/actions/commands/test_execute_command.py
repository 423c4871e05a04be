from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from actions.commands.execute_command import ExecuteCommand, ExecuteCommandParameters, environment_variables
from agent.component.component import Action, Dependency, Step, StepContext
from agent.core.errors import ActionFailedError, InterruptedRunError, ProfileError
from agent.facts import Facts


def the_step(**parameters: Any) -> Step:
    component = ExecuteCommand(ExecuteCommandParameters.model_validate(parameters))
    (step,) = component.plan(Facts(None, {})).steps
    return step


def test_it_is_both_an_action_and_a_dependency() -> None:
    assert issubclass(ExecuteCommand, Action)
    assert issubclass(ExecuteCommand, Dependency)


@pytest.mark.parametrize("command", [None, "", "  "])
def test_without_a_command_the_profile_is_wrong(command: str | None) -> None:
    with pytest.raises(ProfileError, match="no command") as error:
        the_step(Command=command)
    assert "such as command=date" in str(error.value)


def test_the_plan_shows_the_command() -> None:
    assert the_step(Command=" uname -a ").command == "uname -a"


def test_chains_stop_at_the_first_failure(context: StepContext) -> None:
    folder = context.run_dir
    outcome = the_step(Command="echo 1 > a && echo 2 > b", WorkingDirectory=folder).run(context)
    assert outcome
    assert outcome.message.startswith("exit code 0")
    with pytest.raises(ActionFailedError, match="exit code 1"):
        the_step(Command="echo no space left && false && echo > c", WorkingDirectory=folder).run(context)
    assert {path.name for path in folder.iterdir() if path.is_file()} == {"a", "b"}


def test_a_failure_shows_the_end_of_the_output(context: StepContext) -> None:
    with pytest.raises(ActionFailedError) as error:
        the_step(Command="echo no space left; exit 9").run(context)
    assert "no space left" in error.value.details
    assert "exit code 9" in str(error.value)


def test_a_finished_command_is_not_run_again_but_a_failed_one_is(context: StepContext) -> None:
    folder = context.run_dir
    step = the_step(Command="echo x >> count", WorkingDirectory=folder)
    step.run(context)
    again = step.run(context)
    assert again
    assert "had finished before" in again.message
    assert (folder / "count").read_text() == "x\n"

    failing = the_step(Command="echo x >> tries; test -e gate", WorkingDirectory=folder)
    with pytest.raises(ActionFailedError):
        failing.run(context)
    (folder / "gate").touch()
    failing.run(context)
    assert (folder / "tries").read_text() == "x\nx\n"


def test_retries(context: StepContext) -> None:
    command = "echo x >> tries; test $(wc -l < tries) = 2"
    the_step(Command=command, MaxRetries=1, WorkingDirectory=context.run_dir).run(context)
    assert (context.run_dir / "tries").read_text() == "x\nx\n"
    assert "attempt 2 of 2" in context.progress.messages  # type: ignore[attr-defined]


def test_a_timeout(context: StepContext) -> None:
    with pytest.raises(ActionFailedError, match="did not end within"):
        the_step(Command="sleep 60", Timeout="0.2s").run(context)


def test_told_to_stop(context: StepContext) -> None:
    context.stop.set()
    with pytest.raises(InterruptedRunError):
        the_step(Command="sleep 60").run(context)


def test_the_log_is_copied_to_where_virtualclient_has_it(context: StepContext) -> None:
    step = the_step(Command="echo seen; false", LogFileName="mine.log", LogFolderName="tool")
    with pytest.raises(ActionFailedError):
        step.run(context)
    assert "seen" in (context.run_dir / "logs" / "tool" / "mine.log").read_text()
    for name in ("../x", "/etc/x"):
        with pytest.raises(ValidationError, match="below"):
            the_step(Command="x", LogFileName=name)


def test_variables_and_working_directory(context: StepContext) -> None:
    (context.run_dir / "tool").write_text("#!/bin/sh\necho $A $B\n")
    (context.run_dir / "tool").chmod(0o755)
    the_step(Command="tool", EnvironmentVariables="A=1,,,B=two", WorkingDirectory=context.run_dir).run(
        context
    )
    assert "\n1 two\n" in context.log.read_text()
    assert environment_variables("P=+/x; Q=+/y", {"P": "/a"}) == {"P": "/a:/x", "Q": "/y"}
    assert environment_variables("P=a;b=c,,,", {}) == {"P": "a;b=c"}


def test_a_variable_that_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(ValidationError, match="variable 2 is not written NAME=value") as caught:
        the_step(Command="x", EnvironmentVariables="DB_PASSWORD=head;planted")
    assert not any("planted" in problem["msg"] for problem in caught.value.errors())


@pytest.mark.parametrize(
    "parameters",
    [
        {"LogFileName": "vcagent.jsonl"},
        {"LogFileName": "./vcagent.jsonl", "LogFolderName": "."},
        {"LogFileName": "actions-0-execute.log"},
        {"LogFileName": "2-actions-1-components-0-execute.log"},
        {"LogFileName": "dependencies-0-execute.exit"},
        {"LogFileName": "monitors-1.log"},
        {"LogFileName": "."},
        {"LogFileName": "x", "LogFolderName": "actions-0-execute.log"},
    ],
    ids=str,
)
def test_the_agent_s_own_logs_are_not_overwritten(parameters: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="of the agent's own"):
        the_step(Command="x", **parameters)


def test_a_folder_keeps_the_names_apart(context: StepContext) -> None:
    the_step(Command="echo seen", LogFileName="vcagent.jsonl", LogFolderName="tool").run(context)
    assert "seen" in (context.run_dir / "logs" / "tool" / "vcagent.jsonl").read_text()
