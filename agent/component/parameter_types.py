"""Parameter types that several workloads share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from agent.core.errors import ProfileError
from agent.core.names import canonical
from agent.core.timespan import parse_timespan


class ParameterGroup(BaseModel):
    """Parameters grouped under one of a component's parameters; names match as in components."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _accept_any_spelling(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        fields = {canonical(name): name for name in cls.model_fields}
        return {fields.get(canonical(str(key)), key): value for key, value in values.items()}


def _seconds(value: object) -> float:
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a duration: write seconds or hh:mm:ss")  # noqa: TRY004 - pydantic's way
    try:
        return parse_timespan(value)
    except ProfileError as error:
        raise ValueError(error.message) from error


Seconds = Annotated[float, BeforeValidator(_seconds)]
"""A duration in seconds; a profile may write it as ``90``, ``90s``, ``10min`` or ``00:01:30``."""


def laid_over(value: Any) -> Any:
    """Merge a list of mappings, later ones over earlier ones; an empty text changes nothing."""
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        return value
    merged: dict[Any, Any] = {}
    for part in parts:
        merged |= {name: entry for name, entry in part.items() if entry != ""}
    return merged


Share = Annotated[float, Field(gt=0, le=1)]
"""A ratio, above 0 and up to 1."""

OptionalCount = Annotated[
    Annotated[int, Field(ge=0)] | None, BeforeValidator(lambda value: None if value == "" else value)
]
"""A count; an empty text, as a profile's parameter may be, means none."""

OptionalPath = Annotated[Path | None, BeforeValidator(lambda value: value or None)]
"""A path; an empty text, as a profile's parameter may be, means none."""


def _words(value: Any) -> Any:
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
"""A list, or a text with commas."""
