"""Provide monotonic seconds, and convert times of the host's clock to them."""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

_SET_S = 0.1
"""Smallest difference in seconds that counts as setting the host's clock, not as slewing."""

_TOLD_S = 0.5
"""Smallest difference in seconds that is reported: smaller ones are accumulated corrections."""


class SteadyClock:
    """Reads seconds of CLOCK_MONOTONIC, and records when the host's clock is set.

    Args:
        steady: a monotonic clock, in seconds.
        wall: the host's clock, in seconds since the epoch.
    """

    def __init__(
        self, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._steady = steady
        self._wall = wall
        self._looked_s = steady()
        self._offsets = [(-math.inf, wall() - self._looked_s)]

    def now_s(self) -> float:
        """Return the current time; call it regularly, since only this detects changes of the host's clock."""
        now_s = self._steady()
        offset_s = self._wall() - now_s
        if abs(offset_s - self._offsets[-1][1]) > _SET_S:
            if self._steady() - now_s > _SET_S / 2:
                return now_s  # interrupted between the two readings: they are not of the same time
            self._offsets.append((self._looked_s, offset_s))
        self._looked_s = now_s
        return now_s

    def set_by_s(self, start_s: float, end_s: float) -> list[float]:
        """Return the changes of the host's clock in a time span, in seconds; negative if it was set back."""
        return [
            offset_s - before_s
            for (_, before_s), (since_s, offset_s) in pairwise(self._offsets)
            if start_s <= since_s <= end_s and abs(offset_s - before_s) > _TOLD_S
        ]

    def seconds_of(self, moment: datetime, latest_s: float = math.inf) -> float:
        """Return the monotonic seconds for a time of the host's clock; of two candidates, the later one.

        Args:
            moment: a time of the host's clock.
            latest_s: latest time at which the clock can have shown it.
        """
        until_s, nearest_s = latest_s, None
        for since_s, offset_s in reversed(self._offsets):
            found_s = moment.timestamp() - offset_s
            if since_s <= found_s <= until_s:
                return found_s
            if found_s > until_s and nearest_s is None:
                nearest_s = until_s  # the clock skipped it
            until_s = since_s
        return latest_s if nearest_s is None else nearest_s
