"""Run a program of ``model_files`` with the Python of a benchmark's environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.component.environment_script import interpreter, program_command, run_script
from agent.core.errors import ActionFailedError, DependencyFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.component import StepContext

_PROGRAMS = Path(__file__).with_name("in_environment")


def require_environment(environment: Path) -> None:
    """Make sure that an environment is there.

    Raises:
        DependencyFailedError: if it is not.
    """
    if not interpreter(environment).exists():
        raise DependencyFailedError(
            f"{environment} is no Python environment",
            remedy="put a PythonEnvironmentInstallation with what it needs before this dependency",
        )


def run_module(
    environment: Path, module: str, config: Mapping[str, Any], *, context: StepContext
) -> dict[str, Any]:
    """Run a module to its end and return its result; a token is taken from the working folder's ``.env`` too.

    Args:
        environment: whose Python runs it.
        module: its dotted name.
        config: what it is asked.
        context: the step that it is a part of.

    Raises:
        DependencyFailedError: if it failed, with its own reason and remedy, or left no result.
        InterruptedRunError: if the run was told to stop.
    """
    try:
        return run_script(
            program_command(environment, module),
            {**config, "dotenv": str(Path(".env").absolute())},
            context=context,
            path=context.log.with_suffix(".json"),
            env={"PYTHONPATH": str(_PROGRAMS)},
        )
    except ActionFailedError as error:
        raise DependencyFailedError(error.message, remedy=error.remedy, details=error.details) from error
