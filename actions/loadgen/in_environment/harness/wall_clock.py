"""Detect changes of the host's clock, which LoadGen uses for its times.

``loadgen/logging.h``: PerfClock is ``std::chrono::high_resolution_clock``, in libstdc++ the system clock.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SET_S = 0.05
"""Smallest step in seconds that counts as a change of the clock; NTP slews by 0.5 ms per second."""


class WallClock:
    """Compares the host's clock with a monotonic clock.

    Args:
        steady: a monotonic clock, in seconds.
        wall: the host's clock, in seconds since the epoch.

    Attributes:
        set_by_s: the changes of the host's clock, in seconds.
    """

    def __init__(
        self, steady: Callable[[], float] = time.perf_counter, wall: Callable[[], float] = time.time
    ) -> None:
        self._steady = steady
        self._wall = wall
        self._offset_s = self._offset()
        self.set_by_s: list[float] = []

    def look(self) -> None:
        """Compare the clocks; must be called at least once per second."""
        offset_s = self._offset()
        if abs(step_s := offset_s - self._offset_s) > _SET_S:
            self.set_by_s.append(round(step_s, 3))
        self._offset_s = offset_s

    def _offset(self) -> float:
        """Return the host's clock minus the monotonic clock, in seconds; repeat an interrupted reading."""
        while True:
            before_s, wall_s, after_s = self._steady(), self._wall(), self._steady()
            if after_s - before_s < _SET_S / 2:
                return wall_s - before_s
