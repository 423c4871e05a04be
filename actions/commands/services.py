"""Start servers that a profile names, as a command or a container, for the later actions of their group."""

from __future__ import annotations

import os
import re
import shlex
import string
import time
from abc import abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator, model_validator

from actions.commands.execute_command import environment_variables
from actions.commands.readiness import OutputLines, answers, is_open
from actions.commands.references import filled_in
from agent.component.component import (
    ComponentParameters,
    Plan,
    Relaunch,
    RelaunchInContainer,
    Service,
    ServiceAction,
    Step,
    StepContext,
    StepOutcome,
)
from agent.component.container_parameters import ContainerParameters  # noqa: TC001 - likewise
from agent.component.open_container import open_container, remove_earlier_container
from agent.component.parameter_types import Seconds  # noqa: TC001 - likewise
from agent.core.errors import ActionFailedError, HostError, InterruptedRunError
from agent.host.containers import Port
from agent.host.ports import any_free, check_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.core.records import MetadataValue
    from agent.facts import Facts
    from agent.host.processes import RunningProcess

_HOST = "127.0.0.1"
_POLL_S = 0.05
_LAST_LINES = 12


class _ServiceParameters(ComponentParameters):
    """Parameters of a server, common to commands and containers."""

    port: int = Field(
        0, ge=0, le=65535, description="TCP port; 0 selects a free one. The command sees it as $PORT."
    )
    scheme: str = Field("http", pattern=r"^[a-z][a-z0-9+.-]*$", description="Scheme of its URL: http, tcp, …")
    path: str = Field("", pattern=r"^(/.*)?$", description="Path of its URL after the port, such as /v1.")
    model: str = Field("", description="Name of the model that it serves, for its clients.")
    environment_variables: str = Field("", description="Variables: A=1,,,B=2, or A=1;B=2.")
    ready_url: str = Field("", description="Ready when a GET gets a status below 400: a URL, or /health.")
    ready_line: str = Field(
        "", description="Ready when a line of its output matches this regular expression."
    )
    ready_port: bool | None = Field(
        None, description="Ready when its port is open; the default if no other condition is set."
    )
    start_timeout: Seconds = Field(600.0, gt=0, description="Time limit for becoming ready.")
    stop_grace: Seconds = Field(5.0, ge=0, description="Time between SIGTERM and SIGKILL when it is stopped.")

    @field_validator("environment_variables")
    @classmethod
    def _pairs(cls, value: str) -> str:
        environment_variables(value, {})
        return value

    @field_validator("ready_url")
    @classmethod
    def _url(cls, value: str) -> str:
        if value and not re.match(r"/|https?://", value):
            raise ValueError(f"{value!r} is not a URL: begin it with / or http://")
        return value

    @field_validator("ready_line")
    @classmethod
    def _line(cls, value: str) -> str:
        import regex

        try:
            regex.compile(value)
        except regex.error as error:
            raise ValueError(f"'{value}' is not a regular expression: {error}") from error
        return value

    @property
    def waits_for_port(self) -> bool:
        """True if the server counts as ready only when its port is open."""
        return not (self.ready_url or self.ready_line) if self.ready_port is None else self.ready_port


class CommandServiceParameters(_ServiceParameters):
    """Parameters of a server that is a command on the host."""

    command: str = Field(min_length=1, description="The command line; $PORT is the port to listen on.")
    working_directory: Path | None = Field(None, description="The folder to run it in.")


def _container(value: Any) -> Any:
    return {"image": value} if isinstance(value, str) else value


def _arguments(value: Any) -> Any:
    return shlex.split(value) if isinstance(value, str) else value


class ContainerServiceParameters(_ServiceParameters):
    """Parameters of a server in a container."""

    container: Annotated[ContainerParameters, BeforeValidator(_container)] = Field(
        description="The container, or only its image; its port is published unless network is host."
    )
    command: str = Field(
        "", description="A command line for its shell; if empty, the image's own program runs."
    )
    arguments: Annotated[tuple[str, ...] | None, BeforeValidator(_arguments)] = Field(
        None,
        description="Arguments of the image's program; by default those of the image. $PORT is filled in.",
    )
    working_directory: str = Field(
        "", description="Working directory in the container; by default the image's."
    )

    @model_validator(mode="after")
    def _one_command(self) -> ContainerServiceParameters:
        if self.command and self.arguments is not None:
            raise ValueError("command is a whole line, arguments are for the image's own program: give one")
        if self.container.network == "none":
            raise ValueError("a server in a container without a network cannot be reached")
        return self


