"""Run a program of ``model_files`` with the Python of a benchmark's environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.component.environment_script import interpreter, program_command, run_script
from agent.core.errors import ActionFailedError, DependencyFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.component import StepContext

PROGRAMS = Path(__file__).with_name("in_environment")
"""The folder of the programs, for PYTHONPATH."""


def require_environment(environment: Path) -> None:
    """Check that a Python environment exists.

    Raises:
        DependencyFailedError: if it does not.
    """
    if not interpreter(environment).exists():
        raise DependencyFailedError(
            f"{environment} is not a Python environment",
            remedy="put a PythonEnvironmentInstallation with what it needs before this dependency",
        )


def run_module(
    environment: Path, module: str, config: Mapping[str, Any], *, context: StepContext
) -> dict[str, Any]:
    """Run a module to its end and return its result; a token may come from the working folder's ``.env``.

    Args:
        environment: the environment whose Python runs the module.
        module: the dotted name of the module.
        config: the configuration of the module.
        context: the context of the step.

    Raises:
        DependencyFailedError: if it fails, with its own reason and remedy, or leaves no result.
        InterruptedRunError: if the run was interrupted.
    """
    try:
        return run_script(
            program_command(environment, module),
            {**config, "dotenv": str(Path(".env").absolute())},
            context=context,
            path=context.log.with_suffix(".json"),
            env={"PYTHONPATH": str(PROGRAMS)},
        )
    except ActionFailedError as error:
        raise DependencyFailedError(error.message, remedy=error.remedy, details=error.details) from error
