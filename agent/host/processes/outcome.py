"""Turns a failed command into an error with its last output."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Literal, Protocol

from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.host.processes.contract import ProcessResult

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from pathlib import Path

    from agent.host.processes.output import OutputLog

ERROR_LINES = 20
"""Number of output lines in the error of a command."""

_STDERR_LINES = 5

_ENDED_BY_SIGNAL = frozenset(
    code for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) for code in (-number, 128 + number)
)
_SAME_SIGNAL_S = 2.0
"""Seconds after a command's end in which the signal that ended it may still reach the agent."""


class Ended(Protocol):
    """A finished command, on the host or in a container."""

    output: OutputLog
    ended_by: Literal["itself", "stop", "timeout"]

    @property
    def duration_s(self) -> float:
        """Return its duration in seconds."""


def refuse_when_stopped(stop: threading.Event, shown: str) -> None:
    """Refuse to start a command of a run that was stopped.

    Raises:
        InterruptedRunError: if the run was stopped.
    """
    if stop.is_set():
        raise InterruptedRunError(f"the run was stopped before `{shown}`")


def ended_with_run(ended: Ended, exit_code: int, stop: threading.Event) -> bool:
    """Return True if a command that nobody stopped was ended by a signal that ends the run too.

    systemd and Slurm send a signal to all processes of a unit or a job, one after the other, and the agent
    may be the last of them. If the agent gets no signal, this takes two seconds.

    Args:
        ended: the command.
        exit_code: its exit code; negative, or 128 plus the number, for a signal.
        stop: set when the run is to end.
    """
    return ended.ended_by == "itself" and exit_code in _ENDED_BY_SIGNAL and stop.wait(_SAME_SIGNAL_S)


def result_of(
    ended: Ended, exit_code: int, *, shown: str, log: Path, stop: threading.Event, uninterruptible: bool
) -> ProcessResult:
    """Return the result of a command.

    Args:
        ended: the command.
        exit_code: its exit code.
        shown: its command line, secrets masked.
        log: the file with its output.
        stop: set if the run is stopped.
        uninterruptible: True if the run waited for the command's end.

    Raises:
        InterruptedRunError: if the run was stopped.
    """
    if ended.ended_by == "stop":
        raise InterruptedRunError(f"`{shown}` was stopped", details=ended.output.lines(ERROR_LINES))
    if uninterruptible and stop.is_set():
        raise InterruptedRunError(
            f"the run was stopped; `{shown}` ended first, with exit code {exit_code}",
            details=ended.output.lines(ERROR_LINES),
        )
    return ProcessResult(
        command=shown,
        exit_code=exit_code,
        stdout=ended.output.text("stdout"),
        stderr=ended.output.text("stderr"),
        duration_s=ended.duration_s,
        timed_out=ended.ended_by == "timeout",
        log=log,
    )


def checked(result: ProcessResult, lines: Sequence[str]) -> ProcessResult:
    """Return the same result if the command succeeded.

    Args:
        result: the result of a command.
        lines: its last lines.

    Raises:
        ActionFailedError: if it failed or timed out.
    """
    if result.exit_code == 0 and not result.timed_out:
        return result
    if result.timed_out:
        what = f"did not end within {result.duration_s:.0f} s and was stopped"
    elif result.exit_code < 0:
        what = f"was ended by signal {-result.exit_code}"
    else:
        what = f"ended with exit code {result.exit_code}"
    raise ActionFailedError(
        f"`{result.command}` {what}",
        remedy=f"all of its output is in {result.log}",
        details=tuple(lines[-ERROR_LINES:]),
    )


def last_words(output: OutputLog, stderr: str) -> tuple[str, ...]:
    """Return the last lines of a command, including those of its standard error.

    The two streams come through two pipes: of what was written at the same time, either may arrive first.
    """
    lines = output.lines(ERROR_LINES)
    missing = [line for line in stderr.splitlines()[-_STDERR_LINES:] if line not in lines]
    return (*lines[len(missing) :], *missing)
