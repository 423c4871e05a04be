"""Notices when the host's clock is set: LoadGen times by it.

``loadgen/logging.h``: PerfClock is ``std::chrono::high_resolution_clock``, in libstdc++ the system clock.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SET_S = 0.05
"""A step from which the clock was set; NTP slews by 0.5 ms a second."""


class WallClock:
    """Compares the host's clock with one that nobody sets.

    Args:
        steady: seconds that only ever grow.
        wall: seconds since the epoch.

    Attributes:
        set_by_s: the seconds by which the host's clock was set, one by one.
    """

    def __init__(
        self, steady: Callable[[], float] = time.perf_counter, wall: Callable[[], float] = time.time
    ) -> None:
        self._steady = steady
        self._wall = wall
        self._offset_s = self._offset()
        self.set_by_s: list[float] = []

    def look(self) -> None:
        """Compare the clocks; to be called once or more a second."""
        offset_s = self._offset()
        if abs(step_s := offset_s - self._offset_s) > _SET_S:
            self.set_by_s.append(round(step_s, 3))
        self._offset_s = offset_s

    def _offset(self) -> float:
        """How far the host's clock is ahead, in seconds; read anew where there was no processor between."""
        while True:
            before_s, wall_s, after_s = self._steady(), self._wall(), self._steady()
            if after_s - before_s < _SET_S / 2:
                return wall_s - before_s
