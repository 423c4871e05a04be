"""Reports the standing of a run after every change, for as long as the connection lasts."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from agent.fleet.remote.standing import RunState, standing_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.fleet.remote.standing import Standing

HEARTBEAT_S = 30.0
"""Seconds between two reports without a change; silence for longer means that the host is lost."""

_SHORTEST_S, _LONGEST_S = 0.05, 1.0


def standings(run_dir: Path) -> Iterator[Standing]:
    """Yield the standing of the run: at once, after every change, at regular intervals, and at the end."""
    pause_s, told, told_at = _SHORTEST_S, None, 0.0
    boot: str | None = None
    while True:
        standing: Standing = standing_of(run_dir, boot)
        boot = standing.boot
        if standing != told or time.monotonic() - told_at > HEARTBEAT_S:
            yield standing
            told, told_at = standing, time.monotonic()
        if standing.state is not RunState.RUNNING:
            return
        time.sleep(pause_s)
        pause_s = min(_LONGEST_S, pause_s * 1.3)


def watch(run_dir: Path) -> None:
    """Write a line for each standing."""
    for standing in standings(run_dir):
        sys.stdout.write(standing.to_json() + "\n")
        sys.stdout.flush()