@dataclass(frozen=True)
class _Started:
    """A server that was started.

    Args:
        process: its process.
        values: its description, for the records.
        relaunch: how it is started again, to stay when the run has ended.
    """

    process: RunningProcess
    values: dict[str, MetadataValue]
    relaunch: Relaunch | RelaunchInContainer


class _ServerAction(ServiceAction):
    """Start a server and wait until it is ready; it stops when its group ends."""

    parameters: _ServiceParameters

    def plan(self, facts: Facts) -> Plan:  # noqa: ARG002 - dependencies may still have to create what it needs
        """Plan one step: start the server."""
        asked = self.parameters
        wanted = [
            f"{asked.ready_url} answers" if asked.ready_url else "",
            f"it writes '{asked.ready_line}'" if asked.ready_line else "",
            "its port is open" if asked.waits_for_port else "",
        ]
        reason = f"later actions of its group use it; ready when {' and '.join(filter(None, wanted))}"
        return Plan((Step("serve", reason, self._serve, self.shown(), runs_as_written=True),))

    @abstractmethod
    def shown(self) -> str:
        """Return the command that will run, for display."""

    def present(self) -> dict[str, str]:
        """Return the variables that a value after ``+`` is appended to."""
        return {}

    @abstractmethod
    def start(
        self, context: StepContext, stack: ExitStack, port: int, environment: dict[str, str]
    ) -> _Started:
        """Start the server and describe it; register cleanup on ``stack``."""

    def end_earlier(self, context: StepContext) -> None:
        """End the server of an earlier process of this run that was killed; it may hold the port."""

    @property
    def published(self) -> bool:
        """True if Docker forwards the server's port to a container with its own network."""
        return False

    @property
    def name(self) -> str:
        """Name by which the other actions of the group find the server."""
        return self.parameters.scenario or type(self).__name__

    def _serve(self, context: StepContext) -> StepOutcome:
        asked = self.parameters
        self.end_earlier(context)
        check_port(_HOST, asked.port)
        port = asked.port or any_free(_HOST)
        url = f"{asked.scheme}://{_HOST}:{port}{asked.path}"
        variables = filled_in(asked.environment_variables, context)
        environment = {"PORT": str(port), **environment_variables(variables, self.present())}
        began = time.monotonic()
        with ExitStack() as started:
            written = self._written(context)
            answered = self._answered(f"{asked.scheme}://{_HOST}:{port}", port)
            server = self.start(context, started, port, environment)
            process = server.process
            started.callback(process.stop, asked.stop_grace)
            self._wait(process, written, answered, context)
            stack = started.pop_all()

        def death() -> str | None:
            how = _death(process)
            return how and "\n".join([how, *process.tail(_LAST_LINES)])

        values: dict[str, MetadataValue] = {"url": url, **server.values}
        if asked.model:
            values["model"] = asked.model
        service = Service(self.name, values, stack.close, death, server.relaunch)
        return StepOutcome(
            f"{self.name} is ready at {url} after {time.monotonic() - began:.1f} s", service=service
        )

    def _written(self, context: StepContext) -> dict[str, Callable[[], bool]]:
        """Return the condition on the server's output, by name; none if the profile sets none."""
        pattern = self.parameters.ready_line
        if not pattern:
            return {}
        import regex

        return {f"written '{pattern}'": OutputLines(context.log, regex.compile(pattern)).found}

    def _answered(self, base: str, port: int) -> dict[str, Callable[[], bool]]:
        """Return the conditions on the network, by name; another server may meet them too."""
        asked = self.parameters
        tests: dict[str, Callable[[], bool]] = {}
        if asked.waits_for_port:
            tests[f"opened its port {port}"] = lambda: is_open(_HOST, port, published=self.published)
        if asked.ready_url:
            url = f"{base}{asked.ready_url}" if asked.ready_url.startswith("/") else asked.ready_url
            tests[f"answered at {url}"] = lambda: answers(url)
        return tests

    def _wait(
        self,
        process: RunningProcess,
        written: dict[str, Callable[[], bool]],
        answered: dict[str, Callable[[], bool]],
        context: StepContext,
    ) -> None:
        deadline = time.monotonic() + self.parameters.start_timeout
        for what, holds in {**written, **answered}.items():
            context.progress.update(f"waiting until it has {what}")
            while not holds():
                if death := _death(process):
                    raise ActionFailedError(
                        f"{self.name} {death} before it had {what}",
                        remedy=f"its output is in {context.log}",
                        details=process.tail(_LAST_LINES),
                    )
                if time.monotonic() > deadline:
                    raise ActionFailedError(
                        f"{self.name} has not {what} within {self.parameters.start_timeout:g} s",
                        remedy=f"raise start_timeout, or see in {context.log} what it waits for",
                        details=process.tail(_LAST_LINES),
                    )
                if context.stop.wait(_POLL_S):
                    raise InterruptedRunError(f"told to stop while {self.name} was starting")
        if death := _death(process):
            other = any(holds() for holds in answered.values())
            raise ActionFailedError(
                f"{self.name} {death}" + (", and another server answers in its place" if other else ""),
                remedy="let the command stay in the foreground"
                + (", and stop the other server" if other else f"; its output is in {context.log}"),
                details=process.tail(_LAST_LINES),
            )


