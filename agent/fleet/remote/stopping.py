"""Stops a run: its processes end, and it can be resumed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.fleet.remote.standing import RESULTS, SUPERVISOR_LOCK, held
from agent.store.results import LOCK

if TYPE_CHECKING:
    from pathlib import Path


def stop(run_dir: Path) -> None:
    """Send SIGTERM to the process that works on the run."""
    for lock in (run_dir / SUPERVISOR_LOCK, run_dir / RESULTS / LOCK):
        if process := held(lock):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
            return
