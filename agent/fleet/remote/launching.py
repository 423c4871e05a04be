"""Starts a run that outlives the connection: in a transient systemd unit, or in a session of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING

from agent.core.errors import HostError
from agent.core.safe_files import append_bytes_to, make_folder
from agent.facts import Facts, LocalHost
from agent.facts.boot import SYSTEMD
from agent.fleet.remote.standing import END, OUTPUT, SUPERVISOR_LOCK, RunState, standing_of
from agent.run.resume_unit import program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.fleet.remote.standing import Standing

_START_S = 30.0
_PIPE = "request.pipe"


def launch(run_dir: Path, request: bytes, *, in_job: bool = False) -> Standing:
    """Start or resume a run; a run that is active or has ended is left as it is.

    Args:
        run_dir: the folder of the fleet run on this host.
        request: the request as JSON; it contains secrets and is not written to a file.
        in_job: whether the run belongs to a Slurm job and must stay inside it.

    Raises:
        HostError: if the run does not start.
    """
    before = standing_of(run_dir)
    if before.state is RunState.RUNNING:
        return before
    if before.state is RunState.ENDED and not json.loads(request)["resume"]:
        return before
    make_folder(run_dir, 0o700)
    (run_dir / END).unlink(missing_ok=True)
    (run_dir / SUPERVISOR_LOCK).unlink(missing_ok=True)
    command = [*program(sys.argv[0]), "fleet-host", "supervise", str(run_dir)]
    is_unit = not in_job and os.geteuid() == 0 and Facts(LocalHost())[SYSTEMD]
    if is_unit and shutil.which("systemd-run"):
        _in_unit(run_dir, command, request)
    else:
        _in_session(run_dir, command, request)
    _until(lambda: _taken_over(run_dir / SUPERVISOR_LOCK), run_dir)
    return standing_of(run_dir)


def _in_session(run_dir: Path, command: list[str], request: bytes) -> None:
    with append_bytes_to(run_dir / OUTPUT, 0o600) as output:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True, cwd=run_dir
        )
        _hand_over(process.stdin, request)


def _in_unit(run_dir: Path, command: list[str], request: bytes) -> None:
    """Start the run in a unit; the request goes through a named pipe, because unit settings are public."""
    pipe = run_dir / _PIPE
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe, 0o600)
    try:
        options = [
            "--quiet",
            "--collect",
            f"--unit={_unit(run_dir)}",
            f"--working-directory={run_dir}",
        ]
        started = subprocess.run(
            ["systemd-run", *options, "--property=TimeoutStopSec=60", *command, str(pipe)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_START_S, check=False,
        )  # fmt: skip
        if started.returncode:
            raise HostError(f"systemd did not start the run: {started.stderr.strip()}")
        opened: list[int] = []

        def reader_is_there() -> bool:
            try:
                opened.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True

        _until(reader_is_there, run_dir)
        os.set_blocking(opened[0], True)
        _hand_over(os.fdopen(opened[0], "wb"), request)
    finally:
        pipe.unlink(missing_ok=True)


def _taken_over(lock: Path) -> bool:
    """Return True if a supervisor has written its id: it holds the lock, or has ended."""
    return lock.is_file() and lock.stat().st_size > 0


def _unit(run_dir: Path) -> str:
    return "vcagent-fleet-" + re.sub(r"[^A-Za-z0-9:_.-]", "-", run_dir.name)


def _hand_over(pipe: IO[bytes] | None, request: bytes) -> None:
    if pipe is None:
        return
    values = json.loads(request)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SSH_", "SUDO_COMMAND"))
    }
    values["environment"] = {**kept, **values["environment"]}
    with pipe:
        pipe.write(json.dumps(values).encode())


def _until(condition: Callable[[], bool], run_dir: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not condition():
        if time.monotonic() > deadline:
            raise HostError(
                f"the run did not start within {_START_S:g} s", remedy=f"see {run_dir / OUTPUT} on the host"
            )
        time.sleep(0.01)
