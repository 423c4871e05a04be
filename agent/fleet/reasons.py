"""Groups failed hosts by reason, so that each reason is shown once with the names of its hosts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.fleet.status import HostPhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.fleet.status import HostStatus

FAILED_PHASES = (HostPhase.FAILED, HostPhase.UNREACHED)

_OWN = re.compile(
    r"\S+@[\w.:\[\]-]*\w"  # user and host
    r"|\[?[\w.:-]+\]?:\d+(?=[\s:,;)]|$)"  # an address with its port
    r"|\b\d+(?:\.\d+){3}\b"  # an address
    r"|SHA256:\S+"
    r"|\b\d+(?:\.\d+)?(?= (?:s|MiB|GiB|MB)\b)"
)
"""The parts of equal reasons that differ from host to host."""


@dataclass(frozen=True)
class ReasonGroup:
    """Hosts that failed for the same reason.

    Args:
        phase: the phase in which they ended.
        step: the step that their runs had reached; empty if none had begun.
        reason: the reason of the first host, with its remedy.
        hosts: the names of the hosts.
    """

    phase: HostPhase
    step: str
    reason: str
    hosts: tuple[str, ...]

    @property
    def brief(self) -> str:
        """Return the step and the reason in one line."""
        first = self.reason.splitlines()[0] if self.reason else "no reason is known"
        if len(self.hosts) > 1:
            first = _kind(first, self.hosts[0])
        return f"{self.step}: {first}" if self.step else first


def reason_groups(statuses: Iterable[HostStatus]) -> list[ReasonGroup]:
    """Return the reasons of hosts that failed, were unreachable or not started, the most frequent first."""
    groups: dict[tuple[HostPhase, str, str], list[HostStatus]] = {}
    for status in statuses:
        if status.phase.is_final and not status.is_good:
            kind = _kind(status.reason, status.name)
            groups.setdefault((status.phase, status.step, kind), []).append(status)
    found = [
        ReasonGroup(
            phase,
            step,
            members[0].reason or _ended(members[0]),
            tuple(status.name for status in members),
        )
        for (phase, step, _), members in groups.items()
    ]
    return sorted(found, key=lambda group: (group.phase is HostPhase.SKIPPED, -len(group.hosts)))


def _kind(reason: str, host: str) -> str:
    """Return a reason without the parts that name the host."""
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "…", _OWN.sub("…", reason))


def _ended(status: HostStatus) -> str:
    return f"exit code {status.exit_code}" if status.exit_code else ""