class CommandService(_ServerAction):
    """Serve by a command of this host until its group ends; actions find it as ``service:<scenario>``."""

    Parameters: ClassVar[type[ComponentParameters]] = CommandServiceParameters
    parameters: CommandServiceParameters

    def present(self) -> dict[str, str]:
        """Return the agent's own environment variables."""
        return dict(os.environ)

    def shown(self) -> str:
        """Return the command line."""
        return self.parameters.command

    def start(
        self, context: StepContext, stack: ExitStack, port: int, environment: dict[str, str]
    ) -> _Started:
        """Start the command."""
        del stack, port
        asked = self.parameters
        command = filled_in(asked.command, context)
        process = context.processes.start(
            command, log=context.log, env=environment, cwd=asked.working_directory
        )
        again = Relaunch(("/bin/sh", "-c", command), environment, asked.working_directory)
        return _Started(process, {"server": command}, again)


class ContainerService(_ServerAction):
    """Serve from a container until its group ends; other actions find it as ``service:<scenario>``."""

    Parameters: ClassVar[type[ComponentParameters]] = ContainerServiceParameters
    parameters: ContainerServiceParameters

    @property
    def published(self) -> bool:
        """True if the container has a network of its own."""
        return self.parameters.container.network != "host"

    def shown(self) -> str:
        """Return the image and the command that runs in it."""
        asked = self.parameters
        what = asked.command or shlex.join(asked.arguments or ())
        return f"{asked.container.image_name} {what}".strip()

    @property
    def _purpose(self) -> str:
        return f"service-{re.sub(r'[^A-Za-z0-9_.-]+', '-', self.name)}"

    def end_earlier(self, context: StepContext) -> None:
        """Remove the container of an earlier process of this run."""
        remove_earlier_container(context, self._purpose)

    def start(
        self, context: StepContext, stack: ExitStack, port: int, environment: dict[str, str]
    ) -> _Started:
        """Start the container."""
        asked = self.parameters
        ports = (Port(port, port, _HOST),) if self.published else ()
        running = open_container(asked.container, context, stack, purpose=self._purpose, ports=ports)
        command: str | list[str] = filled_in(asked.command, context)
        if not command:
            image = running.image
            arguments = image.command if asked.arguments is None else asked.arguments
            command = [
                string.Template(filled_in(word, context)).safe_substitute(environment)
                for word in (*image.entrypoint, *arguments)
            ]
            if not command:
                raise HostError(
                    f"the image {image.reference} has no program of its own", remedy="give command"
                )
        process = running.start(
            command, log=context.log, env=environment, cwd=asked.working_directory or None
        )
        spec = asked.container.spec(f"kept-{self._purpose}", ports=ports)
        staying = replace(
            spec,
            command=("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command),
            environment={**spec.environment, **environment},
            secret_environment={
                name: value for name, value in spec.secret_environment.items() if name not in environment
            },
            workdir=asked.working_directory,
            keep=True,
        )
        values: dict[str, MetadataValue] = {
            "server": asked.container.image_name,
            "server_image": running.image.pinned,
        }
        return _Started(process, values, RelaunchInContainer(staying))


def _death(process: RunningProcess) -> str | None:
    """Describe how a server ended by itself; return None while it is running."""
    code = process.poll()
    if code is None:
        return None
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
