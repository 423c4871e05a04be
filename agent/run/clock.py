"""The time limit of a run's actions; a resumed run continues the count."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.profile import Timeout, TimeoutScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.store.journal import Journal

_WENT_BACK_S = 2.0
"""Seconds that a clock may be set back without a warning; time servers do that."""


class HostClock:
    """Notices if the host's clock was set back, which puts the times of records out of order.

    Args:
        wall: returns the seconds of the clock whose times records carry.
        steady: returns the seconds of a clock that cannot be set and that continues while the host sleeps.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._wall, self._steady = wall, steady
        self._began = wall(), steady()

    def warning(self) -> str:
        """Return a warning with the seconds that the clock was set back; empty if it was not."""
        back_s = (self._steady() - self._began[1]) - (self._wall() - self._began[0])
        if back_s < _WENT_BACK_S:
            return ""
        return (
            f"the clock of this host went back by {back_s:.1f} s during the run: "
            "times of steps and records are not in order"
        )


class RunClock:
    """Measures the time since the actions began.

    Args:
        timeout: the time limit, and what may still finish when it is reached; None for no limit.
        journal: keeps the seconds that were spent before a resume.
        stop: set when the time is up and nothing may finish.
    """

    def __init__(self, timeout: Timeout | None, journal: Journal, stop: threading.Event) -> None:
        self.timeout = timeout
        self.timed_out = False
        self._journal = journal
        self._stop = stop
        self._spent_s: float = journal.recall("spent_s", 0.0)
        self._began = time.monotonic()

    @property
    def left_s(self) -> float | None:
        """Seconds left: 0 when the time is up, None without a limit."""
        if self.timeout is None or self.timeout.duration_s is None:
            return None
        return max(0.0, self.timeout.duration_s - self._elapsed_s())

    @property
    def is_up(self) -> bool:
        """True if the time is up."""
        return self.left_s == 0

    @property
    def ends_between_actions(self) -> bool:
        """True if the time is up and the run ends after the action that was running."""
        return self.is_up and self.timeout is not None and self.timeout.scope is TimeoutScope.ACTION

    def save(self) -> None:
        """Save the seconds spent so far in the journal."""
        self._journal.remember(spent_s=self._elapsed_s())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure time while the context is open; at the limit, stop the run if the timeout asks for it."""
        self._began = time.monotonic()
        watchdog = threading.Timer(min(self.left_s or 0.0, threading.TIMEOUT_MAX), self._expire)
        watchdog.daemon = True
        if self.left_s is not None and self.timeout and self.timeout.scope is TimeoutScope.NOTHING:
            watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()
            self.save()

    def _expire(self) -> None:
        self.timed_out = True
        self._stop.set()

    def _elapsed_s(self) -> float:
        return self._spent_s + time.monotonic() - self._began
