"""A running container, in which commands run as on the host."""

from __future__ import annotations

import itertools
import shlex
import time
import uuid
from typing import TYPE_CHECKING, Any, Literal

from agent.core.errors import ContainerError
from agent.host.containers.client import EngineClient, engine_errors, remove_container
from agent.host.containers.execution import Execution
from agent.host.containers.secret_files import remove_secret_files
from agent.host.processes.outcome import ERROR_LINES, checked, last_words, refuse_when_stopped, result_of
from agent.host.processes.output import OutputLog
from agent.host.processes.secret_line import arguments_of
from agent.host.processes.tree import PROCESS_VARIABLE, RUN_VARIABLE, STEP_VARIABLE

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path, PurePath

    from agent.core.secrets import Secrets
    from agent.host.containers.images import Image
    from agent.host.processes.contract import ProcessResult

AGENT = uuid.uuid4().hex
"""Distinguishes this agent's commands in containers from those of an earlier agent."""

_NUMBERS = itertools.count(1)
_KILLED = 137
_NOTICE_S = 2.0
"""Seconds for the engine to notice that a container has ended."""

_STOP_LIMIT_S = 30.0


class Container:
    """A container of this run.

    ``run`` and ``start`` are those of ``agent.host.processes.ProcessRunner``: the same code runs a command
    on the host and in a container. Paths are the container's own, except the logs, which the agent writes.

    Args:
        client: the connection.
        identifier: its id.
        name: its name.
        image: its image.
        reused: True if it existed before.
        run_id: the run's id.
        step: the key of the step that its commands belong to.
        secrets: secrets to mask in logs, results and messages.
        stop: when set, ``run`` ends its command and raises InterruptedRunError.
        grace_s: seconds between SIGTERM and SIGKILL when a command is stopped or its time is over.
    """

    def __init__(
        self,
        client: EngineClient,
        *,
        identifier: str,
        name: str,
        image: Image,
        reused: bool,
        run_id: str,
        step: str,
        secrets: Secrets,
        stop: threading.Event,
        grace_s: float = 1.0,
    ) -> None:
        self.identifier = identifier
        self.name = name
        self.image = image
        self.reused = reused
        self.run_id = run_id
        self.step = step
        self.secrets = secrets
        self.stop = stop
        self.grace_s = grace_s
        self._client = client
        self._background: list[BackgroundCommand] = []

    def run(
        self,
        command: Sequence[str] | str,
        *,
        log: Path,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        cwd: PurePath | str | None = None,
        user: str = "",
        check: bool = True,
        on_line: Callable[[str], None] | None = None,
        marker: Path | None = None,
        uninterruptible: bool = False,
        copies: Mapping[str, Path] | None = None,
    ) -> ProcessResult:
        """Run a command to its end; a list runs as it is, a string in the container's ``/bin/sh``.

        Args:
            command: the program and its arguments, or a line for the shell.
            log: receives the command, its output and its exit code, secrets masked; appended to.
            timeout_s: seconds after which it and all of its children are ended.
            env: variables added to the container's.
            secret_env: additional variables, masked; they are in no process list, and the engine does not
                show them.
            cwd: the folder inside to run in; None for the container's own.
            user: ``uid:gid`` or a name that the image knows; empty for the container's own.
            check: True to raise an error on failure.
            on_line: called with each line of either stream, masked.
            marker: not used: a command in a container is not adopted, but ended by ``ensure_running`` when
                a run is resumed, and run again.
            uninterruptible: True to wait for the command's end if the run is stopped.
            copies: for ``stdout`` and ``stderr`` a file that receives the whole stream, secrets masked.

        Returns:
            The result; ``exit_code`` is 128 plus the number for a signal.

        Raises:
            ActionFailedError: if ``check`` and the exit code is not 0, or on a timeout.
            ContainerError: if it cannot be started, or the container or the engine is gone.
            InterruptedRunError: if the run was stopped; all of the command's processes have ended by then.
        """
        del marker
        shown = self._shown(command, secret_env)
        refuse_when_stopped(self.stop, shown)
        execution = self._execution(
            command,
            shown,
            log=log,
            env=env,
            secret_env=secret_env,
            cwd=cwd,
            user=user,
            on_line=on_line,
            uninterruptible=uninterruptible,
            copies=copies,
        )
        execution.follow(timeout_s)
        code = 1 if execution.exit_code is None else execution.exit_code
        result = result_of(
            execution, code, shown=shown, log=log, stop=self.stop, uninterruptible=uninterruptible
        )
        if result.exit_code == _KILLED and not result.timed_out:
            self._refuse_ended(shown, execution.output.lines(ERROR_LINES))
        return checked(result, last_words(execution.output, result.stderr)) if check else result

    def start(
        self,
        command: Sequence[str] | str,
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        cwd: PurePath | str | None = None,
        user: str = "",
    ) -> BackgroundCommand:
        """Start a command in the background; ``close`` ends commands that still run.

        Raises:
            ContainerError: if the container or the engine is gone.
        """
        shown = self._shown(command, secret_env)
        refuse_when_stopped(self.stop, shown)
        execution = self._execution(
            command, shown, log=log, env=env, secret_env=secret_env, cwd=cwd, user=user, uninterruptible=True
        )
        self._background.append(BackgroundCommand(execution))
        return self._background[-1]

    def close(self) -> None:
        """End all commands in the background; the container keeps running."""
        while self._background:
            self._background.pop().stop(self.grace_s)

    def host_port(self, port: int, protocol: Literal["tcp", "udp"] = "tcp") -> int:
        """Return the host's port for one of the container's.

        Raises:
            ContainerError: if the port is not published.
        """
        with engine_errors(f"the ports of {self.name} cannot be read"):
            ports = self._client.inspect_container(self.identifier)["NetworkSettings"]["Ports"]
        offered = ports.get(f"{port}/{protocol}")
        if not offered:
            raise ContainerError(
                f"the host offers no port of {self.name} for {port}/{protocol}",
                problem="no_port",
                remedy="name it in the container's ports, and do not use the host's network",
            )
        return int(offered[0]["HostPort"])

    def first_process(self) -> int | None:
        """Return the number of its first process on the engine's host; None if it has ended."""
        state = self._state()
        return int(state["Pid"]) if state["Running"] else None

    def exit_code(self) -> int | None:
        """Return the exit code of its first process; None while it is running."""
        state = self._state()
        return None if state["Running"] else int(state["ExitCode"])

    def _state(self) -> Mapping[str, Any]:
        with engine_errors(f"the state of {self.name} cannot be read"):
            return self._client.inspect_container(self.identifier)["State"]  # type: ignore[no-any-return]

    def last_output(self, lines: int = 20) -> tuple[str, ...]:
        """Return the last lines of its first process, secrets masked."""
        with engine_errors(f"the output of {self.name} cannot be read"):
            text = self._client.logs(self.identifier, tail=lines).decode(errors="replace")
        return tuple(self.secrets.mask(text).splitlines()[-lines:])

    def remove(self) -> None:
        """End it, and remove it with its anonymous volumes and its secret files."""
        self.close()
        with engine_errors(f"the container {self.name} cannot be removed"):
            remove_container(self._client, self.identifier)
        remove_secret_files(self.name)

    def _shown(self, command: Sequence[str] | str, secret_env: Mapping[str, str] | None) -> str:
        for value in (secret_env or {}).values():
            self.secrets.add(value)
        return self.secrets.mask(command if isinstance(command, str) else shlex.join(map(str, command)))

    def _execution(
        self,
        command: Sequence[str] | str,
        shown: str,
        *,
        log: Path,
        env: Mapping[str, str] | None,
        secret_env: Mapping[str, str] | None,
        cwd: PurePath | str | None,
        user: str,
        uninterruptible: bool,
        on_line: Callable[[str], None] | None = None,
        copies: Mapping[str, Path] | None = None,
    ) -> Execution:
        argv, extra = (
            arguments_of(command, "/bin/sh", self.secrets)
            if isinstance(command, str)
            else ([str(part) for part in command], {})
        )
        mark = f"{AGENT}.{next(_NUMBERS)}:"
        output = OutputLog(log, f"{shown}  # in {self.name}", self.secrets, on_line, copies)
        try:
            return Execution(
                self._client,
                self.identifier,
                argv,
                environment={
                    **(env or {}),
                    **(secret_env or {}),
                    **extra,
                    RUN_VARIABLE: self.run_id,
                    STEP_VARIABLE: self.step,
                    PROCESS_VARIABLE: mark,
                },
                mark=mark,
                output=output,
                user=user,
                workdir=str(cwd or ""),
                stop=self.stop,
                grace_s=self.grace_s,
                uninterruptible=uninterruptible,
            )
        except BaseException:
            output.close("not started")
            raise

    def _refuse_ended(self, shown: str, lines: tuple[str, ...]) -> None:
        """Raise the error for a command that ended with its container."""
        deadline = time.monotonic() + _NOTICE_S
        with engine_errors(f"the container {self.name} is gone; `{shown}` ended with it"):
            while (state := self._client.inspect_container(self.identifier)["State"])["Running"]:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.1)
        exhausted = bool(state.get("OOMKilled"))
        why = "was out of memory" if exhausted else f"ended with {state.get('ExitCode')}"
        raise ContainerError(
            f"the container {self.name} {why}, and `{shown}` with it",
            problem="no_such_container",
            remedy="give it more memory" if exhausted else "see who stopped it",
            details=lines,
        )


class BackgroundCommand:
    """A command in a container, in the background; implements RunningProcess."""

    def __init__(self, execution: Execution) -> None:
        import threading

        self._execution = execution
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True, name="container-command")
        self._thread.start()

    @property
    def pid(self) -> int:
        """The number of its process on the engine's host."""
        return self._execution.process_id

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs.

        Raises:
            ContainerError: if it could not be started, or the engine is lost.
        """
        if not self._execution.wait(0):
            return None
        self._thread.join()  # it notes its error after the execution has ended
        if self._error:
            raise self._error
        return self._execution.exit_code

    def tail(self, lines: int = 20) -> tuple[str, ...]:
        """Return the last lines of its output."""
        return self._execution.output.lines(lines)

    def stop(self, grace_s: float = 5.0) -> int:
        """End it and all its children: SIGTERM, then SIGKILL after ``grace_s`` seconds."""
        self._execution.end("stop", grace_s)
        self._execution.wait(_STOP_LIMIT_S)
        code = self._execution.exit_code
        return 137 if code is None else code

    def _follow(self) -> None:
        try:
            self._execution.follow()
        except Exception as error:  # noqa: BLE001 - raised where it is asked for
            self._error = error
