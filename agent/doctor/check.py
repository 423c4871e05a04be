"""What a check finds, and how checks are made so that one that fails does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from agent.core.errors import VcagentError


class Status(str, Enum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Args:
        name: what was looked at.
        status: whether it is as it should be.
        message: what was found.
        remedy: what to do about it.
    """

    name: str
    status: Status
    message: str
    remedy: str = ""


Found = tuple[Status, str, str]
"""Status, message and remedy."""
Look = Callable[[], Found]


def look_at_all(looks: Mapping[str, Look]) -> list[Check]:
    """Make checks by name; a fact that cannot be read is a problem with the remedy of its error."""
    return [_guarded(name, look) for name, look in looks.items()]


def _guarded(name: str, look: Look) -> Check:
    try:
        return Check(name, *look())
    except VcagentError as error:
        return Check(name, Status.PROBLEM, error.message, error.remedy or "")
