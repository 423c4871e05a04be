"""Results of checks, run so that a failing check does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from agent.core.errors import VcagentError


class Status(str, Enum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: the subject.
        status: the result.
        message: the finding.
        remedy: the remedy.
    """

    name: str
    status: Status
    message: str
    remedy: str = ""


Found = tuple[Status, str, str]
"""Status, message and remedy."""
Look = Callable[[], Found]


def look_at_all(looks: Mapping[str, Look]) -> list[Check]:
    """Run checks by name; a fact that cannot be read is a problem with the remedy of its error."""
    return [_guarded(name, look) for name, look in looks.items()]


def _guarded(name: str, look: Look) -> Check:
    try:
        return Check(name, *look())
    except VcagentError as error:
        return Check(name, Status.PROBLEM, error.message, error.remedy or "")
