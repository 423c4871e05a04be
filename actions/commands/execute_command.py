"""Run a command line, as an action or as a dependency, like VirtualClient's ExecuteCommand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, field_validator, model_validator

from actions.commands.expectations import Expectations, judge
from actions.commands.found_metrics import STREAM_FILES, read_outputs
from actions.commands.metric_rules import MetricRules  # noqa: TC001 - pydantic reads it
from actions.commands.outputs import bring_home, bring_home_from
from actions.commands.references import filled_in
from actions.commands.repetitions import combined
from agent.component.component import (
    CASE_LOG,
    CASE_OWNER,
    Action,
    ComponentParameters,
    Dependency,
    Plan,
    Step,
    StepContext,
    StepOutcome,
)
from agent.component.container_parameters import OptionalContainer  # noqa: TC001 - likewise
from agent.component.open_container import open_container
from agent.component.parameter_types import Seconds, Words  # noqa: TC001 - likewise
from agent.core.errors import ActionFailedError, ProfileError
from agent.core.names import did_you_mean
from agent.core.quantities import metric_text
from agent.core.records import Validity
from agent.core.safe_files import copy_file, make_folder
from agent.host.containers import Mount

if TYPE_CHECKING:
    from agent.component.downloads import Download
    from agent.core.records import MetadataValue, ParsedOutput
    from agent.facts import Facts
    from agent.host.containers.container import Container
    from agent.host.processes import ProcessResult

_OWN_LOG = re.compile(r"vcagent\.|(?:\d+-)?(?:dependencies|actions|monitors)-\d|.*\.exit$", re.IGNORECASE)
"""Names that the agent itself gives to files directly in the log folder."""

_WORKLOAD = "commands"
"""Folder of a run that holds the cases of commands."""

_CLOCK_S = 1.0
"""Tolerance in seconds between a file's time and the clock: some programs keep whole seconds."""


class ExecuteCommandParameters(ComponentParameters):
    """VirtualClient's parameters of ExecuteCommand (ExecuteCommand.cs), plus those of a measurement."""

    command: str | None = Field(None, description="The command line; && chains, as in a shell.")
    working_directory: Path | None = Field(
        None, description="Working directory, in the container if one is set; added to PATH."
    )
    environment_variables: str = Field(
        "",
        description="Variables: A=1,,,B=2, or A=1;B=2. A value after + is appended to the present one.",
    )
    max_retries: int = Field(0, ge=0, description="Number of times to repeat a failed command.")
    log_file_name: str | None = Field(None, description="Name of a copy of the log.")
    log_folder_name: str | None = Field(None, description="Folder below logs/ for that copy.")
    timeout: Seconds | None = Field(None, description="Time limit for one attempt.")
    container: OptionalContainer = Field(
        None, description="The container to run it in, or only its image; runs on the host if absent."
    )
    outputs: Words = Field((), description="Files, folders and globs to copy into the folder of the case.")
    metrics: MetricRules = Field(
        (), description="Rules that find numbers in its output, or the name of a parser."
    )
    expect: Expectations = Field(
        (), description="Conditions on the metrics for a valid result: tokens_per_second >= 5000."
    )
    repeats: int = Field(1, ge=1, description="Number of measured runs; the records are the means.")
    tool_name: str = Field("", description="The tool's name in the records; by default the program's.")
    tool_version: str = Field("", description="Its version in the records.")

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
                "LogFileName is the name of one of the agent's own logs: choose another, or set LogFolderName"
            )
        return self

    @model_validator(mode="after")
    def _expected_are_measured(self) -> ExecuteCommandParameters:
        if self.expect and not self.metrics:
            raise ValueError("expect needs metrics: the rules that measure what is expected")
        if self.repeats > 1 and not self.metrics:
            raise ValueError("repeats needs metrics: without numbers there is no spread")
        names = [rule.fixed_name for rule in self.metrics]
        if all(names):
            known = [name for name in names if name]
            for expected in self.expect:
                if expected.name not in known and expected.name.removesuffix("_stddev") not in known:
                    raise ValueError(
                        f"{expected} is expected, but no rule names {expected.name}; "
                        f"{did_you_mean(expected.name, known)}"
                    )
            if twice := [name for name in known if known.count(name) > 1]:
                raise ValueError(f"two rules give a metric named {twice[0]}")
        return self

    @property
    def is_measured(self) -> bool:
        """True if the command has a case: it has outputs or metrics."""
        return bool(self.outputs or self.metrics)

    @property
    def tool(self) -> str:
        """The tool's name in the records."""
        if self.tool_name:
            return self.tool_name
        try:
            words = shlex.split((self.command or "").strip())
        except ValueError:
            words = (self.command or "").split()
        programs = [word for word in words if "=" not in word.partition("/")[0]]
        return Path(programs[0]).name if programs else "ExecuteCommand"


