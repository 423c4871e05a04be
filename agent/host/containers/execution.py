"""One command in a container, from its start to its end."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from agent.core.errors import ActionFailedError, ContainerError
from agent.host.containers.client import EngineClient, LongAnswer, engine_errors, exec_output
from agent.host.containers.ending import ProcessTree
from agent.host.containers.failures import engine_error
from agent.host.processes.outcome import ended_with_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.host.processes.output import OutputLog

_SILENCE_S = 1.0
"""Seconds without output before the engine is asked whether the command has ended."""

_NOT_STARTED = (126, 127)
"""Exit codes of a command that could not be started."""

_LONGEST_PAUSE_S = 0.25
"""Seconds between checks of a command that closed its output but keeps running."""


class Execution:
    """Runs one command in a container.

    Args:
        client: the connection.
        container: the container's id.
        command: the program and its arguments.
        environment: its variables, in addition to the container's.
        mark: the value of its ``VCAGENT_PROCESS``, by which its descendants are found.
        output: receives its output.
        user: the user who runs it; empty for the container's own.
        workdir: its working directory; empty for the container's own.
        stop: when set, it is ended.
        grace_s: seconds between SIGTERM and SIGKILL.
        uninterruptible: True if ``stop`` does not end it; a timeout still does.

    Attributes:
        ended_by: the cause of its end.
        exit_code: its exit code; None while it runs. 128 plus the number for a signal.
    """

    def __init__(
        self,
        client: EngineClient,
        container: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        mark: str,
        output: OutputLog,
        user: str,
        workdir: str,
        stop: threading.Event,
        grace_s: float,
        uninterruptible: bool = False,
    ) -> None:
        self.output = output
        self.ended_by: Literal["itself", "stop", "timeout"] = "itself"
        self.exit_code: int | None = None
        self._client = client
        self._stop = stop
        self._grace_s = grace_s
        self._uninterruptible = uninterruptible
        self._started = time.monotonic()
        self._ended: float | None = None
        self._tree = ProcessTree(client, container, mark, user)
        self._end_lock = threading.Lock()
        self._ended_in_vain: float | None = None  # the grace of an end requested before it began
        self._gone = threading.Event()
        with engine_errors("the command cannot be started in the container"):
            made = client.exec_create(
                container,
                list(command),
                environment=dict(environment),
                user=user,
                workdir=workdir or None,
            )
        self._identifier = str(made["Id"])
        self._answer = LongAnswer(client, lambda: exec_output(client, self._identifier))

    @property
    def process_id(self) -> int:
        """The number of its process on the engine's host; 0 before it runs."""
        return int(self._inspect().get("Pid") or 0)

    def follow(self, timeout_s: float | None = None) -> None:
        """Pass its output on until it ends by itself, by ``stop``, or by a timeout.

        Raises:
            ContainerError: if it cannot be started, or the engine is lost.
            ActionFailedError: if its log cannot be written; it is ended then.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            with engine_errors("the command in the container cannot be followed"):
                self._follow(deadline)
            self._ended = time.monotonic()
            if ended_with_run(self, self.exit_code or 0, self._stop):
                self.ended_by = "stop"
        except OSError as error:
            self._abandon()
            raise ActionFailedError(f"the log cannot be written: {error}") from error
        except BaseException:
            self._abandon()
            raise
        finally:
            self._gone.set()
            self._answer.cancel()
            for stream in ("stdout", "stderr"):
                self.output.feed(stream, b"")
            reason = {"stop": ", stopped", "timeout": ", its time was over"}.get(self.ended_by, "")
            code = "unknown" if self.exit_code is None else self.exit_code
            self.output.close(f"exit code {code} after {self.duration_s:.1f} s{reason}")

    @property
    def duration_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return (self._ended or time.monotonic()) - self._started

    def end(self, by: Literal["stop", "timeout"], grace_s: float | None = None) -> None:
        """End it with all of its children; return when they are gone."""
        with self._end_lock:
            if not self._gone.is_set():
                self.ended_by = by
                grace_s = self._grace_s if grace_s is None else grace_s
                self._ended_in_vain = None if self._tree.end(grace_s) else grace_s

    def wait(self, limit_s: float | None = None) -> bool:
        """Wait until it is no longer followed; return True if so."""
        return self._gone.wait(limit_s)

    def _follow(self, deadline: float | None) -> None:
        heard, pause_s = time.monotonic(), 0.005
        while True:
            if self._answer.ended:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                time.sleep(pause_s)
            elif (piece := self._answer.take()) is not None:
                self.output.feed(*piece)
                heard = time.monotonic()
            if self.ended_by == "itself" and self.exit_code is None:
                if self._stop.is_set() and not self._uninterruptible:
                    self.end("stop")
                elif deadline is not None and time.monotonic() >= deadline:
                    self.end("timeout")
            if self._answer.ended or time.monotonic() - heard > _SILENCE_S:
                if self._is_over():
                    return
                heard = time.monotonic()

    def _is_over(self) -> bool:
        """Return True if it has ended and no more output is expected."""
        state = self._inspect()
        if state["Running"]:
            if self.ended_by != "itself" and self._ended_in_vain is not None:
                self.end(self.ended_by, self._ended_in_vain)
            return False
        if state["ExitCode"] is None:
            return False
        seen_before, self.exit_code = self.exit_code is not None, int(state["ExitCode"])
        if not self._answer.ended and not seen_before:  # its last output may still be on its way
            return False
        self._refuse_unstarted(state)
        if not self._answer.ended:
            self.output.note("its output is still held by a process in the background")
        return True

    def _abandon(self) -> None:
        """End a command that is no longer followed, if the engine still allows it."""
        if self.exit_code is None:
            with suppress(ContainerError):
                self.end("stop")

    def _refuse_unstarted(self, state: Mapping[str, Any]) -> None:
        """Raise the error for a command that could not be started: the engine's reason is in its output."""
        if self.exit_code in _NOT_STARTED and not state.get("Pid"):
            said = self.output.text("stdout") + self.output.text("stderr")
            raise engine_error("the command cannot be run in the container", said)

    def _inspect(self) -> Mapping[str, Any]:
        with engine_errors("the engine does not tell about the command"):
            return dict(self._client.exec_inspect(self._identifier))
