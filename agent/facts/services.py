"""Units of systemd, each as a fact."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = (
    "docker",
    "containerd",
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "nvidia-imex",
    "nvidia-cdi-refresh",
    "unattended-upgrades",
)
"""Services that installers and runs depend on."""

_PROPERTIES = "LoadState,ActiveState,SubState,UnitFileState,Result"


@dataclass(frozen=True)
class ServiceState:
    """State of a systemd unit (systemctl(1)).

    Args:
        active: True if it runs, or ran and remains active.
        enabled: True if it starts with the host; None for a unit that cannot be enabled.
        failed: True if its last start or run failed.
        result: systemd's word for its result, such as ``success`` or ``exit-code``.
    """

    active: bool
    enabled: bool | None = None
    failed: bool = False
    result: str = ""


def systemctl_show(text: str | None) -> ServiceState | None:
    """Read ``systemctl show``; return None for a missing unit, or without systemd."""
    values = dict(line.partition("=")[::2] for line in (text or "").splitlines())
    if values.get("LoadState") in (None, "", "not-found"):
        return None
    enabled = {"enabled": True, "enabled-runtime": True, "disabled": False, "masked": False}
    return ServiceState(
        active=values.get("ActiveState") in ("active", "reloading"),
        enabled=enabled.get(values.get("UnitFileState", "")),
        failed=values.get("ActiveState") == "failed",
        result=values.get("Result", ""),
    )


def service(name: str) -> Fact[ServiceState | None]:
    """Return the fact of a unit's state; None if the unit does not exist."""
    command = ["systemctl", "show", f"--property={_PROPERTIES}", "--", f"{name}.service"]
    return Fact(
        f"service[{name}]", f"systemctl show {name}", lambda host: systemctl_show(host.output(command))
    )


def _services(host: Host) -> Mapping[str, ServiceState]:
    units = [f"{name}.service" for name in _SHOWN]
    answer = host.output(["systemctl", "show", f"--property=Id,{_PROPERTIES}", "--", *units]) or ""
    found = {}
    for block in re.split(r"\n\n+", answer):
        name = re.search(r"^Id=(.+)\.service$", block, re.MULTILINE)
        if name and (state := systemctl_show(block)):
            found[name.group(1)] = state
    return found


SERVICES: Fact[Mapping[str, ServiceState]] = Fact("services", "systemctl show", _services)
