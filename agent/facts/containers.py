"""Docker, and whether the host is itself a container."""

from __future__ import annotations

import re

from agent.facts.base import Fact, Host

__all__ = ["DOCKER_SERVER_VERSION", "DOCKER_VERSION", "IN_CONTAINER", "docker_version"]


def docker_version(text: str | None) -> str | None:
    """The client's version, from ``docker --version``."""
    match = re.search(r"version (\d[^\s,]*)", text or "")
    return match.group(1) if match else None


def _in_container(host: Host) -> bool:
    return (
        ".dockerenv" in host.names("/")
        or host.text("/run/.containerenv") is not None
        or "container=" in (host.text("/proc/1/environ") or "")
    )


DOCKER_VERSION: Fact[str | None] = Fact(
    "docker_version", "docker --version", lambda host: docker_version(host.output(["docker", "--version"]))
)
DOCKER_SERVER_VERSION: Fact[str | None] = Fact(
    "docker_server_version",
    "docker version",
    lambda host: (
        (host.output(["docker", "version", "--format", "{{.Server.Version}}"]) or "").strip() or None
    ),
)
IN_CONTAINER: Fact[bool] = Fact(
    "in_container", "/.dockerenv, /run/.containerenv, /proc/1/environ", _in_container
)
