"""Running apt: nothing asks, a held lock is waited for and its holder named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.errors import ActionFailedError, DependencyFailedError
from dependencies.package_lock import remedy_among, wait_for_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component import StepContext
    from agent.processes import ProcessResult

__all__ = ["APT_GET", "ENVIRONMENT", "apt_progress", "remedy_for", "run_apt"]

ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    # needrestart asks about, or restarts, services after an installation on Ubuntu.
    "NEEDRESTART_MODE": "l",
    "NEEDRESTART_SUSPEND": "1",
}

APT_GET = (
    "apt-get",
    "--yes",
    "--quiet",
    # Configuration that somebody edited stays; where dpkg would ask, the default is taken.
    "--option=Dpkg::Options::=--force-confdef",
    "--option=Dpkg::Options::=--force-confold",
    "--option=APT::Status-Fd=1",
)

_REMEDIES = (
    (
        r"Unable to locate package (\S+)",
        "no repository of this host has {0}; correct its name or add its repository",
    ),
    (
        r"Version '(\S+)' for '(\S+)' was not found",
        "see apt-cache madison {1} for the versions that there are",
    ),
    (r"has no installation candidate", "see apt-cache policy for what the repositories of this host offer"),
    (
        r"Temporary failure resolving|Could not (?:resolve|connect)|Connection timed out|is unreachable",
        "see whether this host reaches its package mirror: DNS, route, Acquire::http::Proxy",
    ),
    (
        r"[Nn]o space left on device|enough free space",
        "free some space: apt-get clean, old kernels, old logs",
    ),
    (r"is not signed|NO_PUBKEY|EXPKEYSIG", "renew the key of that repository, or remove the repository"),
    (r"held packages were changed|held broken packages|unmet dependencies", "see apt-mark showhold"),
    (r"dpkg was interrupted|dpkg --configure -a", "run dpkg --configure -a"),
    (
        r"Could not get lock|is held by process",
        "wait for the process that holds the lock; never delete the lock",
    ),
)


def remedy_for(output: str, log: object) -> str:
    """What to do about apt's output; where nothing is known of it, the log."""
    return remedy_among(_REMEDIES, output) or f"all of apt's output is in {log}"


def apt_progress(line: str) -> tuple[str, float] | None:
    """Message and percentage of a line of ``APT::Status-Fd`` (apt's README.progress-reporting)."""
    match = re.match(r"(?:dl|pm)status:[^:]*:([\d.]+):(.*)", line)
    return (match.group(2), float(match.group(1))) if match else None


def run_apt(context: StepContext, command: Sequence[str], lock_timeout_s: float) -> ProcessResult:
    """Run apt or dpkg when its lock is free.

    Raises:
        DependencyFailedError: if it fails; with the end of its output and a remedy.
    """

    def show(line: str) -> None:
        if told := apt_progress(line):
            context.progress.update(told[0], done=told[1], total=100)

    wait_for_lock(context, lock_timeout_s)
    try:
        # Somebody may take the lock between the look and the call: apt waits for that, too.
        lock = [f"--option=DPkg::Lock::Timeout={lock_timeout_s:.0f}"] if command[0] == "apt-get" else []
        return context.processes.run(
            [command[0], *lock, *command[1:]], log=context.log, env=ENVIRONMENT, on_line=show
        )
    except ActionFailedError as error:
        output = "\n".join(error.details)
        told = [line for line in error.details if not apt_progress(line)]
        raise DependencyFailedError(
            error.message, remedy=remedy_for(output, context.log), details=tuple(told)
        ) from error
