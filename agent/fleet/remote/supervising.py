"""The process that carries out a run on a host, detached from the connection."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from agent.core.errors import ExitCode, VcagentError, unexpected
from agent.core.safe_files import open_file
from agent.facts import Facts, LocalHost
from agent.facts.boot import BOOT
from agent.fleet.remote.machine_lock import machine_for_itself
from agent.fleet.remote.standing import END, OUTPUT, RESULTS, SUPERVISOR_LOCK
from agent.store.results import open_own, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from agent.run.session import FinishedRun


def supervise(run_dir: Path, pipe: Path | None) -> int:
    """Carry out a run; return its exit code.

    Args:
        run_dir: the folder of the fleet run on this host.
        pipe: a pipe with the request; None for standard input.
    """
    os.umask(0o077)
    lock = open_own(run_dir / SUPERVISOR_LOCK)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.write(lock, json.dumps({"pid": os.getpid()}).encode())
    source = pipe.open("rb") if pipe else sys.stdin.buffer
    with source:
        values = json.loads(source.read())
    output = open_file(run_dir / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
    os.environ.clear()
    os.environ.update(values["environment"])
    end: dict[str, Any] = {"exit_code": int(ExitCode.UNEXPECTED), "error": ""}
    try:
        with machine_for_itself(run_dir):
            outcome = _run(run_dir, values).outcome
        end.update(exit_code=int(outcome.exit_code), error=_masked(str(outcome.error or ""), values))
    except VcagentError as error:
        end.update(exit_code=int(error.exit_code), error=_masked(str(error), values))
    except Exception as error:  # noqa: BLE001 - the controller reports any error
        end["error"] = _masked(str(unexpected(error, "the agent")), values)
    if end["error"]:
        print(f"error: {end['error']}", file=sys.stderr, flush=True)  # noqa: T201 - to the controller
    write_json(run_dir / END, {**end, "boot": Facts(LocalHost())[BOOT]})
    os.close(lock)
    return int(end["exit_code"])


def _run(run_dir: Path, values: dict[str, Any]) -> FinishedRun:
    from agent.core.progress import PlainProgress
    from agent.profile import Source
    from agent.run.request import RunRequest
    from agent.run.session import resume, start
    from agent.store.results import ResultsFolder

    progress = PlainProgress(sys.stderr)
    given = values["request"]
    results = run_dir / RESULTS
    sources = [Source(**source) for source in values["sources"]]
    if ResultsFolder(results).runs():
        return resume(
            results, None, progress, given["parameters"], allow_reboot=given["allow_reboot"], sources=sources
        )
    request = RunRequest.from_json({**given, "results_dir": str(results)}, given["parameters"])
    return start(request, progress, sources=sources)


def _masked(text: str, values: dict[str, Any]) -> str:
    from agent.core.secrets import Secrets

    return Secrets(mappings=[values["request"]["parameters"]], environment=os.environ).mask(text)
