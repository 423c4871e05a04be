"""Gives dockerd the proxy for its pulls: ``proxies`` in daemon.json, which Docker reads since 23.0."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.errors import HostError, LiftedBy
from agent.facts.docker import DAEMON_CONFIG, DAEMON_CONFIG_PATH, DOCKER_ENGINE, DOCKER_SERVER
from dependencies.docker.daemon import changes, require_readable, write_daemon_config
from dependencies.docker.service import refuse_to_stop_containers, restart_command, start_engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts import Facts
    from agent.facts.docker import DockerServer

_SINCE = 23


def checked_proxy(value: str) -> str:
    """Check a proxy's address; every account of the host may read it in daemon.json.

    Raises:
        ValueError: if it is not an address, or has a password.
    """
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https", "socks5") or not parts.hostname):
        raise ValueError("write the proxy's address, such as http://proxy.example.com:3128")
    if parts.username or parts.password:
        raise ValueError(
            f"every account may read daemon.json: write a login into {DAEMON_CONFIG_PATH} yourself, mode 600"
        )
    return value


def proxy_steps(proxies: Mapping[str, str], facts: Facts, *, installing: bool, allowed: bool) -> list[Step]:
    """Return the step that sets the engine's proxies and restarts it; empty if the engine uses them.

    Args:
        proxies: the settings by their name in daemon.json, such as ``https-proxy``; empty ones are not set.
        facts: the host.
        installing: whether earlier steps install another engine.
        allowed: whether the restart may stop running containers.

    Raises:
        HostError: if daemon.json has other proxies, the engine is too old, or the restart would stop
            containers.
    """
    wanted = {name: value for name, value in proxies.items() if value}
    server = facts[DOCKER_SERVER]
    if not wanted or (server and not _unused(wanted, server)):
        return []
    settings = require_readable(facts[DAEMON_CONFIG])
    wish: dict[str, Any] = {"proxies": wanted}
    present = settings.get("proxies")
    known = present if isinstance(present, dict) else {}
    others = [name for name, value in wanted.items() if known.get(name, value) != value]
    if others:
        raise HostError(
            f"{DAEMON_CONFIG_PATH} has another {' and '.join(others)} in proxies",
            remedy="correct one of them: daemon.json, or HttpProxy, HttpsProxy and NoProxy of the profile",
            lifted_by=LiftedBy.NOTHING,
        )
    if server and not installing:
        if facts[DOCKER_ENGINE] is None:
            raise HostError(
                "the engine is on another host, so its proxy cannot be set from here",
                remedy="set it there, and remove HttpProxy, HttpsProxy and NoProxy from this element",
                lifted_by=LiftedBy.NOTHING,
            )
        _require_new(server)
    reason = f"the engine does not use {' and '.join(wanted)} yet"
    refuse_to_stop_containers(
        facts, reason, allowed=allowed, live_restore=settings.get("live-restore") is True
    )
    command = restart_command(facts)

    def run(context: StepContext) -> StepOutcome:
        now = context.facts.fresh()
        if engine := now[DOCKER_SERVER]:
            _require_new(engine)
        if changes(now[DAEMON_CONFIG].settings or {}, wish):
            write_daemon_config(context, wish)
        return StepOutcome(f"the engine answers: {start_engine(context, command)}")

    def holds(after: Facts) -> bool:
        engine = after[DOCKER_SERVER]
        return engine is not None and not _unused(wanted, engine)

    missing = changes(settings, wish)
    merge = f"merge into {DAEMON_CONFIG_PATH}, with a backup: {json.dumps(wish)} && " if missing else ""
    undo = {"daemon": wish, "before": {}} if missing else None
    return [Step("proxy", reason, run, merge + shlex.join(command), holds, undo=undo)]


def _unused(wanted: Mapping[str, str], server: DockerServer) -> bool:
    return any(server.proxies.get(name) != value for name, value in wanted.items())


def _require_new(server: DockerServer) -> None:
    if server.major < _SINCE:
        raise HostError(
            f"Docker {server.version} does not read proxies from daemon.json; {_SINCE} and later do",
            remedy="set Version to a newer Docker, or write a drop-in of docker.service with HTTPS_PROXY",
            lifted_by=LiftedBy.NOTHING,
        )
