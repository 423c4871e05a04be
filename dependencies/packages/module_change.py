"""The conditions for changing a driver's kernel module: idle GPUs, and a build for the running kernel."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.errors import ActionFailedError, DependencyFailedError, HostError
from dependencies.packages.module_build import build_failure, shown_builds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.facts import Facts
    from agent.facts.gpu_processes import GpuProcess

_BUILD_S = 3600
"""Seconds allowed for building a module on a small host."""


def require_no_workload(processes: tuple[GpuProcess, ...]) -> None:
    """Check that no program uses the GPUs.

    Raises:
        HostError: if something does.
    """
    running = [process for process in processes if process.is_workload]
    if running:
        raise HostError(
            f"the driver must change, and something runs on the GPUs: {', '.join(map(str, running))}",
            remedy="end it, or wait until it has ended",
        )


def enrolment(*, rpm: bool) -> str:
    """Return the command that enrols dkms's signing key (dkms(8), update-secureboot-policy(8))."""
    return "mokutil --import /var/lib/dkms/mok.pub" if rpm else "update-secureboot-policy --enroll-key"


def require_built(facts: Facts, there: str | None, version: str) -> None:
    """Check that the module was built: rpm succeeds even if dkms failed.

    Args:
        facts: the host, after the installation.
        there: the version of the module for the running kernel; None if unknown.
        version: the version that was installed.

    Raises:
        DependencyFailedError: if the build failed; with its first error.
    """
    if there != version and (failure := build_failure(facts)):
        message, remedy, details = failure
        raise DependencyFailedError(message, remedy=remedy, details=details)


def build_step(
    kernel: str,
    reason: str,
    holds: Callable[[Facts], bool],
    headers: Sequence[str],
    run_manager: Callable[[StepContext, Sequence[str]], object],
) -> Step:
    """Return the step in which dkms builds its modules for a newly booted kernel: modprobe would find none.

    Args:
        kernel: the kernel's release, as in ``uname -r``.
        reason: the reason for the step.
        holds: whether the module is there.
        headers: the command that installs the kernel's headers; empty if they are installed.
        run_manager: runs such a command.
    """
    command = ["dkms", "autoinstall", "-k", kernel]

    def run(context: StepContext) -> StepOutcome:
        if headers:
            run_manager(context, headers)
        try:
            with shown_builds(context):
                context.processes.run(command, log=context.log, uninterruptible=True, timeout_s=_BUILD_S)
        except ActionFailedError as error:
            if failure := build_failure(context.facts.fresh()):
                message, remedy, details = failure
                raise DependencyFailedError(message, remedy=remedy, details=details) from error
            raise
        return StepOutcome(f"built for {kernel}")

    shown = "; ".join(shlex.join(part) for part in (headers, command) if part)
    return Step("build", reason, run, shown, holds)
