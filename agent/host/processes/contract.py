"""The interface for running commands: request and result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.core.secrets import Secrets


@dataclass(frozen=True)
class ProcessResult:
    """Result of a process.

    Args:
        command: the command, secrets masked.
        exit_code: its exit code; negative for the number of the signal that ended it (128 plus the
            number with a shell in between).
        stdout: the last part of its standard output (bounded; the log has all of it).
        stderr: the last part of its standard error.
        duration_s: wall-clock seconds.
        timed_out: True if it was killed because of its timeout.
        log: the file with all of its output.
        adopted: True if it ended before this agent started, and did not run again.
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
        """Its process id."""

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""

    def tail(self, lines: int = 20) -> tuple[str, ...]:
        """Return the last lines of its output."""

    def stop(self, grace_s: float = 5.0) -> int:
        """End it and all its children: SIGTERM, then SIGKILL after ``grace_s`` seconds."""


class ProcessRunner(Protocol):
    """Runs commands for steps and monitors.

    Attributes:
        run_id: the run's id.
        step: the key of the step that the commands belong to; empty for none.
        secrets: secrets to mask in logs, results and messages.
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
        """Run to the end; a list runs as it is, a string in the shell.

        Args:
            command: the program and its arguments, or a line for the shell.
            log: receives the command, its output and its exit code, secrets masked; appended to.
            timeout_s: seconds after which the process tree is ended.
            env: variables added to the agent's own.
            cwd: the folder to run in.
            check: True to raise an error on failure.
            on_line: called with each line of either stream, masked, from another thread.
            marker: file in which the command's own shell records its end. If the agent is killed, the same
                call returns the marker's content and runs nothing; the caller removes the marker when
                the result is stored elsewhere, or not needed.
            uninterruptible: True if a stopped run waits for the command's end (or its
                timeout, so set one): a killed package manager leaves a host that must be repaired.
            copies: for ``stdout`` and ``stderr`` a file that receives the whole stream, secrets masked.

        Raises:
            ActionFailedError: if ``check`` and the exit code is not 0, or on a timeout; with the
                last lines of its output.
            InterruptedRunError: if the run was stopped; the process tree has ended by then, or,
                if uninterruptible, has finished.
        """

    def start(
        self,
        command: Sequence[str] | str,
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> RunningProcess:
        """Start in the background; commands that still run at the end of the run are stopped."""
