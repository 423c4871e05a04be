"""Running zypper: nothing asks, a held lock is waited for and its holder named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dependencies.packages.dnf import SCRIPTLET
from dependencies.packages.package_lock import run_when_free

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component.component import StepContext
    from agent.host.processes import ProcessResult

# "no" to whatever cannot be decided without a person, such as an unknown key (zypper(8)).
_ZYPPER = ("zypper", "--non-interactive", "--no-color")
_BUSY = r"System management is locked by the application"

REMEDIES = (
    (
        r"SSL certificate problem|certificate verify failed|Peer certificate cannot be authenticated",
        (
            "something on the way inspects TLS: add its authority "
            "(/etc/pki/trust/anchors, update-ca-certificates)"
        ),
    ),
    (
        r"No provider of '(\S+)' found|'(\S+)' not found in package names",
        "no repository of this host has it; correct its name, or add its repository or module (SUSEConnect)",
    ),
    (
        r"file (\S+) conflicts between attempted installs of (\S+) and (\S+)",
        "{1} and {2} come from repositories that do not go together: disable one of them",
    ),
    (
        r"file (\S+) (?:from install of (\S+) )?conflicts with file from package (\S+)",
        "{2} owns {0}: it is of another distributor or release; remove it, then run again",
    ),
    (
        r"Could not resolve host|Download \(curl\) error|Connection (?:timed out|refused)|Timeout exceeded",
        "see whether this host reaches its package mirror: DNS, route, proxy in /etc/sysconfig/proxy",
    ),
    (
        r"[Nn]o space left on device|Not enough (?:free )?space",
        "free some space: zypper clean, old kernels, old logs",
    ),
    (
        r"Signature verification failed|unknown key|GPG key",
        "renew the key of that repository, or remove the repository",
    ),
    (
        r"with vendor change|vendor change",
        "another vendor's package is there: zypper install --allow-vendor-change, or --from the repository",
    ),
    (
        r"conflicts with '(kernel-firmware-nvidia-gsp\S*?)(?:\.x86_64|\.aarch64)? ",
        "{0} must change with the driver: name both in one call of zypper install",
    ),
    (
        r"[Rr]ead-only file system",
        "a file system became read-only: see dmesg; on a transactional system use transactional-update pkg",
    ),
    (
        r"Valid metadata not found|repodata/repomd\.xml' not found|[Rr]efresh of '\S+' failed",
        "a repository has nothing for this release: correct it or remove it (zypper repos --uri)",
    ),
    (
        r"[Pp]roblem: |conflicts with",
        "two packages exclude each other: see the lines above, and remove the one that is not needed",
    ),
    (_BUSY, "wait for the process that holds the lock; never delete the lock"),
    SCRIPTLET,
    (
        r"Installation of (\S+) failed",
        "the package {0} could not be installed: see its lines above, end the cause, then run again",
    ),
    (r"No repositories defined|not registered", "register this host, so that it has repositories"),
)


def zypper_install(packages: Sequence[tuple[str, str | None]], *, recommends: bool = False) -> list[str]:
    """Return the command that installs packages; it fails if another would have to be removed.

    Args:
        packages: names and versions, exact ones; they may lie below those that are there.
        recommends: whether recommended packages come along.
    """
    names = [name if version is None else f"{name}={version}" for name, version in packages]
    options = [
        "--recommends" if recommends else "--no-recommends",
        "--auto-agree-with-licenses",
        "--no-force-resolution",
    ]
    if any(version for _, version in packages):
        options.append("--oldpackage")
    return [*_ZYPPER, "install", *options, "--", *names]


def zypper_progress(line: str) -> tuple[str, float, float] | None:
    """Message, how much is done and of how much: ``(3/7) Installing: git-2.43.0-1.x86_64 [...done]``."""
    match = re.match(r"\s*\(\s*(\d+)/(\d+)\)\s+(.*?)\s*(?:\[.*)?$", line)
    return (match.group(3), float(match.group(1)), float(match.group(2))) if match else None


def run_zypper(context: StepContext, command: Sequence[str], lock_timeout_s: float) -> ProcessResult:
    """Run zypper when its lock is free.

    Raises:
        DependencyFailedError: if it fails; with the end of its output and a remedy.
    """

    def show(line: str) -> None:
        if told := zypper_progress(line):
            context.progress.update(told[0], done=told[1], total=told[2])

    return run_when_free(
        context,
        command,
        lock_timeout_s=lock_timeout_s,
        busy=_BUSY,
        remedies=REMEDIES,
        # Somebody may take the lock between the look and the call (zypp.conf(5), lock_timeout).
        env={"ZYPP_LOCK_TIMEOUT": f"{lock_timeout_s:.0f}", "ZYPPER_NONINTERACTIVE": "1"},
        on_line=show,
    )
