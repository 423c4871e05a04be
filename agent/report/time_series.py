"""A value over time, kept in bounded memory, however long it is recorded."""

from __future__ import annotations

import math


class TimeSeries:
    """Means of a value over equal intervals; the intervals double in length when their number gets too large.

    Args:
        limit: the largest number of intervals.
        width_s: the initial length of an interval, in seconds.
    """

    def __init__(self, limit: int = 1024, width_s: float = 1.0) -> None:
        self.limit = limit
        self.width_s = width_s
        self._sums: dict[int, tuple[float, int]] = {}

    def add(self, at_s: float, value: float) -> None:
        """Add a value measured at a time, in seconds from a common start."""
        place = math.floor(at_s / self.width_s)
        total, count = self._sums.get(place, (0.0, 0))
        self._sums[place] = (total + value, count + 1)
        while len(self._sums) > self.limit:
            self._sums = _merged(self._sums, 2)
            self.width_s *= 2

    def points(
        self, start_s: float = -math.inf, end_s: float = math.inf, count: int = 120
    ) -> list[tuple[float, float]]:
        """Return at most about ``count`` means in a span, in order of time, at their intervals' middles."""
        chosen = {
            place: entry
            for place, entry in self._sums.items()
            if (place + 1) * self.width_s > start_s and place * self.width_s <= end_s
        }
        if not chosen:
            return []
        step = math.ceil((max(chosen) - min(chosen) + 1) / count)
        width_s = self.width_s * step
        merged = _merged(chosen, step)
        return [((place + 0.5) * width_s, merged[place][0] / merged[place][1]) for place in sorted(merged)]


def _merged(sums: dict[int, tuple[float, int]], step: int) -> dict[int, tuple[float, int]]:
    merged: dict[int, tuple[float, int]] = {}
    for place, (total, count) in sums.items():
        before, before_count = merged.get(place // step, (0.0, 0))
        merged[place // step] = (before + total, before_count + count)
    return merged
