"""Detects whether the host is a container."""

from __future__ import annotations

from agent.facts.base import Fact, Host


def _in_container(host: Host) -> bool:
    return (
        ".dockerenv" in host.names("/")
        or host.text("/run/.containerenv") is not None
        or "container=" in (host.text("/proc/1/environ") or "")
    )


IN_CONTAINER: Fact[bool] = Fact(
    "in_container", "/.dockerenv, /run/.containerenv, /proc/1/environ", _in_container
)
