"""Packages of a driver that stay at their version: apt's holds, dnf's locks, and their removal.

unattended-upgrades reads a file of exclusions. It is also the record of what vcagent held: other holds are
somebody else's.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.component.component import Plan, Step, StepContext, StepOutcome
from agent.core.errors import HostError
from agent.facts.files import text_of
from agent.facts.package_versions import HELD_PACKAGES
from agent.facts.packages import DNF_5
from agent.facts.system_paths import SYSTEM_ROOT
from dependencies.packages.apt import run_apt
from dependencies.packages.dnf import dnf_install, run_dnf
from dependencies.packages.system_file import write_system_file
from dependencies.packages.version_lock import NVIDIA_LOCKS, VersionLock
from dependencies.packages.version_lock_toml import has_entries, is_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.facts import Facts

_MARK = "Written by vcagent"
VERSION_LOCK = "dnf-command(versionlock)"
"""The capability that every distribution's package of that plugin provides."""


def exclusion_text(names: Iterable[str]) -> str:
    """Return settings for unattended-upgrades: regular expressions that match from a name's start."""
    lines = "".join(f'    "^{name}$";\n' for name in sorted(names))
    return (
        "// Written by vcagent: a driver works only in one version, and an upgrade would break a run.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"
    )


def excluded_names(text: str | None) -> set[str]:
    """Return the packages in such a file: those that vcagent held."""
    return set(re.findall(r'"\^(\S+)\$";', text or ""))


def version_lock_file(facts: Facts) -> Path:
    """Return the file where the host's dnf keeps its locks."""
    name = "versionlock.toml" if facts[DNF_5] else "plugins/versionlock.list"
    return facts[SYSTEM_ROOT] / "etc/dnf" / name


def version_lock_steps(facts: Facts, lock_timeout_s: float) -> list[Step]:
    """Return the step that installs dnf's versionlock; empty if dnf has it, as dnf 5 always does.

    Raises:
        HostError: if somebody disabled it.
    """
    path = version_lock_file(facts)
    if facts[DNF_5]:
        text = facts[text_of(path)]
        if has_entries(text) and not is_read(text):
            raise HostError(
                f'dnf ignores the locks in {path}, which has no version = "1.0", and an upgrade could change '
                "the driver",
                remedy='write version = "1.0" above its first entry, or remove the file; or Hold=false',
            )
        return []
    conf = path.with_suffix(".conf")
    settings = facts[text_of(conf)]
    if re.search(r"^\s*enabled\s*=\s*(?:0|no|false|off)\b", settings or "", re.MULTILINE | re.IGNORECASE):
        raise HostError(
            f"dnf's versionlock is switched off in {conf}, and an upgrade could change the driver",
            remedy="set enabled = 1 there, or Hold=false",
        )
    if settings is not None:
        return []
    command = dnf_install("dnf", [(VERSION_LOCK, None)])

    def add(context: StepContext) -> StepOutcome:
        run_dnf(context, command, lock_timeout_s)
        return StepOutcome("dnf heeds versionlock.list")

    reason = "dnf has no versionlock, and an upgrade could change the driver under a run"
    return [Step("versionlock", reason, add, shlex.join(command), lambda now: now[text_of(conf)] is not None)]


def unhold_plan(names: Iterable[str], facts: Facts, lock_timeout_s: float) -> Plan:
    """Release packages that are still held.

    Args:
        names: the packages that were held.
        facts: the host.
        lock_timeout_s: seconds to wait for another package manager.
    """
    there = facts[HELD_PACKAGES]
    held = sorted(there & set(names))
    if not held:
        return Plan(nothing_to_do="none of the driver's packages is held any more")
    command = ["apt-mark", "unhold", *held]

    def run(context: StepContext) -> None:
        run_apt(context, command, lock_timeout_s)

    def holds(after: Facts) -> bool:
        still = after[HELD_PACKAGES]
        return not still & set(held)

    return Plan((Step("unhold", f"held: {', '.join(held)}", run, shlex.join(command), holds),))


def unlock_plan(values: Mapping[str, Any], facts: Facts) -> Plan:
    """Remove one driver's part from dnf's locks.

    Args:
        values: the step's ``undo``: ``versionlock``, the path; ``begin``, the first line of the part.
        facts: the host.
    """
    path, begin = Path(values["versionlock"]), values.get("begin", NVIDIA_LOCKS)
    text, lock = facts[text_of(path)] or "", VersionLock(path)
    if lock.with_locks(text, {}, begin) == text:
        return Plan(nothing_to_do=f"{path} holds nothing of vcagent's any more")

    def run(context: StepContext) -> None:
        now = context.facts.fresh()[text_of(path)]
        write_system_file(path, lock.with_locks(now, {}, begin).encode())

    return Plan(
        (Step("unlock", f"{path} keeps the driver at its version", run, f"take our lines out of {path}"),)
    )


def file_plan(values: Mapping[str, Any], facts: Facts) -> Plan:
    """Remove a file that vcagent wrote, if it is still vcagent's.

    Args:
        values: the step's ``undo``: ``file``, the path; ``initramfs``, a command to run afterwards.
        facts: the host.
    """
    path = Path(values["file"])
    if _MARK not in (facts[text_of(path)] or ""):
        return Plan(nothing_to_do=f"{path} is gone, or somebody else's")
    initramfs = list(values.get("initramfs") or ())

    def run(context: StepContext) -> None:
        path.unlink()
        if initramfs:
            context.processes.run(initramfs, log=context.log)

    shown = f"rm {shlex.quote(str(path))}" + (f"; {shlex.join(initramfs)}" if initramfs else "")
    return Plan((Step("remove-file", f"{path} was written", run, shown),))
