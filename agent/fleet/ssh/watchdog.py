"""Calls a function when an operation takes too long."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK_S = 1.0


class Watchdog:
    """Watches many operations in one thread, which exists only while something is watched."""

    def __init__(self) -> None:
        self._look = threading.Condition()
        self._watched: dict[object, tuple[float, Callable[[], None]]] = {}
        self._is_awake = False

    @contextmanager
    def watching(self, seconds: float, overdue: Callable[[], None]) -> Iterator[None]:
        """Call a function, in another thread, unless the block ends in time; up to a second late.

        Args:
            seconds: the time limit of the block.
            overdue: the function to call; it must return quickly.
        """
        watched = object()
        with self._look:
            self._watched[watched] = time.monotonic() + seconds, overdue
            if not self._is_awake:
                self._is_awake = True
                threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        try:
            yield
        finally:
            with self._look:
                self._watched.pop(watched, None)

    def _watch(self) -> None:
        with self._look:
            while self._watched:
                self._look.wait(_LOOK_S)
                now = time.monotonic()
                for watched, (until, overdue) in list(self._watched.items()):
                    if until <= now:
                        del self._watched[watched]
                        overdue()
            self._is_awake = False