def environment_variables(text: str, present: dict[str, str]) -> dict[str, str]:
    """Read ``A=1,,,B=+2``: pairs separated by ``,,,`` if the text contains it, else by ``;``.

    Args:
        text: the parameter.
        present: the environment; ``+`` appends to its values, with ``:``.

    Raises:
        ValueError: if a part does not have ``=``; the message shows no part, since any may be a secret.
    """
    values = {}
    parts = (part.strip() for part in text.split(",,," if ",,," in text else ";"))
    for number, part in enumerate(filter(None, parts), 1):
        name, separator, value = part.partition("=")
        if not separator or not name.strip():
            raise ValueError(
                f"variable {number} is not written NAME=value; if a value contains a semicolon, "
                "separate the pairs by ,,, and end with it: A=1;2,,,"
            )
        name, value = name.strip(), value.strip()
        if value.startswith("+"):
            value = ":".join(filter(None, (present.get(name), value[1:].strip())))
        values[name] = value
    return values


@dataclass(frozen=True)
class _Place:
    """The host or container in which one run of the command is started.

    Args:
        folder: gets the run's streams and outputs; None if nothing is measured.
        container: the container to run in; None for the host.
    """

    folder: Path | None
    container: Container | None


class ExecuteCommand(Action, Dependency):
    """Run a command once; a resumed run does not repeat a command that had finished.

    With metrics or outputs it is a measurement: a case with files, records and, if ``expect`` is set, a
    verdict. Such a command runs again if the agent was killed while it ran.
    """

    Parameters = ExecuteCommandParameters
    parameters: ExecuteCommandParameters

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return nothing, as other actions do: nobody knows what a command downloads."""
        return Action.downloads(self, facts)

    def plan(self, facts: Facts) -> Plan:
        """Plan one step: the command."""
        command = (self.parameters.command or "").strip()
        if not command:
            raise ProfileError("ExecuteCommand has no command", remedy="give one, such as command=date")
        container, repeats = self.parameters.container, self.parameters.repeats
        if container:
            container.require_inputs(facts)
        where = f" in a container of {container.image_name}" if container else ""
        often = f", {repeats} times" if repeats > 1 else ""
        reason = f"the profile asks for this command{where}{often}"
        return Plan((Step("execute", reason, self._execute, command=command, runs_as_written=True),))

    def _execute(self, context: StepContext) -> StepOutcome:
        parameters = self.parameters
        case_dir = None
        if parameters.is_measured:
            case_dir = context.case_dir(_WORKLOAD, _file_name(parameters.scenario or parameters.tool))
        with ExitStack() as stack:
            container = self._container(context, stack, case_dir)
            runs = []
            for number in range(1, parameters.repeats + 1):
                folder = case_dir
                if case_dir and parameters.repeats > 1:
                    folder = case_dir / f"run-{number}"
                    context.progress.update(
                        f"run {number} of {parameters.repeats}", done=number - 1, total=parameters.repeats
                    )
                result, outputs = self._measured(context, _Place(folder, container))
                runs.append(outputs)
            image = container.image if container else None
        if case_dir is None:
            again = "; it had finished before the run was resumed" if result.adopted else ""
            return StepOutcome(f"exit code 0 after {result.duration_s:.1f} s{again}")
        details: dict[str, MetadataValue] = {"command": (parameters.command or "").strip()}
        if image:
            details |= {"image": image.reference, "image_id": image.pinned}
        if parameters.repeats > 1:
            details["runs"] = parameters.repeats
        judged = self._judged(combined(runs), details)
        return StepOutcome(_sentence(judged, result), tuple(judged), case_dir)

    def _container(self, context: StepContext, stack: ExitStack, case_dir: Path | None) -> Container | None:
        asked = self.parameters.container
        if asked is None:
            return None
        mounts = [Mount(case_dir, str(case_dir))] if case_dir else []
        return open_container(
            asked, context, stack, purpose=f"command-{_file_name(context.key)}", mounts=mounts
        )

    def _measured(self, context: StepContext, place: _Place) -> tuple[ProcessResult, list[ParsedOutput]]:
        """Run the command, with its retries, and return the requested metrics."""
        for attempt in range(self.parameters.max_retries + 1):
            try:
                if place.folder:
                    _empty(place.folder)
                started_s = time.time()
                result = self._attempt(context, place)
                return result, self._found(context, place, started_s - _CLOCK_S)
            except ActionFailedError:
                # The next attempt, or the next run of the agent, must run the command again.
                context.log.with_suffix(".exit").unlink(missing_ok=True)
                if attempt == self.parameters.max_retries or context.stop.wait(attempt + 1):
                    raise
                context.progress.update(f"attempt {attempt + 2} of {self.parameters.max_retries + 1}")
            finally:
                self._copy_log(context)
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, context: StepContext, place: _Place) -> ProcessResult:
        parameters, folder = self.parameters, self.parameters.working_directory
        present = {} if place.container else dict(os.environ)
        environment = environment_variables(filled_in(parameters.environment_variables, context), present)
        if folder and not place.container:
            environment.setdefault("PATH", f"{os.environ.get('PATH', os.defpath)}:{folder}")
        copies = {name: place.folder / file for name, file in STREAM_FILES.items()} if place.folder else None
        return (place.container or context.processes).run(
            filled_in((parameters.command or "").strip(), context),
            log=context.log,
            timeout_s=parameters.timeout,
            env=environment,
            cwd=folder if place.container else folder or place.folder,
            on_line=lambda line: context.progress.update(line.strip()[:200]) if line.strip() else None,
            marker=None if place.folder else context.log.with_suffix(".exit"),
            copies=copies,
        )

    def _found(self, context: StepContext, place: _Place, since_s: float) -> list[ParsedOutput]:
        parameters, folder = self.parameters, place.folder
        if folder is None:
            return []
        if parameters.outputs and place.container:
            below = str(parameters.working_directory or "")
            bring_home_from(place.container, parameters.outputs, folder, context, below=below)
        elif parameters.outputs:
            bring_home(parameters.outputs, folder, below=parameters.working_directory or folder)
        if not parameters.metrics:
            return []
        return read_outputs(parameters.metrics, folder, tool=parameters.tool, since_s=since_s)

    def _judged(self, outputs: list[ParsedOutput], details: dict[str, MetadataValue]) -> list[ParsedOutput]:
        """Return the outputs with the verdict on ``expect``, which overrides a parser's verdict."""
        parameters = self.parameters
        verdict = judge(parameters.expect, [metric for output in outputs for metric in output.metrics])
        judged = []
        for output in outputs:
            own = replace(output, details={**output.details, **details})
            if output.format == "rules":
                own = replace(own, tool_version=parameters.tool_version)
            if verdict and (output.verdict is None or output.verdict.validity is Validity.VALID):
                own = replace(own, verdict=verdict)
            judged.append(own)
        return judged

    def _copy_log(self, context: StepContext) -> None:
        parameters = self.parameters
        if not (parameters.log_file_name or parameters.log_folder_name) or not context.log.exists():
            return
        name = parameters.log_file_name or context.log.name
        mask = context.processes.secrets.mask
        copy = context.run_dir / "logs" / mask(parameters.log_folder_name or "") / mask(name)
        if copy != context.log:
            make_folder(copy.parent)
            copy_file(context.log, copy)


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "command"


def _empty(folder: Path) -> None:
    """Remove the files that an earlier attempt left in the folder of a run."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name in {CASE_LOG, CASE_OWNER}:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _sentence(outputs: list[ParsedOutput], result: ProcessResult) -> str:
    metrics = [metric for output in outputs for metric in output.metrics if metric.verbosity <= 1]
    told = ", ".join(map(metric_text, metrics[:3]))
    verdicts = {output.validity.value for output in outputs if output.validity}
    return "; ".join(
        filter(None, (told or f"exit code 0 after {result.duration_s:.1f} s", *sorted(verdicts)))
    )
