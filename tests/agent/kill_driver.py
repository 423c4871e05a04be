"""Runs a profile and kills its own process with SIGKILL at the n-th write to the journal.

Usage: kill_driver.py N REQUEST.json — N counts the moments before and after each call.
"""

import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.core.progress import RunProgress
from agent.run import description as run_description
from agent.run.request import RunRequest
from agent.run.session import start
from agent.store.journal import Journal
from tests.agent.counting_components import register

WATCHED = ("remember", "start_step", "end_step", "add_records", "move_sink")


def dying(method: Callable[..., Any], countdown: list[int]) -> Callable[..., Any]:
    def tick() -> None:
        countdown[0] -= 1
        if countdown[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(method)
    def wrapper(*args: Any, **values: Any) -> Any:
        tick()
        result = method(*args, **values)
        tick()
        return result

    return wrapper


def run_until(n: int, request_file: str) -> None:
    """Run the request in this process, which ends with the run's exit code or at the n-th moment."""
    register()
    run_description.known_facts = dict  # type: ignore[assignment]  # reading them takes longer than the run
    countdown = [n]
    for name in WATCHED:
        setattr(Journal, name, dying(getattr(Journal, name), countdown))
    request = RunRequest.from_json(json.loads(Path(request_file).read_text()), {})
    sys.exit(start(request, RunProgress()).outcome.exit_code)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # under nohup, a test run passes on ignored signals
    run_until(int(sys.argv[1]), sys.argv[2])
