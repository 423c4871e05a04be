"""Passes something that a step left running, such as a loaded engine, to the next step."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class LeftRunning:
    """Something that runs between two steps.

    Args:
        key: all that determines it; a step takes it over only if its own key is equal.
        name: the step or case that started it, for people.
        address: where a step finds it.
        stop: ends it, and everything it started.
        death: how it ended by itself; None while it runs.
    """

    key: str
    name: str
    address: str
    stop: Callable[[], object]
    death: Callable[[], str | None]


class Handover:
    """Holds at most one thing between steps: one step left it running, and the next takes it over.

    A step that took it over leaves it again, or stops it. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: LeftRunning | None = None

    def take(self, key: str) -> LeftRunning | None:
        """Return the thing with this key if it still runs; end any other."""
        held = self._swap(None)
        if held is None:
            return None
        if held.key == key and held.death() is None:
            return held
        held.stop()
        return None

    def leave(self, running: LeftRunning) -> None:
        """Leave something for the next step; end a thing that another step has left meanwhile."""
        if before := self._swap(running):
            before.stop()

    def end(self) -> None:
        """End the thing that is held, if any."""
        if held := self._swap(None):
            held.stop()

    def _swap(self, running: LeftRunning | None) -> LeftRunning | None:
        with self._lock:
            held, self._held = self._held, running
        return held
