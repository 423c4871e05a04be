"""Whether this host is fit to run: checks with remedies, each a function of facts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import VcagentError
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.linux import DISTRIBUTION
from agent.facts.memory import MEMORY
from agent.facts.packages import INSTALLED_PACKAGES, PACKAGE_LOCK, PACKAGE_MANAGER
from agent.facts.python import PYTHON
from agent.facts.storage import MOUNTS, free_bytes
from agent.facts.users import USER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.facts import Facts
    from agent.planning import PlannedComponent

__all__ = ["Check", "Status", "check_host", "check_plan", "writable"]

GIB = 1024**3
LEAST_FREE_BYTES = {"results": GIB, "packages": 4 * GIB, "temporary files": GIB // 2}
LEAST_MEMORY_BYTES = 2 * GIB


class Status(str, Enum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Args:
        name: what was looked at.
        status: whether it is as it should be.
        message: what was found.
        remedy: what to do about it.
    """

    name: str
    status: Status
    message: str
    remedy: str = ""


Found = tuple[Status, str, str]
Look = Callable[[], Found]


def check_host(facts: Facts, results_dir: Path, temp_dir: Path) -> list[Check]:
    """Look at what every run needs.

    Args:
        facts: the host.
        results_dir: where results will be written.
        temp_dir: where temporary files go.
    """
    folders = {"results": results_dir, "packages": facts[PACKAGE_DIR], "temporary files": temp_dir}
    looks: dict[str, Look] = {}
    for what, path in folders.items():
        looks[f"{what} folder"] = partial(_folder, path)
        looks[f"space for {what}"] = partial(_space, facts, what, path)
    looks["memory"] = partial(_memory, facts)
    looks["user"] = partial(_user, facts)
    looks["python environments"] = partial(_python, facts)
    looks["package lock"] = partial(_package_lock, facts)
    looks["packages"] = partial(_packages, facts)
    return [_guarded(name, look) for name, look in looks.items()]


def check_plan(planned: Iterable[PlannedComponent]) -> list[Check]:
    """What a profile's plan says: a refusal is a problem, with the remedy of its error."""
    checks = []
    for component in planned:
        name = f"{component.element.key} {component.element.type}"
        if component.error:
            checks.append(Check(name, Status.PROBLEM, component.error.message, component.error.remedy or ""))
            continue
        steps = component.plan.steps if component.plan else ()
        message = component.note or ", ".join(step.name for step in steps) or component.standing.value
        checks.append(Check(name, Status.OK, message))
    return checks


def writable(path: Path) -> bool:
    """Whether this user can write to a folder, or make it where it does not exist yet."""
    existing = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _guarded(name: str, look: Look) -> Check:
    try:
        return Check(name, *look())
    except VcagentError as error:
        return Check(name, Status.PROBLEM, error.message, error.remedy or "")


def _folder(path: Path) -> Found:
    if writable(path):
        return Status.OK, f"{path} can be written", ""
    return Status.PROBLEM, f"{path} cannot be written", "choose another folder, or change its owner"


def _space(facts: Facts, what: str, path: Path) -> Found:
    mounts = facts[MOUNTS]
    free, least = free_bytes(mounts, path), LEAST_FREE_BYTES[what]
    if free is None:
        return Status.WARNING, f"nobody can tell how much is free below {path}", "see df"
    message = f"{free / GIB:.1f} GiB free below {path}"
    if free < least // 16:
        return Status.PROBLEM, message, f"free some space: {least / GIB:.1f} GiB or more"
    if free < least:
        return Status.WARNING, message, f"free some space: {least / GIB:.1f} GiB or more"
    return Status.OK, message, ""


def _memory(facts: Facts) -> Found:
    memory = facts[MEMORY]
    available = memory.total_bytes if memory.available_bytes is None else memory.available_bytes
    message = f"{available / GIB:.1f} of {memory.total_bytes / GIB:.1f} GiB available"
    if available < LEAST_MEMORY_BYTES:
        return Status.WARNING, message, "end what uses the memory, or choose a smaller model"
    return Status.OK, message, ""


def _user(facts: Facts) -> Found:
    user = facts[USER]
    if user.uid == 0:
        return Status.OK, f"{user.name}{f', by sudo from {user.sudo_user}' if user.sudo_user else ''}", ""
    remedy = "run as root if the profile installs packages, drivers or Docker"
    return Status.WARNING, f"{user.name} is not root: only what needs no installation can run", remedy


def _python(facts: Facts) -> Found:
    python = facts[PYTHON]
    if python is None:
        return Status.PROBLEM, "the Python that runs the agent does not answer", "install vcagent anew"
    if python.venv and python.ensurepip:
        return Status.OK, f"Python {python.version} makes virtual environments", ""
    package = f"python{python.version.rpartition('.')[0]}-venv"
    debian = facts[DISTRIBUTION].is_like("debian")
    remedy = f"apt-get install {package}" if debian else "install the package of its pip and venv"
    return Status.PROBLEM, f"{python.path} cannot make virtual environments", remedy


def _package_lock(facts: Facts) -> Found:
    if facts[PACKAGE_MANAGER] is None:
        return Status.WARNING, "no package manager is known here", "install what the profile needs yourself"
    holder = facts[PACKAGE_LOCK]
    if holder is None:
        return Status.OK, "nobody holds it", ""
    message = f"{holder.name} (process {holder.pid}) holds {holder.path}"
    return Status.WARNING, message, "an installation will wait for it; never delete the lock"


def _packages(facts: Facts) -> Found:
    broken = sorted(
        {name.partition(":")[0] for name, package in facts[INSTALLED_PACKAGES].items() if package.broken}
    )
    if broken:
        return Status.WARNING, f"half installed: {', '.join(broken)}", "dpkg --configure -a"
    return Status.OK, "none is half installed", ""
