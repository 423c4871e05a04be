"""Docker: engine, server, configuration and users."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.facts.base import Fact, Host
from agent.facts.packages import InstalledPackage
from agent.facts.users import members_of

if TYPE_CHECKING:
    from collections.abc import Mapping

DAEMON_CONFIG_PATH = "/etc/docker/daemon.json"
"""Default path of dockerd's configuration (dockerd reference, "Daemon configuration file")."""

ENGINE_PACKAGES = ("docker-ce", "docker.io", "moby-engine", "docker-ee", "docker", "docker-stable")
"""Packages with dockerd: Docker's own, Debian's, Microsoft's and Fedora's, SUSE's and Amazon's."""

_PROGRAMS = ("docker", "dockerd")
_QUERY_PACKAGES = (
    "sh",
    "-c",
    "if command -v dpkg-query >/dev/null; then"
    " dpkg-query --show --showformat='${Package}\\t${Version}\\t${db:Status-Abbrev}\\n' "
    + " ".join(ENGINE_PACKAGES)
    + " podman-docker; elif command -v rpm >/dev/null; then"
    " rpm --query --queryformat '%{NAME}\\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\\tii\\n' "
    + " ".join(ENGINE_PACKAGES)
    + " podman-docker; fi 2>/dev/null; :",
)
_QUERY_PROGRAMS = ("sh", "-c", "command -v " + "; command -v ".join(_PROGRAMS) + "; :")


_CONTAINERD_STORE = "io.containerd.snapshotter.v1"
"""The driver-type in DriverStatus of ``docker info`` (docs.docker.com, "containerd image store")."""
_PROXIES = {"http-proxy": "HttpProxy", "https-proxy": "HttpsProxy", "no-proxy": "NoProxy"}
"""``docker info``'s keys by their names in daemon.json."""
_CONTAINERD_ROOT = "/var/lib/containerd"
"""``root`` of containerd's configuration by default; data-root of daemon.json does not move it."""


@dataclass(frozen=True)
class DockerEngine:
    """The installed engine.

    Args:
        kind: the package that dockerd is from, such as ``docker-ce`` or ``docker.io``; ``snap``; ``podman``
            if ``docker`` is podman under another name; ``static`` without a package.
        version: its package's version; empty if there is none.
        whole: True if its package is configured; False after an interrupted installation.
    """

    kind: str
    version: str = ""
    whole: bool = True


@dataclass(frozen=True)
class DockerServer:
    """The engine's own report (``docker info``).

    Args:
        version: its version.
        data_root: its folder for images and containers.
        runtimes: the programs of the runtimes that it knows now, by name: ``runc``, ``nvidia``, …
        default_runtime: the runtime that it uses by default.
        rootless: True if it runs without root.
        cgroup_driver: ``systemd`` or ``cgroupfs``.
        cdi_folders: its folders for CDI specifications; empty if it does not support CDI.
        containerd_store: True if containerd stores its images, as in new installations of Docker 29.
        proxies: its proxies by their name in daemon.json, such as ``https-proxy``, without passwords.
    """

    version: str
    data_root: str = "/var/lib/docker"
    runtimes: Mapping[str, str] = field(default_factory=dict)
    default_runtime: str = "runc"
    rootless: bool = False
    cgroup_driver: str = ""
    cdi_folders: tuple[str, ...] = ()
    containerd_store: bool = False
    proxies: Mapping[str, str] = field(default_factory=dict)

    @property
    def image_root(self) -> str:
        """The folder that images take room in."""
        return _CONTAINERD_ROOT if self.containerd_store else self.data_root

    @property
    def major(self) -> int:
        """The first number of its version; 0 if it has none."""
        match = re.match(r"\d+", self.version)
        return int(match.group()) if match else 0


@dataclass(frozen=True)
class DaemonConfig:
    """Content of ``daemon.json``.

    Args:
        text: its text; None if the file does not exist.
        settings: its settings; None if it is not a JSON object.
        problem: why it cannot be read, with line and column; empty if it can.
    """

    text: str | None = None
    settings: Mapping[str, Any] | None = None
    problem: str = ""


@dataclass(frozen=True)
class RunningContainer:
    """A running container.

    Args:
        identifier: its short identifier.
        name: its name.
        image: its image.
    """

    identifier: str
    name: str
    image: str


def docker_version(text: str | None) -> str | None:
    """Return the client's version, from ``docker --version``."""
    match = re.search(r"version (\d[^\s,]*)", text or "")
    return match.group(1) if match else None


def upstream_version(package_version: str) -> str:
    """Return the engine's own version in a package's: ``5:27.3.1-1~ubuntu.24.04~noble`` is ``27.3.1``."""
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", package_version)
    return match.group(1) if match else package_version


