"""A command that failed, as an error with its last words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.host.processes.contract import ProcessResult
    from agent.host.processes.output import OutputLog

__all__ = ["ERROR_LINES", "checked", "last_words"]

ERROR_LINES = 20
"""Lines of a command's output that its error has."""

_STDERR_LINES = 5


def checked(result: ProcessResult, lines: Sequence[str]) -> ProcessResult:
    """The same result.

    Args:
        result: how a command ended.
        lines: its last words.

    Raises:
        ActionFailedError: if it failed, or its time was over.
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
    """The last lines of a command, those of its standard error in any case.

    The two streams come through two pipes: of what was written at the same time, either may arrive first.
    """
    lines = output.lines(ERROR_LINES)
    missing = [line for line in stderr.splitlines()[-_STDERR_LINES:] if line not in lines]
    return (*lines[len(missing) :], *missing)
