"""The bundle's commands for the controller: ``vcagent fleet-host VERB FOLDER``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code; errors are written to standard error."""
    from agent.core.errors import VcagentError

    verb, run_dir, *more = arguments[0], Path(arguments[1]), *arguments[2:]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nobody reads the output any more
    try:
        if verb == "supervise":
            from agent.fleet.remote.supervising import supervise

            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            return supervise(run_dir, Path(more[0]) if more else None)
        if verb == "job":
            from agent.fleet.remote.job import run_job

            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            return run_job(run_dir, Path(more[0]))
        if verb == "start":
            from agent.fleet.remote.launching import launch

            print(launch(run_dir, sys.stdin.buffer.read()).to_json())  # noqa: T201 - to the controller
        elif verb == "watch":
            from agent.fleet.remote.watching import watch

            watch(run_dir)
        elif verb == "send":
            from agent.fleet.remote.sending import send

            send(run_dir)
        elif verb == "stop":
            from agent.fleet.remote.stopping import stop

            stop(run_dir)
    except VcagentError as error:
        print(error, file=sys.stderr)  # noqa: T201 - to the controller
        return int(error.exit_code)
    return 0
