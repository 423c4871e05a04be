"""The parameters of elements that only order others."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters
from agent.core.errors import ProfileError
from agent.core.names import canonical
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


def is_group(element: Element) -> bool:
    """Return True if an element only orders others."""
    return canonical(element.type) in _GROUPS


_GROUPS = frozenset(map(canonical, GROUPS))
