"""Waiting for what another thread or process does, however busy the host is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LIMIT_S", "wait_for"]

LIMIT_S = 60.0
"""Long enough for a process to start on a host whose processors others use."""


def wait_for(condition: Callable[[], object], *, limit_s: float = LIMIT_S, every_s: float = 0.01) -> None:
    """Wait until a condition holds.

    Args:
        condition: is called again and again.
        limit_s: how long, in seconds.
        every_s: the pause between two calls, in seconds: longer for what costs processor time.

    Raises:
        AssertionError: if it does not hold within the limit.
    """
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(every_s)
