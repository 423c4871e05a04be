"""``failed.yaml``: an inventory of the hosts to try again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.fleet.inventory import FleetHost
    from agent.fleet.status import HostStatus

FAILED_FILE = "failed.yaml"


def failed_inventory(hosts: Sequence[FleetHost], statuses: Mapping[str, HostStatus]) -> str:
    """Return an inventory of the hosts that failed, each with its reason as a comment."""
    lines = ["# Hosts that failed, were unreachable, or were not started.", "hosts:"]
    for host in hosts:
        status = statuses[host.name]
        if status.is_good or not status.phase.is_final:
            continue
        reason = status.reason.splitlines()[0] if status.reason else f"exit code {status.exit_code}"
        lines.append(f"  # {status.phase.value}: {reason}")
        text = yaml.safe_dump({host.name: _variables(host)}, sort_keys=False, allow_unicode=True, width=1000)
        lines += [f"  {line}" for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _variables(host: FleetHost) -> dict[str, Any]:
    values = {
        "address": host.address,
        "port": host.port,
        "user": host.user,
        "identity_file": list(host.identity_files),
        "proxy_jump": host.proxy_jump,
        "proxy_command": host.proxy_command,
        "ssh_config": host.ssh_config,
        "sudo": host.sudo,
        "python": host.python,
        "host_dir": host.host_dir,
        "parameters": dict(host.parameters),
    }
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}
