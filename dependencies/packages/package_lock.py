"""Waits for the lock of the package manager, and runs the manager when it is free."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError, DependencyFailedError, InterruptedRunError
from agent.facts.packages import PACKAGE_LOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.component.component import StepContext
    from agent.host.processes import ProcessResult

LONGEST_S = 2 * 3600
"""Seconds allowed for the largest packages, such as the CUDA toolkit over a slow line."""


def wait_for_lock(context: StepContext, limit_s: float, poll_s: float = 0.5) -> None:
    """Wait until no other process holds a lock of the package manager.

    Raises:
        DependencyFailedError: if it is still held after ``limit_s`` seconds; with the holder's name.
        InterruptedRunError: if the run is interrupted.
    """
    began = time.monotonic()
    while holder := context.facts.fresh()[PACKAGE_LOCK]:
        waited_s = time.monotonic() - began
        who = f"{holder.name} (process {holder.pid})"
        if waited_s >= limit_s:
            raise DependencyFailedError(
                f"{who} has held {holder.path} for more than {limit_s:.0f} s",
                remedy=f"wait until {holder.name} has ended, or end it; never delete the lock",
            )
        context.progress.update(f"waiting for {who}, which holds {holder.path}")
        if context.stop.wait(poll_s):
            raise InterruptedRunError(f"told to stop while {who} held {holder.path}")


def run_when_free(
    context: StepContext,
    command: Sequence[str],
    *,
    lock_timeout_s: float,
    busy: str,
    remedies: Sequence[tuple[str, str]],
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    poll_s: float = 1.0,
) -> ProcessResult:
    """Run a package manager when its lock is free; retry until the time limit if another process is faster.

    It runs to its end even if the run is interrupted meanwhile: if killed, it would leave packages half
    installed.

    Args:
        context: the context of the step.
        command: the command; it must end, not wait, if the lock is held.
        lock_timeout_s: seconds to wait for the lock in total.
        busy: a pattern that matches its output if the lock was held.
        remedies: patterns of its output, with their remedies.
        env: variables added to the agent's own.
        on_line: called with each line of its output.
        poll_s: seconds between two tries.

    Raises:
        DependencyFailedError: if it fails; with the end of its output and a remedy.
        InterruptedRunError: if the run is interrupted.
    """
    deadline = time.monotonic() + lock_timeout_s
    while True:
        wait_for_lock(context, max(0.0, deadline - time.monotonic()))
        try:
            return context.processes.run(
                command,
                log=context.log,
                env=env,
                on_line=on_line,
                timeout_s=lock_timeout_s + LONGEST_S,
                uninterruptible=True,
            )
        except ActionFailedError as error:
            output = "\n".join(error.details)
            if re.search(busy, output) and time.monotonic() < deadline:
                context.progress.update("waiting: another process was faster to take the package lock")
                if context.stop.wait(poll_s):
                    raise InterruptedRunError("told to stop while the package lock was held") from error
                continue
            remedy = remedy_among(remedies, output) or f"all of its output is in {context.log}"
            raise DependencyFailedError(error.message, remedy=remedy, details=error.details) from error


def remedy_among(remedies: Sequence[tuple[str, str]], output: str) -> str | None:
    """Return the remedy of the first pattern that matches an output, with its groups filled in."""
    for pattern, remedy in remedies:
        if match := re.search(pattern, output):
            return remedy.format(*(group or "it" for group in match.groups()))
    return None
