"""Check the user's files while a plan is made: before hours of building, not after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError, HostError
from agent.facts.agent_paths import lift_of_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.facts import Facts


def _open(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ActionFailedError(
            f"{path} cannot be read: {error.strerror}", remedy="correct the path"
        ) from error


def require_readable(facts: Facts, path: Path, check: Callable[[Path], object] = _open) -> None:
    """Refuse a plan if its input cannot be used.

    Args:
        facts: the facts of the host.
        path: the input.
        check: checks the input; raises ActionFailedError if it cannot be used.

    Raises:
        HostError: if the input cannot be used, and no step of the run is expected to create it.
    """
    lifted_by = lift_of_path(facts, path)
    if lifted_by is None and not path.exists():
        return  # an earlier step may create files in the package folder
    try:
        check(path)
    except ActionFailedError as error:
        raise HostError(
            error.message, remedy=error.remedy, details=error.details, lifted_by=lifted_by
        ) from error
