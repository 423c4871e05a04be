"""Measure the delay of the event loop, which the harness itself adds to the latencies it measures."""

from __future__ import annotations

import asyncio
from array import array

_INTERVAL_S = 0.02


class LoopLag:
    """A timer that records its own delay, fifty times a second, so that it costs next to nothing."""

    def __init__(self) -> None:
        self._late_s = array("d")
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to watch the running loop."""
        self._set(asyncio.get_running_loop())

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + _INTERVAL_S
        self._timer = loop.call_at(self._due, self._note, loop)

    def _note(self, loop: asyncio.AbstractEventLoop) -> None:
        self._late_s.append(max(0.0, loop.time() - self._due))
        self._set(loop)

    def stop(self) -> None:
        """Stop watching; an overdue timer counts."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            late_s = asyncio.get_running_loop().time() - self._due
            self._late_s.extend([late_s] if late_s > 0 else [])

    def seconds(self) -> tuple[float, float]:
        """Return the maximum and the 99th percentile of the delays; zeros if there are none."""
        late = sorted(self._late_s) or [0.0]
        return late[-1], late[len(late) * 99 // 100]
