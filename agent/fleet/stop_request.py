"""Asks a running controller to end the runs on hosts, through a file in the fleet run's folder."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.core.errors import HostError
from agent.fleet.record import is_worked_on
from agent.store.results import write_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STOP_FILE = "stop.json"
_TAKEN_S = 30.0


def forget_stop(run_dir: Path) -> None:
    """Remove a request that was meant for an earlier controller, before a new one begins."""
    if not is_worked_on(run_dir):
        (run_dir / STOP_FILE).unlink(missing_ok=True)


def taken_stop(path: Path) -> list[str]:
    """Return the hosts whose runs are to end, and remove the file that named them."""
    hosts: list[str] = []
    with suppress(FileNotFoundError):
        text = path.read_text(encoding="utf-8")
        path.unlink()
        hosts = [str(name) for name in json.loads(text)["hosts"]]
    return hosts


def ask_to_stop(run_dir: Path, hosts: Sequence[str]) -> bool:
    """Ask the running controller to end the runs on hosts.

    Args:
        run_dir: the fleet run's folder.
        hosts: the names of the hosts.

    Returns:
        True if the controller has taken the request; False if no controller is running.

    Raises:
        HostError: if a controller is running but does not take the request.
    """
    path = run_dir / STOP_FILE
    until = time.monotonic() + _TAKEN_S
    write_json(path, {"hosts": list(hosts)})
    while path.exists():
        if not is_worked_on(run_dir):
            path.unlink(missing_ok=True)
            return False
        if time.monotonic() > until:
            path.unlink(missing_ok=True)
            raise HostError(
                f"the controller of {run_dir.name} did not take the request within {_TAKEN_S:g} s",
                remedy="it may be waiting for a password: check its terminal",
            )
        time.sleep(0.1)
    return True
