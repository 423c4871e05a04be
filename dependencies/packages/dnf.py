"""Runs dnf, yum and tdnf: without questions; waits for a held lock and names its holder."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from agent.core.errors import DependencyFailedError
from agent.facts.bundle import bundle_of
from dependencies.packages.package_lock import remedy_among, run_when_free, wait_for_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component.component import StepContext
    from agent.facts import Facts
    from agent.host.processes import ProcessResult

# dnf would wait forever (dnf.conf(5), exit_on_lock); here the wait is limited and the holder is named.
_OPTIONS = {
    "dnf": ("--assumeyes", "--setopt=exit_on_lock=True"),
    "yum": ("--assumeyes", "--setopt=exit_on_lock=1"),
    "tdnf": ("--assumeyes",),
}
_BUSY = r"already locked by \d+|another copy is running|[Ff]ailed to obtain .*lock|rpm transaction lock"

SCRIPTLET = (
    r"(?:%\w+\((?=\S+\) scriptlet failed)|scriptlet in rpm package )([^\s()]+)",
    "a script of the package {0} failed: see its lines above, end the cause, then run again",
)
"""A failed script of a package: rpm's words, and dnf's."""
REMEDIES = (
    (
        r"nothing provides dkms(?: >= (\S+))? needed",
        "dkms is in EPEL, in version {0} or newer: dnf install epel-release, dnf makecache; then run again",
    ),
    (
        r"filtered out by modular filtering",
        "a module stream hides it: dnf module reset nvidia-driver, or module_hotfixes=1 for its repository",
    ),
    (
        r"excluded by versionlock",
        "somebody's lock keeps that version out: see dnf versionlock list, and dnf versionlock delete",
    ),
    (
        (
            r"filtered out by exclude filtering|matches only excluded packages|"
            r"filtering kernel .* no precompiled|Skipping kernel installation"
        ),
        (
            "an exclude hides it (dnf-plugin-nvidia does until a module is there for the kernel): wait for "
            "the module, take a dkms stream, or see exclude= in /etc/dnf/dnf.conf"
        ),
    ),
    (
        r"conflicts with kmod-nvidia-(?:open|latest)-dkms",
        "two kernel modules of NVIDIA's exclude each other: swap them in one call (--allowerasing)",
    ),
    (
        r"SSL certificate problem|certificate verify failed|Peer certificate cannot be authenticated",
        (
            "something between this host and the mirror inspects TLS: add its authority "
            "(/etc/pki/ca-trust/source/anchors, update-ca-trust)"
        ),
    ),
    (
        r"[Rr]ead-only file system",
        "a file system became read-only: see dmesg, mend it and mount it writable again",
    ),
    (
        r"(?:Unable to find a match:|No match for argument:|No package) (\S+)",
        "no repository of this host has {0}; correct its name or add its repository",
    ),
    (
        (
            r"GPG check FAILED|Public key for .* is not installed|"
            r"repomd\.xml GPG signature verification error|OpenPGP check for package .* failed|"
            r"GPG verification is enabled, but GPG signature"
        ),
        "renew the key of that repository, or remove the repository",
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
        r"Status code: (?:404|403) for (\S+)",
        (
            "the server does not have {0}: correct or remove that repository in /etc/yum.repos.d; for a "
            "package, dnf clean metadata and run again"
        ),
    ),
    (
        r"checksum doesn't match|[Cc]hecksum mismatch",
        (
            "that repository is being changed, or a proxy has old files of it: dnf clean metadata, and run "
            "again in some minutes"
        ),
    ),
    (
        r"Could not resolve host|Failed to download metadata|Cannot download|Connection timed out|Curl error",
        "see whether this host reaches its package mirror: DNS, route, proxy= in /etc/dnf/dnf.conf",
    ),
    (
        r"[Nn]o space left on device|needs? (?:at least )?\d+\S* more space|Disk Requirements",
        "free some space: dnf clean all, old kernels, old logs",
    ),
    (
        r"conflicting requests|conflicts with|nothing provides",
        "two packages exclude each other: see the lines above, and remove the one that is not needed",
    ),
    (
        _BUSY,
        "wait for the process that holds the lock; never delete the lock",
    ),
    SCRIPTLET,
    (r"not registered|subscription-manager", "register this host, so that it has repositories"),
    (r"superuser privileges", "run vcagent as root: dnf resolves and fetches packages for no other user"),
)


def dnf_install(
    program: str, packages: Sequence[tuple[str, str | None]], *, recommends: bool = False
) -> list[str]:
    """Return the command that installs packages.

    Args:
        program: ``dnf``, ``yum`` or ``tdnf``.
        packages: names and versions; a version may end with ``*``, and with dnf it may be older than the
            installed one.
        recommends: whether to install weak dependencies.
    """
    weak = [f"--setopt=install_weak_deps={recommends}"] if program == "dnf" else []
    names = [name if version is None else f"{name}-{version}" for name, version in packages]
    return [program, *_OPTIONS[program], *weak, "install", *names]


def dnf_progress(line: str) -> tuple[str, float, float] | None:
    """Return message, done and total of a line: ``  Installing : git-2.43.5-1.el9.x86_64   3/7``.

    dnf 5 writes ``[3/7] Installing git-0:2.43.5-1.el9.x86_64 100% | 8.6 KiB/s | …``.
    """
    if match := re.match(r"\[\s*(\d+)/(\d+)\] +(?!Total )(\S.*?) +\d+% \|", line):
        return match.group(3), float(match.group(1)), float(match.group(2))
    match = re.match(
        r"\s*((?:Install|Upgrad|Verify|Clean|Download|Downgrad)\w*\s*:? .*?)\s+(\d+)/(\d+)\s*$", line
    )
    return (" ".join(match.group(1).split()), float(match.group(2)), float(match.group(3))) if match else None


def from_bundle(facts: Facts, command: Sequence[str]) -> list[str]:
    """Return a command of dnf; with a bundle, it knows the packages of the bundle and no others."""
    bundle = bundle_of(facts)
    return [command[0], *(bundle.dnf_options if bundle else ()), *command[1:]]


def run_dnf(context: StepContext, command: Sequence[str], lock_timeout_s: float) -> ProcessResult:
    """Run dnf, yum or tdnf when its lock is free.

    Raises:
        DependencyFailedError: if it fails; with the end of its output and a remedy.
    """

    def show(line: str) -> None:
        if told := dnf_progress(line):
            context.progress.update(told[0], done=told[1], total=told[2])

    return run_when_free(
        context,
        from_bundle(context.facts, command),
        lock_timeout_s=lock_timeout_s,
        busy=_BUSY,
        remedies=REMEDIES,
        on_line=show,
    )


def simulate_dnf(context: StepContext, command: Sequence[str], lock_timeout_s: float) -> str:
    """Return what a dnf command would do: its table, in English; nothing is changed.

    Raises:
        DependencyFailedError: if it could not be done; with a remedy.
    """
    deadline = time.monotonic() + lock_timeout_s
    asked = ["--assumeno" if word == "--assumeyes" else word for word in from_bundle(context.facts, command)]
    while True:
        wait_for_lock(context, max(0.0, deadline - time.monotonic()))
        result = context.processes.run(asked, log=context.log, check=False, env={"LC_ALL": "C"})
        if "Transaction Summary" in result.stdout or "Nothing to do" in result.stdout:
            return result.stdout
        output = f"{result.stdout}\n{result.stderr}"
        if not re.search(_BUSY, output) or time.monotonic() > deadline:
            raise DependencyFailedError(
                "dnf finds no way to do it",
                remedy=remedy_among(REMEDIES, output) or f"all of its output is in {context.log}",
                details=tuple(line for line in output.splitlines() if line.strip())[-20:],
            )
