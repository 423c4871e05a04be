"""Runs one of our programs with another environment's Python: its progress, and its result.

``in_environment/run_program.py`` runs the program. It takes the path of a JSON file that holds the program's
configuration, and in ``result`` the path for its result. Now and then it writes a progress line to standard
output, such as ``{"event": "progress", "message": "…", "done": 1, "total": 2}``. The result is an object with
``status``: ``completed``, or ``failed`` with ``error`` (``kind``, ``message``, ``remedy``).
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.errors import ActionFailedError
from agent.core.progress import PROGRESS_EVENT
from agent.core.safe_files import make_folder, replace_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.component.component import StepContext
    from agent.core.progress import Progress

RUNNER = Path(__file__).with_name("in_environment") / "run_program.py"
"""The script that runs a program; a container needs it at the same path."""

_LAST_LINES = 10


def interpreter(environment: Path) -> Path:
    """Return the Python of an environment."""
    return environment / "bin" / "python"


def program_command(environment: Path, module: str) -> list[str]:
    """Return the command line of a program; the path of its configuration follows it.

    Args:
        environment: the Python environment that runs it.
        module: its module, which PYTHONPATH must lead to.
    """
    return [str(interpreter(environment)), str(RUNNER), module]


def run_script(
    command: Sequence[str],
    config: Mapping[str, Any],
    *,
    context: StepContext,
    path: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Run the program to its end and return its result.

    Args:
        command: the interpreter and the program; the configuration's path is appended.
        config: the program's configuration.
        context: the step that it is a part of.
        path: the path for the configuration; the result is in the same folder.
        env: variables added to the agent's own.
        timeout_s: seconds after which it is ended.

    Raises:
        ActionFailedError: if it failed, with its own reason and remedy, or left no result.
        InterruptedRunError: if the run was stopped.
    """
    result_path = path.with_name(f"{path.stem}_result.json")
    result_path.unlink(missing_ok=True)
    make_folder(path.parent)
    asked = {**config, "result": str(result_path)}
    replace_text(path, json.dumps(asked, indent=2) + "\n", 0o600)
    ended = context.processes.run(
        [*command, str(path)],
        log=context.log,
        env={"PYTHONUNBUFFERED": "1", **(env or {})},
        timeout_s=timeout_s,
        check=False,
        on_line=lambda line: _show(line, context.progress),
    )
    if ended.timed_out:
        raise ActionFailedError(
            f"it did not end within {timeout_s:g} s and was stopped", remedy="raise timeout"
        )
    result = read_result(result_path)
    if result is None or (ended.exit_code != 0 and result.get("status") == "completed"):
        how = f"signal {-ended.exit_code}" if ended.exit_code < 0 else f"exit code {ended.exit_code}"
        raise ActionFailedError(
            f"{command[-1]} ended with {how} and left no result",
            remedy=f"its output is in {ended.log}",
            details=tuple((ended.stderr or ended.stdout).splitlines()[-_LAST_LINES:]),
        )
    if result.get("status") != "completed":
        error = result.get("error") or {}
        raise ActionFailedError(
            str(error.get("message") or "it failed and does not say why"),
            remedy=str(error.get("remedy") or f"see {ended.log}"),
        )
    return result


def _show(line: str, progress: Progress) -> None:
    if not line.startswith(PROGRESS_EVENT):
        return
    with suppress(ValueError, KeyError, TypeError):  # an incomplete line: the next has the same information
        told = json.loads(line)
        progress.update(str(told["message"]), done=told.get("done"), total=told.get("total"))


def read_result(path: Path) -> dict[str, Any] | None:
    """Return the object that a program left as its result, or None."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None
