"""Runs a command line; stands among the actions or among the dependencies, as in VirtualClient."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, field_validator, model_validator

from agent.component.component import (
    Action,
    ComponentParameters,
    Dependency,
    Plan,
    Step,
    StepContext,
    StepOutcome,
)
from agent.component.parameter_types import Seconds  # noqa: TC001 - pydantic reads it
from agent.core.errors import ActionFailedError, ProfileError

if TYPE_CHECKING:
    from agent.facts import Facts

__all__ = ["ExecuteCommand", "ExecuteCommandParameters", "environment_variables"]

_OWN_LOG = re.compile(r"vcagent\.|(?:\d+-)?(?:dependencies|actions|monitors)-\d|.*\.exit$", re.IGNORECASE)
"""The names that the agent itself gives to what it puts right into the folder of logs."""


class ExecuteCommandParameters(ComponentParameters):
    """VirtualClient's parameters of ExecuteCommand (ExecuteCommand.cs), and a timeout."""

    command: str | None = Field(None, description="The command line; && chains, as in a shell.")
    working_directory: Path | None = Field(None, description="The folder to run it in; added to PATH.")
    environment_variables: str = Field(
        "",
        description="Variables: A=1,,,B=2, or A=1;B=2. A value after + is appended to the present one.",
    )
    max_retries: int = Field(0, ge=0, description="How often a failed command is run again.")
    log_file_name: str | None = Field(None, description="A copy of the log gets this name.")
    log_folder_name: str | None = Field(None, description="The folder below logs/ for that copy.")
    timeout: Seconds | None = Field(None, description="How long one attempt may take.")

    @field_validator("log_file_name", "log_folder_name")
    @classmethod
    def _below_logs(cls, value: str | None) -> str | None:
        if value and (Path(value).is_absolute() or ".." in Path(value).parts):
            raise ValueError("it must be a name below the folder of logs")
        return value

    @field_validator("environment_variables")
    @classmethod
    def _pairs(cls, value: str) -> str:
        environment_variables(value, {})
        return value

    @model_validator(mode="after")
    def _not_the_agent_s_own(self) -> ExecuteCommandParameters:
        path = Path(self.log_folder_name or "", self.log_file_name or "x")
        if not path.parts or _OWN_LOG.match(path.parts[0]):
            raise ValueError(
                "LogFileName is that of a log of the agent's own: choose another, or a LogFolderName"
            )
        return self


def environment_variables(text: str, present: dict[str, str]) -> dict[str, str]:
    """Read ``A=1,,,B=+2``: pairs separated by ``,,,`` if the text has it, else by ``;``.

    Args:
        text: the parameter.
        present: the environment that ``+`` appends to, with ``:``.

    Raises:
        ValueError: if a part has no ``=``; it shows no part, since any may hold a secret.
    """
    values = {}
    parts = (part.strip() for part in text.split(",,," if ",,," in text else ";"))
    for number, part in enumerate(filter(None, parts), 1):
        name, separator, value = part.partition("=")
        if not separator or not name.strip():
            raise ValueError(
                f"variable {number} is not written NAME=value; where a value holds a semicolon, "
                "separate by ,,, and end by it: A=1;2,,,"
            )
        name, value = name.strip(), value.strip()
        if value.startswith("+"):
            value = ":".join(filter(None, (present.get(name), value[1:].strip())))
        values[name] = value
    return values


class ExecuteCommand(Action, Dependency):
    """Runs a command once; after a resume a command that had finished is not run again."""

    Parameters = ExecuteCommandParameters
    parameters: ExecuteCommandParameters

    def plan(self, facts: Facts) -> Plan:  # noqa: ARG002 - a command is run whatever the host is
        """One step: the command."""
        command = (self.parameters.command or "").strip()
        if not command:
            raise ProfileError(
                "ExecuteCommand has no command", remedy='give one: --parameters "Command=uname -a"'
            )
        return Plan((Step("execute", "the profile asks for this command", self._execute, command=command),))

    def _execute(self, context: StepContext) -> StepOutcome:
        for attempt in range(self.parameters.max_retries + 1):
            try:
                return self._attempt(context)
            except ActionFailedError:
                # The next attempt, or the next run, has to run it again.
                context.log.with_suffix(".exit").unlink(missing_ok=True)
                if attempt == self.parameters.max_retries or context.stop.wait(attempt + 1):
                    raise
                context.progress.update(f"attempt {attempt + 2} of {self.parameters.max_retries + 1}")
            finally:
                self._copy_log(context)
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, context: StepContext) -> StepOutcome:
        parameters = self.parameters
        environment = environment_variables(parameters.environment_variables, dict(os.environ))
        folder = parameters.working_directory
        if folder:
            environment.setdefault("PATH", f"{os.environ.get('PATH', os.defpath)}:{folder}")
        result = context.processes.run(
            (parameters.command or "").strip(),
            log=context.log,
            timeout_s=parameters.timeout,
            env=environment,
            cwd=folder,
            on_line=lambda line: context.progress.update(line.strip()[:200]) if line.strip() else None,
            marker=context.log.with_suffix(".exit"),
        )
        again = "; it had finished before the run was resumed" if result.adopted else ""
        return StepOutcome(f"exit code 0 after {result.duration_s:.1f} s{again}")

    def _copy_log(self, context: StepContext) -> None:
        parameters = self.parameters
        if not (parameters.log_file_name or parameters.log_folder_name) or not context.log.exists():
            return
        name = parameters.log_file_name or context.log.name
        copy = context.run_dir / "logs" / (parameters.log_folder_name or "") / name
        if copy != context.log:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(context.log, copy)
