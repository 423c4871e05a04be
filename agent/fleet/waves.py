"""Decides when hosts start: first a canary, then batches, and none after too many failures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.counts import count_of
from agent.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet


def share_of(text: str, count: int, option: str) -> int | None:
    """Parse a number, or a share such as ``25%`` of the count, rounded up; None if the text is empty.

    Raises:
        UsageError: if the text is neither a number nor a share.
    """
    if not text:
        return None
    number = text.removesuffix("%")
    if not number.isdigit() or (text.endswith("%") and int(number) > 100):  # noqa: PLR2004 - percent
        raise UsageError(
            f"{option} {text} is neither a number nor a share", remedy=f"{option} 4, {option} 25%"
        )
    return math.ceil(int(number) * count / 100) if text.endswith("%") else int(number)


@dataclass(frozen=True)
class Waves:
    """The order in which hosts start.

    Args:
        hosts: the names of the hosts, in order.
        canary: the number of hosts that start first, alone.
        batch: the number of hosts that run at the same time; None for all.
        max_failures: the number of failed hosts after which no other starts; None for no limit.
    """

    hosts: Sequence[str]
    canary: int = 0
    batch: int | None = None
    max_failures: int | None = None

    def next(
        self, started: set[str], ended: set[str], failed: set[str], ready: AbstractSet[str] | None = None
    ) -> list[str]:
        """Return the hosts that start now.

        Args:
            started: the hosts that have started, including those that have ended.
            ended: the hosts that have ended.
            failed: the hosts that have failed.
            ready: the hosts that can be started; None for all.
        """
        if self.stopped(failed):
            return []
        waiting = [host for host in self.hosts if host not in started and (ready is None or host in ready)]
        first = set(self.hosts[: self.canary])
        if first - ended:
            return [host for host in waiting if host in first][: self._room(started, ended)]
        return waiting[: self._room(started, ended)]

    def stopped(self, failed: set[str]) -> str:
        """Return the reason why no other host starts; empty if others may start."""
        if bad := [host for host in self.hosts[: self.canary] if host in failed]:
            return f"the canary failed: {', '.join(bad)}"
        if self.max_failures is not None and len(failed) > self.max_failures:
            return f"{count_of(len(failed), 'host')} failed, more than {self.max_failures}"
        return ""

    def _room(self, started: set[str], ended: set[str]) -> int:
        return len(self.hosts) if self.batch is None else max(0, max(1, self.batch) - len(started - ended))
