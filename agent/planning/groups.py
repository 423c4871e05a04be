"""The parameters of elements that only order others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator
from typing_extensions import Self

from agent.component.component import ComponentParameters
from agent.core.errors import ProfileError
from agent.core.names import canonical
from agent.core.progress import duration
from agent.profile import GROUPS, Element, parse_timespan


class GroupParameters(ComponentParameters):
    """LoopCount of SequentialExecution; Duration and MinimumIterations of ParallelLoopExecution."""

    loop_count: int = Field(1, ge=1, description="How often its components are run, one after the other.")
    duration: float = Field(
        0.0, ge=0, description="How long each component is repeated, seconds or hh:mm:ss."
    )
    minimum_iterations: int = Field(1, ge=1, description="Least number of runs of each component.")

    @field_validator("duration", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        try:
            return parse_timespan(value) if isinstance(value, str) else value
        except ProfileError as error:
            raise ValueError(error.message) from error


@dataclass(frozen=True)
class PlannedGroup:
    """A group of a plan.

    Args:
        element: the group.
        loops: the number of times that its members run, at least.
        duration_s: for a ParallelLoopExecution, the seconds for which each member is repeated.
        scenario: its scenario; empty if it has none.
    """

    element: Element
    loops: int = 1
    duration_s: float = 0.0
    scenario: str = ""

    @classmethod
    def of(cls, element: Element, parameters: GroupParameters, scenario: str) -> Self:
        """Return the group of an element; parameters that its type does not use are ignored."""
        match canonical(element.type):
            case "sequentialexecution":
                return cls(element, parameters.loop_count, scenario=scenario)
            case "parallelloopexecution":
                return cls(element, parameters.minimum_iterations, parameters.duration, scenario)
            case _:
                return cls(element, scenario=scenario)

    @property
    def order(self) -> str:
        """The order of its members, for people."""
        kind = canonical(self.element.type)
        if kind == "parallelexecution":
            return "at the same time"
        if kind == "parallelloopexecution":
            each = f"each repeated for {duration(self.duration_s)}" if self.duration_s else "each repeated"
            least = f", at least {self.loops} times" if self.loops > 1 else ""
            return f"at the same time, {each}{least}"
        return f"{self.loops} times, one after the other" if self.loops > 1 else "one after the other"

    def scopes(self, scope: str) -> list[str]:
        """Return the beginnings of its members' keys in the journal, one for each known loop.

        Args:
            scope: the beginning of the group's own key.
        """
        if canonical(self.element.type) == "parallelexecution":
            return [scope]
        return [f"{scope}{self.element.key}@{loop}:" for loop in range(1, self.loops + 1)]


def is_group(element: Element) -> bool:
    """Return True if an element only orders others."""
    return canonical(element.type) in _GROUPS


_GROUPS = frozenset(map(canonical, GROUPS))
