"""Which hosts start when: a canary first, then batches, and none any more when too many failed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet


def share_of(text: str, count: int, option: str) -> int | None:
    """A number, or a share of a number such as ``25%``, rounded up; None if nothing is given.

    Raises:
        UsageError: if it is neither.
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
        hosts: their names, in order.
        canary: how many go first, alone.
        batch: how many run at the same time; None for all.
        max_failures: more failed hosts than this, and no other starts; None for no limit.
    """

    hosts: Sequence[str]
    canary: int = 0
    batch: int | None = None
    max_failures: int | None = None

    def next(
        self, started: set[str], ended: set[str], failed: set[str], ready: AbstractSet[str] | None = None
    ) -> list[str]:
        """The hosts that start now.

        Args:
            started: those that have started, ended ones among them.
            ended: those that have ended.
            failed: those of them that failed.
            ready: those that can be started; None for all.
        """
        if self.stopped(failed):
            return []
        waiting = [host for host in self.hosts if host not in started and (ready is None or host in ready)]
        first = set(self.hosts[: self.canary])
        if first - ended:
            return [host for host in waiting if host in first][: self._room(started, ended)]
        return waiting[: self._room(started, ended)]

    def stopped(self, failed: set[str]) -> str:
        """Why no other host starts; empty while others do."""
        if bad := [host for host in self.hosts[: self.canary] if host in failed]:
            return f"the canary failed: {', '.join(bad)}"
        if self.max_failures is not None and len(failed) > self.max_failures:
            return f"{len(failed)} hosts failed, more than {self.max_failures}"
        return ""

    def _room(self, started: set[str], ended: set[str]) -> int:
        return len(self.hosts) if self.batch is None else max(0, max(1, self.batch) - len(started - ended))
