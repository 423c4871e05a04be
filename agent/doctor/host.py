"""Checks the requirements of every run, and obstacles for installations."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from agent.core.safe_files import distrust, remedy_for
from agent.doctor.check import Check, Found, Look, Status, look_at_all
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.docker import DOCKER_ENGINE, DOCKER_GROUP, DOCKER_PROBLEM, DOCKER_SERVER
from agent.facts.linux import DISTRIBUTION
from agent.facts.memory import MEMORY
from agent.facts.packages import INSTALLED_PACKAGES, PACKAGE_LOCK, PACKAGE_MANAGER
from agent.facts.python import PYTHON
from agent.facts.reachability import unreachable
from agent.facts.repositories import APT_REPOSITORIES, RPM_REPOSITORIES
from agent.facts.storage import MOUNTS, free_bytes
from agent.facts.unattended_upgrades import UNATTENDED_UPGRADES
from agent.facts.users import USER

if TYPE_CHECKING:
    from pathlib import Path

    from agent.facts import Facts

GIB = 1024**3
LEAST_FREE_BYTES = {"results": GIB, "packages": 4 * GIB, "temporary files": GIB // 2}
_OPTIONS = {
    "results": "--results-dir",
    "packages": "--package-dir or VCAGENT_PACKAGE_DIR",
}
LEAST_MEMORY_BYTES = 2 * GIB
_KNOWN = (
    "debian",
    "ubuntu",
    "rhel",
    "fedora",
    "centos",
    "suse",
    "opensuse",
    "sles",
    "azurelinux",
    "mariner",
    "amzn",
)
"""Distributions, or their parents, that the installers support."""
_PINNED = ("nvidia-driver-550-server", "libnvidia-compute-550-server", "nvidia-dkms-550-server")
"""Packages that an upgrade in the middle of a run would replace under the loaded module."""


def check_host(facts: Facts, results_dir: Path, temp_dir: Path) -> list[Check]:
    """Check the requirements of every run.

    Args:
        facts: the host.
        results_dir: the folder for results.
        temp_dir: the folder for temporary files.
    """
    folders = {"results": results_dir, "packages": facts[PACKAGE_DIR], "temporary files": temp_dir}
    looks: dict[str, Look] = {}
    for what, path in folders.items():
        looks[f"{what} folder"] = partial(_folder, path, _OPTIONS.get(what, ""))
        looks[f"space for {what}"] = partial(_space, facts, what, path)
    looks["memory"] = partial(_memory, facts)
    looks["user"] = partial(_user, facts)
    looks["python environments"] = partial(_python, facts)
    looks["package lock"] = partial(_package_lock, facts)
    looks["packages"] = partial(_packages, facts)
    looks["distribution"] = partial(_distribution, facts)
    looks["repositories"] = partial(_repositories, facts)
    looks["unattended upgrades"] = partial(_unattended_upgrades, facts)
    looks["Docker"] = partial(_docker, facts)
    return look_at_all(looks)


def writable(path: Path) -> bool:
    """Return True if this user can write to a folder, or create it."""
    existing = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _folder(path: Path, option: str) -> Found:
    if option and (reason := distrust(path)):
        return Status.PROBLEM, f"root does not write there: {reason}", remedy_for(path, option)
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
    message = f"{memory.available_bytes / GIB:.1f} of {memory.total_bytes / GIB:.1f} GiB available"
    if memory.available_bytes < LEAST_MEMORY_BYTES:
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
        return Status.PROBLEM, "the Python that runs the agent does not answer", "install vcagent again"
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
        return (
            Status.WARNING,
            f"half installed: {', '.join(broken)}",
            "dpkg --configure -a; apt-get --fix-broken install",
        )
    return Status.OK, "none is half installed", ""


def _distribution(facts: Facts) -> Found:
    found = facts[DISTRIBUTION]
    name = found.name or f"{found.id} {found.version}".strip()
    if any(map(found.is_like, _KNOWN)):
        return Status.OK, name, ""
    remedy = "install driver, Docker and packages yourself; what is installed is accepted"
    return Status.WARNING, f"no installer knows {name}", remedy


def _repositories(facts: Facts) -> Found:
    addresses = [repository.uri for repository in facts[APT_REPOSITORIES] if repository.enabled]
    addresses += [
        address
        for repository in facts[RPM_REPOSITORIES]
        if repository.enabled
        for address in repository.addresses
    ]
    if failed := facts[unreachable(addresses)]:
        message = "; ".join(f"{server} does not answer: {why}" for server, why in failed.items())
        remedy = (
            "see DNS, route and proxy, or take the repository away: packages cannot be installed without it"
        )
        return Status.WARNING, message, remedy
    return Status.OK, "all answer" if addresses else "there are none", ""


def _unattended_upgrades(facts: Facts) -> Found:
    upgrades = facts[UNATTENDED_UPGRADES]
    if not upgrades.enabled:
        return Status.OK, "off", ""
    if upgrades.leaves_alone(_PINNED):
        return Status.OK, "on, and they leave the driver alone", ""
    remedy = "NvidiaCudaInstallation excludes what it pins; or: systemctl stop unattended-upgrades"
    return Status.WARNING, "on: the driver may be replaced in the middle of a run", remedy


def _docker(facts: Facts) -> Found:
    engine, server, user = facts[DOCKER_ENGINE], facts[DOCKER_SERVER], facts[USER]
    if engine is None:
        return Status.OK, "not installed; DockerInstallation installs it", ""
    if server:
        return Status.OK, f"{engine.kind} {server.version}", ""
    name = user.sudo_user or user.name
    if user.uid and name not in (facts[DOCKER_GROUP] or ()):
        remedy = f"sudo usermod -aG docker {name}, then log in again"
        return Status.WARNING, f"{name} is not in the group docker", remedy
    problem = facts[DOCKER_PROBLEM] or "it does not answer"
    return Status.WARNING, f"{engine.kind}: {problem}", "systemctl status docker; journalctl -u docker"
