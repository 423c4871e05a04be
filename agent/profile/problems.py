"""Collects the problems of a profile, so that one error can list all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.core.errors import ProfileError

if TYPE_CHECKING:
    from agent.profile.schema import Location

_SHOWN = 50


@dataclass(frozen=True)
class Problem:
    """One problem of a profile.

    Args:
        location: the line.
        key: its place in the profile, such as ``actions[2].parameters.Model``; empty for the file as a whole.
        message: what is wrong.
        remedy: what to do, such as the nearest known name.
    """

    location: Location
    key: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return ``file:line: key: message; remedy``."""
        return ": ".join(filter(None, (str(self.location), self.key, self.message))) + (
            f"; {self.remedy}" if self.remedy else ""
        )


@dataclass
class Problems:
    """The problems found so far."""

    found: list[Problem] = field(default_factory=list)

    def add(self, location: Location, key: str, message: str, remedy: str = "") -> None:
        """Note a problem."""
        self.found.append(Problem(location, key, message, remedy))

    def raise_any(self) -> None:
        """Raise one error with all problems found.

        Raises:
            ProfileError: if there is a problem.
        """
        if not self.found:
            return
        first = self.found[0]
        if len(self.found) == 1:
            message = f"{first.key}: {first.message}" if first.key else first.message
            raise ProfileError(message, where=str(first.location), remedy=first.remedy or None)
        lines = [str(problem) for problem in self.found[:_SHOWN]]
        if len(self.found) > _SHOWN:
            lines.append(f"… and {len(self.found) - _SHOWN} more")
        raise ProfileError(f"{len(self.found)} problems", where=first.location.source, details=tuple(lines))
