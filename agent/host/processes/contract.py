"""What running a command means: what is asked for, and what one gets back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.core.secrets import Secrets


@dataclass(frozen=True)
class ProcessResult:
    """How a process ended.

    Args:
        command: what was run, secrets masked.
        exit_code: its exit code; negative for the number of the signal that ended it (128 and the
            number where a shell stands between).
        stdout: the last part of its standard output (bounded; the log has all of it).
        stderr: likewise for standard error.
        duration_s: wall-clock seconds.
        timed_out: whether it was killed because its time was over.
        log: where all of its output is.
        adopted: whether it ended before this agent was started, and was not run again.
    """

    command: str
    exit_code: int
    stdout: str
    stderr: str
    duration_s: float
    timed_out: bool
    log: Path
    adopted: bool = False


class RunningProcess(Protocol):
    """A process in the background, such as a server."""

    @property
    def pid(self) -> int:
        """Its number."""

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""

    def tail(self, lines: int = 20) -> tuple[str, ...]:
        """The last lines of its output."""

    def stop(self, grace_s: float = 5.0) -> int:
        """End it and all its children: SIGTERM, then SIGKILL after ``grace_s`` seconds."""


class ProcessRunner(Protocol):
    """Runs commands for steps and monitors.

    Attributes:
        run_id: the run's id.
        step: the key of the step that the commands belong to; empty for none.
        secrets: what is masked in logs, results and messages.
    """

    run_id: str
    step: str
    secrets: Secrets

    def run(
        self,
        command: Sequence[str] | str,
        *,
        log: Path,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        check: bool = True,
        on_line: Callable[[str], None] | None = None,
        marker: Path | None = None,
        uninterruptible: bool = False,
        copies: Mapping[str, Path] | None = None,
    ) -> ProcessResult:
        """Run to the end; a list is run as it is, a string by the shell.

        Args:
            command: the program and its arguments, or a line for the shell.
            log: gets the command, its output and its exit code, secrets masked; appended to.
            timeout_s: seconds after which the process tree is ended.
            env: variables added to the agent's own.
            cwd: the folder to run in.
            check: whether a failure is an error.
            on_line: called with each line of either stream, masked, from another thread.
            marker: where the command's own shell notes how it ended. If the agent is killed, the same
                call returns what the marker says and runs nothing; the caller removes the marker when
                the result is safe elsewhere, or is to be thrown away.
            uninterruptible: whether a run that is told to stop waits for the command's end (or that of its
                time, so give one): a package manager that is killed leaves a host that has to be repaired.
            copies: for ``stdout`` and ``stderr`` a file that gets the whole of this stream, secrets masked.

        Raises:
            ActionFailedError: if ``check`` and the exit code is not 0, or its time is over; with the
                last lines of its output.
            InterruptedRunError: if the run was told to stop; the process tree is gone by then, ended or,
                if uninterruptible, come to its end.
        """

    def start(
        self,
        command: Sequence[str] | str,
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> RunningProcess:
        """Start in the background; whatever is still running when the run ends is stopped with it."""
