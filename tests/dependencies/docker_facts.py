"""Notation of the cases for facts about Docker, repositories and keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent.facts.container_toolkit import CdiSpec
from agent.facts.docker import DockerEngine, DockerServer, RunningContainer, daemon_config
from agent.facts.keyrings import Keyring, plain_fingerprint
from agent.facts.repositories import deb822_repositories, one_line_repositories, repo_file
from agent.facts.services import ServiceState

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.facts.repositories import AptRepository, RpmRepository

__all__ = ["DOCKER_READERS"]


def _server(value: dict[str, Any] | None) -> DockerServer | None:
    if value is None:
        return None
    runtimes = value.get("runtimes", ["runc"])
    if isinstance(runtimes, list):
        runtimes = {name: {"nvidia": "nvidia-container-runtime"}.get(name, name) for name in runtimes}
    folders = tuple(value.get("cdi_folders", ()))
    return DockerServer(**{**value, "runtimes": runtimes, "cdi_folders": folders})


def _keyring(value: Any) -> Keyring | None:
    if isinstance(value, dict):
        return Keyring(problem=value["problem"])
    return None if value is None else Keyring(frozenset(map(plain_fingerprint, value)))


def _apt(files: dict[str, str]) -> tuple[AptRepository, ...]:
    found: list[AptRepository] = []
    for name, text in files.items():
        read = deb822_repositories if name.endswith(".sources") else one_line_repositories
        found += read(text, f"/etc/apt/sources.list.d/{name}")
    return tuple(found)


def _rpm(files: dict[str, str]) -> tuple[RpmRepository, ...]:
    return tuple(one for name, text in files.items() for one in repo_file(text, f"/etc/yum.repos.d/{name}"))


DOCKER_READERS: dict[str, Callable[[Any], Any]] = {
    "apt_repositories": _apt,
    "cdi_specs": lambda value: tuple(
        CdiSpec(**{**spec, "devices": tuple(spec["devices"])}) for spec in value
    ),
    "daemon_config": daemon_config,
    "docker_engine": lambda value: value and DockerEngine(*value),
    "docker_group": lambda value: value if value is None else tuple(value),
    "docker_server": _server,
    "keyring": _keyring,
    "process_groups": frozenset,
    "rpm_repositories": _rpm,
    "running_containers": lambda value: tuple(RunningContainer(*row) for row in value),
    "service": lambda value: value and ServiceState(**value),
    "text": lambda value: json.dumps(value) if isinstance(value, dict) else value,
}
