"""Run one LoadGen test in its own process: ``python -m harness config.json``.

Progress goes to standard output as JSON lines, messages for people to standard error, and the result to
``harness_result.json`` in the output folder. Exit code 0: completed (LoadGen's logs state whether the result
is valid); 1: failed; 2: the configuration cannot be used; 143: stopped by a signal.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from .config import HarnessConfig
from .errors import HarnessError
from .outputs import new_file
from .run import Run

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_TERMINATED = 143


def main(arguments: list[str]) -> int:
    """Run the test of the configuration file."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m harness config.json\n")
        return _EXIT_USAGE
    path = Path(arguments[0])
    try:
        config = HarnessConfig.read(path)
    except ValueError as error:
        return _refuse(path, HarnessError("config", str(error), "correct the harness's configuration"))
    # LoadGen's threads share the interpreter with the event loop: at the default of 5 ms one of them could
    # delay the other's query by that time.
    sys.setswitchinterval(0.0005)
    run = Run(config)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(run.execute())
        _write(run.output_dir, run.result(None))
    except HarnessError as error:
        _fail(run, error)
    except Exception as error:  # noqa: BLE001  (the last frame: the error becomes a failed result)
        _fail(run, run.internal(error))
    loop.close()
    return 0


def _fail(run: Run, error: HarnessError) -> NoReturn:
    """Write the failed result and exit immediately: LoadGen cannot stop a test."""
    _say(error)
    run.kill()
    try:
        _write(run.output_dir, run.result(error))
        run.close_outputs()
    except OSError as problem:
        sys.stderr.write(f"the result cannot be written to {run.output_dir}: {problem.strerror}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_EXIT_TERMINATED if error.kind == "interrupted" else _EXIT_FAILED)


def _refuse(path: Path, error: HarnessError) -> int:
    """Report that a configuration cannot be used, also in a result file if its folder is known."""
    _say(error)
    try:
        output_dir = Path(json.loads(path.read_text(encoding="utf-8"))["output_dir"])
        output_dir.mkdir(parents=True, exist_ok=True)
        _write(output_dir, {"status": "failed", "error": error.as_json()})
    except (OSError, ValueError, TypeError, KeyError):
        return _EXIT_USAGE  # no folder for a result file; the error is on standard error
    return _EXIT_USAGE


def _say(error: HarnessError) -> None:
    remedy = f" → {error.remedy}" if error.remedy else ""
    sys.stderr.write(f"{error.kind}: {error.message}{remedy}\n")


def _write(output_dir: Path, result: dict[str, Any]) -> None:
    """Write the result completely or not at all."""
    path = output_dir / "harness_result.json"
    partial = path.with_suffix(".json.partial")
    with new_file(partial) as file:
        json.dump(result, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
