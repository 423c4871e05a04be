"""Equal reasons of failed hosts, told once with the names of their hosts."""

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
    r"\S+@[\w.:\[\]-]*\w"  # whom and where
    r"|\[?[\w.:-]+\]?:\d+(?=[\s:,;)]|$)"  # an address with its port
    r"|\b\d+(?:\.\d+){3}\b"  # an address
    r"|SHA256:\S+"
    r"|\b\d+(?:\.\d+)?(?= (?:s|MiB|GiB|MB)\b)"
)
"""What differs from host to host in reasons that are the same."""


@dataclass(frozen=True)
class ReasonGroup:
    """Hosts that ended badly for the same reason.

    Args:
        phase: how they ended.
        step: what their runs were at; empty where none had begun.
        reason: the reason of the first host, with the remedy.
        hosts: their names.
    """

    phase: HostPhase
    step: str
    reason: str
    hosts: tuple[str, ...]

    @property
    def brief(self) -> str:
        """The step and the reason, in one line."""
        first = self.reason.splitlines()[0] if self.reason else "no reason is known"
        if len(self.hosts) > 1:
            first = _kind(first, self.hosts[0])
        return f"{self.step}: {first}" if self.step else first


def reason_groups(statuses: Iterable[HostStatus]) -> list[ReasonGroup]:
    """Return the reasons of hosts that failed, were not reached or not started, the most frequent first."""
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
    """A reason without what is the host's own."""
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "…", _OWN.sub("…", reason))


def _ended(status: HostStatus) -> str:
    return f"exit code {status.exit_code}" if status.exit_code else ""
