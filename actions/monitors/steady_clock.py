"""Seconds that go on whatever happens to the host's clock, and the moments that it told of them."""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

_SET_S = 0.1
"""From which difference on the host's clock was set, and not only held in step."""

_TOLD_S = 0.5
"""From which difference on that is told: small ones are corrections that added up."""


class SteadyClock:
    """Tells seconds of CLOCK_MONOTONIC, and notices where the host's clock was set meanwhile.

    Args:
        steady: seconds that only ever grow.
        wall: seconds since the epoch.
    """

    def __init__(
        self, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._steady = steady
        self._wall = wall
        self._looked_s = steady()
        self._offsets = [(-math.inf, wall() - self._looked_s)]

    def now_s(self) -> float:
        """The present moment; it is to be asked now and then, for only so is a clock that was set noticed."""
        now_s = self._steady()
        offset_s = self._wall() - now_s
        if abs(offset_s - self._offsets[-1][1]) > _SET_S:
            if self._steady() - now_s > _SET_S / 2:
                return now_s  # there was no processor between the two clocks: they do not tell one moment
            self._offsets.append((self._looked_s, offset_s))
        self._looked_s = now_s
        return now_s

    def set_by_s(self, start_s: float, end_s: float) -> list[float]:
        """By how many seconds the host's clock was set in a span, each time; below 0 where it went back."""
        return [
            offset_s - before_s
            for (_, before_s), (since_s, offset_s) in pairwise(self._offsets)
            if start_s <= since_s <= end_s and abs(offset_s - before_s) > _TOLD_S
        ]

    def seconds_of(self, moment: datetime, latest_s: float = math.inf) -> float:
        """The seconds of a moment that the host's clock told; of two that it told, the later one.

        Args:
            moment: what it told.
            latest_s: when it told that, at the latest.
        """
        until_s, nearest_s = latest_s, None
        for since_s, offset_s in reversed(self._offsets):
            found_s = moment.timestamp() - offset_s
            if since_s <= found_s <= until_s:
                return found_s
            if found_s > until_s and nearest_s is None:
                nearest_s = until_s  # the clock left it out
            until_s = since_s
        return latest_s if nearest_s is None else nearest_s
