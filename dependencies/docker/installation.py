"""Installs Docker: an engine that answers, starts at boot, and can be used by the named users."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.core.errors import HostError, LiftedBy, refusals_lifted_by
from agent.facts.boot import SYSTEMD
from agent.facts.docker import (
    DAEMON_CONFIG,
    DOCKER_ENGINE,
    DOCKER_GROUP,
    DOCKER_PROBLEM,
    DOCKER_SERVER,
    DockerEngine,
    upstream_version,
)
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION
from agent.facts.packages import INSTALLED_PACKAGES
from agent.facts.services import service
from agent.facts.storage import MOUNTS, free_bytes
from agent.facts.users import ROOT
from dependencies.docker.cli import docker_remedy
from dependencies.docker.daemon import require_readable
from dependencies.docker.proxy import checked_proxy, proxy_steps
from dependencies.docker.service import refuse_to_stop_containers, start_command, start_engine
from dependencies.docker.sources import DOWNLOADS, DockerSource, docker_source, pinned
from dependencies.docker.undo import undo_plan
from dependencies.packages.apt_repository import AptRepositoryWish
from dependencies.packages.bundled_packages import package_downloads
from dependencies.packages.package_managers import PackageWish, installation_steps, manager_of, require_root
from dependencies.packages.signing_key import SigningKey
from dependencies.system.groups import checked_names, group_steps, user_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts

_MIB = 1024 * 1024

_REFUSED = {
    "snap": (
        "Docker is a snap here: confined, it finds neither NVIDIA's runtime nor folders outside of home",
        "snap remove docker (its images and containers go with it), then run this again",
    ),
    "podman": (
        "docker is podman under another name here (podman-docker)",
        "remove the package podman-docker; podman itself may stay",
    ),
}


class DockerInstallationParameters(ComponentParameters):
    """VirtualClient's parameter Version (DockerInstallation.cs), and vcagent's own."""

    version: str = Field(
        "", description="Such as 27.3.1 or 27.3; by default any; the newest if none is installed."
    )
    packages: Literal["auto", "docker-ce", "distro"] = Field(
        "auto", description="Docker's own packages, the distribution's, or auto: Docker's own if available."
    )
    usernames: tuple[str, ...] = Field(
        (), description="Users to add to the group docker; it makes them root."
    )
    username: str = Field("", description="Another user for the group docker.")
    repository_uri: str = Field(DOWNLOADS, description="The address of Docker's repositories.")
    key_uri: str = Field("", description="Their key; by default gpg in the distribution's repository.")
    key_fingerprint: str = Field(
        "", description="The key's fingerprint; by default Docker's, if KeyUri is not given."
    )
    http_proxy: str = Field("", description="The engine's proxy for http; empty keeps its settings.")
    https_proxy: str = Field("", description="The engine's proxy for https, and so for most registries.")
    no_proxy: str = Field("", description="Hosts that the engine reaches without a proxy, with commas.")
    restart_with_containers: bool = Field(
        default=False, description="Whether to change version or proxy even if that stops running containers."
    )
    required_space: int = Field(2048, ge=0, description="Free space that an installation needs, in MiB.")
    lock_timeout: float = Field(600, ge=0, description="Seconds to wait for another package manager.")

    @field_validator("version")
    @classmethod
    def _is_version(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+:~_*-]*", value):
            raise ValueError("write a version, such as 27.3.1")
        return value

    @field_validator("http_proxy", "https_proxy")
    @classmethod
    def _is_proxy(cls, value: str) -> str:
        return checked_proxy(value)

    _names = field_validator("usernames", mode="before")(user_names)
    _are_names = field_validator("usernames", "username")(checked_names)

    @property
    def members(self) -> tuple[str, ...]:
        """The users who are to be in the group."""
        return tuple(dict.fromkeys(name for name in (*self.usernames, self.username) if name))


class DockerInstallation(Dependency):
    """Installs an engine that answers; an existing one is accepted, whoever packaged it."""

    changes_host = True
    lifts = frozenset({LiftedBy.DOCKER, LiftedBy.PROGRAM})
    Parameters = DockerInstallationParameters
    parameters: DockerInstallationParameters

    def plan(self, facts: Facts) -> Plan:
        """Install missing packages, start the engine, and let the named users use it."""
        with refusals_lifted_by(LiftedBy.SYSTEM):
            return self._plan(facts)

    def _plan(self, facts: Facts) -> Plan:
        engine = facts[DOCKER_ENGINE]
        self._check_engine(facts, engine)
        require_readable(facts[DAEMON_CONFIG])
        steps = self._installation(facts, engine)
        installing = bool(steps)
        if reason := self._why_start(facts, installing=installing):
            steps.append(self._start_step(facts, reason))
        steps += self._proxy_steps(facts, installing=installing)
        steps += self._group_steps(facts)
        if steps and not facts[ROOT]:
            problem = facts[DOCKER_PROBLEM] or ""
            raise HostError(
                "root is needed to "
                + (", ".join(step.name for step in steps))
                + (f"; Docker says: {problem}" if problem else ""),
                remedy="run vcagent as root, or once: sudo vcagent --dependencies",
                lifted_by=LiftedBy.NOTHING,
            )
        if not steps:
            server = facts[DOCKER_SERVER]
            kind = engine.kind if engine else "an engine of another host"
            return Plan(nothing_to_do=f"{kind} answers with {server.version if server else '?'}")
        return Plan(tuple(steps))

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the engine's packages from their repository."""
        manager = manager_of(facts, "docker").name
        source = self._source(facts, manager, None)
        wishes = self._wishes(source, manager, None)
        return package_downloads(manager, wishes, repository=source.repository)

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Undo one step."""
        return undo_plan(values, facts)

    def _check_engine(self, facts: Facts, engine: DockerEngine | None) -> None:
        """Refuse an engine that can be neither used nor safely replaced."""
        parameters, server = self.parameters, facts[DOCKER_SERVER]
        if engine and engine.kind in _REFUSED:
            message, remedy = _REFUSED[engine.kind]
            raise HostError(message, remedy=remedy)
        if server and server.rootless:
            raise HostError(
                "the engine that answers is rootless: its containers get GPUs and limits only in part",
                remedy="let docker reach the host's engine: unset DOCKER_HOST, docker context use default",
            )
        kind = engine.kind if engine else ""
        if kind == "static" and server is None:
            raise HostError(
                "a dockerd is here that no package owns, and it does not answer",
                remedy=docker_remedy(facts[DOCKER_PROBLEM] or "", "its log")
                + "; or remove it, and it will be installed",
            )
        if kind in ("", "static") and server and parameters.version:
            version = server.version
            if version != parameters.version and not version.startswith(f"{parameters.version}."):
                raise HostError(
                    f"an engine answers that no package of this host owns, with version {version}, "
                    f"not {parameters.version}",
                    remedy="replace it yourself, or take Version out of the profile",
                )
        other = kind and kind != "static" and parameters.packages != "auto"
        if other and (kind == "docker-ce") != (parameters.packages == "docker-ce"):
            raise HostError(
                f"{kind} is installed, and Packages is {parameters.packages}",
                remedy=f"set Packages: auto to accept it, or remove {kind} first (its containers stop then)",
            )

    def _installation(self, facts: Facts, engine: DockerEngine | None) -> list[Step]:
        parameters = self.parameters
        if engine is None and facts[DOCKER_SERVER]:
            return []
        if engine and (engine.kind == "static" or (engine.whole and not parameters.version)):
            return []
        manager = manager_of(facts, "docker")
        source = self._source(facts, manager.name, engine)
        wishes = self._wishes(source, manager.name, engine)
        installed = facts[INSTALLED_PACKAGES]
        missing = [wish for wish in wishes if not wish.fulfilled(installed, manager.name)]
        if not missing:
            return []
        require_root(facts, manager, " ".join(map(str, missing)))
        if engine:
            version = upstream_version(engine.version)
            refuse_to_stop_containers(
                facts,
                f"{engine.kind} is {version}, not {parameters.version}"
                if engine.whole
                else f"the installation of {engine.kind} was cut short",
                allowed=parameters.restart_with_containers,
            )
        if source.kind == "docker-ce" and not (engine and engine.whole):
            _refuse_conflicts(facts, manager.name)
        self._check_space(facts)
        repository: list[Step] = []
        if isinstance(source.repository, AptRepositoryWish):
            repository = source.repository.steps(facts, parameters.lock_timeout)
        elif source.repository:
            release = facts[DISTRIBUTION].version.partition(".")[0]
            variables = {"releasever": release, "basearch": facts[ARCHITECTURE]}
            repository = source.repository.steps(facts, variables)
        return [
            *repository,
            *installation_steps(
                facts,
                manager,
                missing,
                lock_timeout_s=parameters.lock_timeout,
                refreshed=any(step.name == "refresh" for step in repository),
            ),
        ]

    def _source(self, facts: Facts, manager: str, engine: DockerEngine | None) -> DockerSource:
        parameters = self.parameters
        choice: str = parameters.packages
        if engine:  # another version of the installed package, from the same source
            choice = "docker-ce" if engine.kind == "docker-ce" else "distro"
        key = SigningKey.of(parameters.key_uri, parameters.key_fingerprint) if parameters.key_uri else None
        return docker_source(
            choice,
            facts[DISTRIBUTION],
            machine=facts[ARCHITECTURE],
            manager=manager,
            downloads=parameters.repository_uri,
            key=key,
        )

    def _wishes(
        self, source: DockerSource, manager: str, engine: DockerEngine | None
    ) -> tuple[PackageWish, ...]:
        version, kind = self.parameters.version, engine.kind if engine else source.kind
        # An incomplete engine is installed like a new one, unless it came from another source.
        new = (engine is None or not engine.whole) and kind == source.kind
        wishes = source.wishes if new else (PackageWish(kind),)
        if not version:
            return wishes
        exact = {wish.name: wish for wish in pinned(kind, version, manager)}
        return tuple(exact.get(wish.name, wish) for wish in wishes) if new else tuple(exact.values())

    def _check_space(self, facts: Facts) -> None:
        root = PurePath(str((facts[DAEMON_CONFIG].settings or {}).get("data-root") or "/var/lib/docker"))
        mounts = facts[MOUNTS]
        for what, path in (("the packages", PurePath("/usr")), ("images", root)):
            free = free_bytes(mounts, path)
            if free is not None and free < self.parameters.required_space * _MIB:
                raise HostError(
                    f"{path} has {free // _MIB} MiB free; {what} need {self.parameters.required_space} MiB",
                    remedy="free some space, or point data-root in /etc/docker/daemon.json to another disk",
                    lifted_by=LiftedBy.SPACE,
                )

    def _why_start(self, facts: Facts, *, installing: bool) -> str:
        if installing:
            return "the engine is started after its installation, and with the host"
        if facts[DOCKER_SERVER] is None:
            return f"the engine does not answer: {facts[DOCKER_PROBLEM] or 'it says nothing'}"
        unit = facts[service("docker")] if facts[SYSTEMD] and facts[DOCKER_ENGINE] else None
        return "the engine does not start with the host" if unit and unit.enabled is False else ""

    def _start_step(self, facts: Facts, reason: str) -> Step:
        command = start_command(facts)

        def run(context: StepContext) -> StepOutcome:
            return StepOutcome(f"the engine answers: {start_engine(context, command)}")

        def holds(fresh: Facts) -> bool:
            return fresh[DOCKER_SERVER] is not None and not self._why_start(fresh, installing=False)

        # An engine that is replaced by another version answers before and after the installation.
        return Step("start", reason, run, shlex.join(command), None if holds(facts) else holds)

    def _proxy_steps(self, facts: Facts, *, installing: bool) -> list[Step]:
        parameters = self.parameters
        proxies = {
            "http-proxy": parameters.http_proxy,
            "https-proxy": parameters.https_proxy,
            "no-proxy": parameters.no_proxy,
        }
        return proxy_steps(proxies, facts, installing=installing, allowed=parameters.restart_with_containers)

    def _group_steps(self, facts: Facts) -> list[Step]:
        return group_steps(
            facts,
            self.parameters.members,
            "docker",
            DOCKER_GROUP,
            parameter="Usernames",
            prefix="group",
            outcome="{name} may use Docker; what this run starts for {name} has the group already",
        )


def _refuse_conflicts(facts: Facts, manager: str) -> None:
    """Refuse to replace the distribution's containerd by containerd.io: other programs may use it."""
    installed = facts[INSTALLED_PACKAGES]
    names = ("containerd", "runc") if manager == "apt" else ("runc",)
    present = [name for name in names if name in installed and installed[name].installed]
    # Docker's containerd.io provides both names itself.
    present = [name for name in present if installed[name].version]
    if present:
        raise HostError(
            f"Docker's own packages would replace {' and '.join(present)} of the distribution, "
            "which Kubernetes or podman may be using",
            remedy=f"set Packages: distro, or remove {' '.join(present)} first",
        )
