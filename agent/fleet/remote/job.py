"""A task of a Slurm job array on its node: runs the agent, reports its status, and copies the results.

The node and the controller exchange complete files through a shared folder, put in place by renaming. The
run itself, its journal and its locks stay on the node's own disk until the end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.errors import ExitCode
from agent.core.safe_files import copy_file, make_folder
from agent.fleet.remote.launching import launch
from agent.fleet.remote.sending import offered_files
from agent.fleet.remote.standing import RunState, Standing
from agent.fleet.remote.stopping import stop
from agent.fleet.remote.watching import standings
from agent.store.results import write_json

if TYPE_CHECKING:
    from types import FrameType

STANDING_SUFFIX = ".standing"
WANTS_SUFFIX = ".wants"
PIPE = "request.pipe"


def run_job(order_file: Path, work: Path) -> int:
    """Run a task; return the exit code of its run.

    Args:
        order_file: ``task-N.json`` in the shared folder: the request, and the folder for the results.
        work: a temporary folder on the node, which is removed at the end.
    """
    order = json.loads(order_file.read_text(encoding="utf-8"))
    run_dir = work / order["run"]
    run_dir.mkdir(mode=0o700)
    try:
        request = order["request"] or _handed_over(order_file, run_dir / PIPE)

        def interrupt(_number: int, _frame: FrameType | None) -> None:
            stop(run_dir)

        signal.signal(signal.SIGTERM, interrupt)
        standing = launch(run_dir, json.dumps(request).encode(), in_job=True)
        for standing in standings(run_dir):
            if standing.state is RunState.RUNNING:
                _tell(order_file, standing)
        end = _brought_home(run_dir, Path(order["home"]), standing)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _tell(order_file, end)
    return int(ExitCode.UNEXPECTED if end.exit_code is None else end.exit_code)


def _handed_over(order_file: Path, pipe: Path) -> dict[str, Any]:
    """Return a request with secrets; it is read from a pipe and kept only in memory."""
    os.mkfifo(pipe, 0o600)
    write_json(order_file.with_suffix(WANTS_SUFFIX), {"pipe": str(pipe)})
    request: dict[str, Any] = json.loads(pipe.read_bytes())
    return request


def _tell(order_file: Path, standing: Standing) -> None:
    write_json(order_file.with_suffix(STANDING_SUFFIX), json.loads(standing.to_json()))


def _brought_home(run_dir: Path, home: Path, standing: Standing) -> Standing:
    """Copy the run's files to the shared folder; return the standing, with an error if that fails."""
    try:
        for name, path in offered_files(run_dir):
            target = home / name
            make_folder(target.parent)
            copy_file(path, target)
    except OSError as error:
        told = f"the results cannot be copied to {home}: {error.strerror or error}"
        return replace(standing, exit_code=int(ExitCode.HOST_CANNOT_RUN), error=told)
    return standing