def docker_engine(packages: str, programs: str) -> DockerEngine | None:
    """Return the installed engine.

    Args:
        packages: names, versions and states of the packages that may contain it, one per line.
        programs: paths of ``docker`` and ``dockerd``, one per line.
    """
    installed, unfinished = {}, {}
    for line in packages.splitlines():
        name, _, rest = line.partition("\t")
        version, _, state = rest.partition("\t")
        package = InstalledPackage(version, state.strip())
        if package.installed:
            installed[name] = version
        elif package.broken:
            unfinished[name] = version
    paths = programs.split()
    daemon = any(path.endswith("/dockerd") for path in paths)
    # Debian's "docker" was once a dock for the desktop; Fedora's "docker" was podman's.
    candidates = [name for name in ENGINE_PACKAGES if name != "docker" or daemon]
    for name in candidates:
        if name in installed:
            return DockerEngine(name, installed[name])
    if any("/snap/" in path for path in paths):
        return DockerEngine("snap")
    if "podman-docker" in installed:
        return DockerEngine("podman", installed["podman-docker"])
    for name in candidates:
        if name in unfinished:
            return DockerEngine(name, unfinished[name], whole=False)
    return DockerEngine("static") if daemon else None


def docker_server(text: str | None) -> DockerServer | None:
    """Read ``docker info --format '{{json .}}'``; return None if no engine answered."""
    try:
        info = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(info, dict) or not info.get("ServerVersion"):
        return None
    return DockerServer(
        version=str(info["ServerVersion"]),
        data_root=str(info.get("DockerRootDir") or ""),
        runtimes={name: str((it or {}).get("path", "")) for name, it in (info.get("Runtimes") or {}).items()},
        default_runtime=str(info.get("DefaultRuntime") or ""),
        rootless=any("name=rootless" in option for option in info.get("SecurityOptions") or ()),
        cgroup_driver=str(info.get("CgroupDriver") or ""),
        cdi_folders=tuple(info.get("CDISpecDirs") or ()),
        containerd_store=["driver-type", _CONTAINERD_STORE] in (info.get("DriverStatus") or []),
        proxies={name: str(info[key]) for name, key in _PROXIES.items() if info.get(key)},
    )


def daemon_config(text: str | None) -> DaemonConfig:
    """Read ``daemon.json``; an empty file has no settings; a byte order mark is skipped, as in dockerd."""
    plain = (text or "").removeprefix("\ufeff")
    if not plain.strip():
        return DaemonConfig(text, {})
    try:
        settings = json.loads(plain)
    except ValueError as error:
        return DaemonConfig(text, None, str(error))
    if not isinstance(settings, dict):
        return DaemonConfig(text, None, f"it contains a {type(settings).__name__}, not an object")
    return DaemonConfig(text, settings)


def running_containers(text: str | None) -> tuple[RunningContainer, ...]:
    """Read ``docker ps``: identifier, name and image, separated by tabs."""
    rows = (line.split("\t") for line in (text or "").splitlines())
    return tuple(RunningContainer(*row) for row in rows if len(row) == 3)  # noqa: PLR2004 - see the format


def _problem(host: Host) -> str | None:
    if DOCKER_SERVER_VERSION.read(host):
        return None
    answer = (
        host.output(["sh", "-c", "docker version >/dev/null 2>&1 || docker version 2>&1; :"]) or ""
    ).strip()
    return answer.splitlines()[-1] if answer else None


DOCKER_ENGINE: Fact[DockerEngine | None] = Fact(
    "docker_engine",
    "dpkg-query or rpm, command -v docker dockerd",
    lambda host: docker_engine(host.output(_QUERY_PACKAGES) or "", host.output(_QUERY_PROGRAMS) or ""),
)
DOCKER_BUILDX: Fact[str | None] = Fact(
    "docker_buildx",
    "docker buildx version",
    lambda host: (host.output(["docker", "buildx", "version"]) or "").strip() or None,
)
DOCKER_VERSION: Fact[str | None] = Fact(
    "docker_version", "docker --version", lambda host: docker_version(host.output(["docker", "--version"]))
)
DOCKER_SERVER: Fact[DockerServer | None] = Fact(
    "docker_server",
    "docker info",
    lambda host: docker_server(host.output(["docker", "info", "--format", "{{json .}}"])),
)
DOCKER_SERVER_VERSION: Fact[str | None] = Fact(
    "docker_server_version",
    "docker version",
    lambda host: (
        (host.output(["docker", "version", "--format", "{{.Server.Version}}"]) or "").strip() or None
    ),
)
DOCKER_PROBLEM: Fact[str | None] = Fact("docker_problem", "docker version", _problem)
DOCKER_GROUP: Fact[tuple[str, ...] | None] = Fact(
    "docker_group", "getent group docker", members_of("docker").read
)
PROCESS_GROUPS: Fact[frozenset[str]] = Fact(
    "process_groups", "id -nG", lambda host: frozenset((host.output(["id", "-nG"]) or "").split())
)
DAEMON_CONFIG: Fact[DaemonConfig] = Fact(
    "daemon_config", DAEMON_CONFIG_PATH, lambda host: daemon_config(host.text(DAEMON_CONFIG_PATH))
)
RUNNING_CONTAINERS: Fact[tuple[RunningContainer, ...]] = Fact(
    "running_containers",
    "docker ps",
    lambda host: running_containers(
        host.output(["docker", "ps", "--format", "{{.ID}}\t{{.Names}}\t{{.Image}}"])
    ),
)
