"""Parameters of EndpointSweep."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from agent.component.component import ComponentParameters
from agent.component.parameter_types import (  # noqa: TC001 - pydantic reads it
    OptionalPath,
    Seconds,
    Share,
)
from parsers.endpoint_load.requests import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

_MS_PER_S = 1000.0


def _listed(value: Any) -> Any:
    """Return ``1,2,4,8`` as a list, one number as a list of one, and an empty text as an empty list."""
    if isinstance(value, str):
        return [part for part in re.split(r"[,\s]+", value.strip()) if part]
    return [value] if isinstance(value, int | float) else value


def _absent_if_empty(value: Any) -> Any:
    return None if value == "" else value


def _given(value: Any) -> Any:
    if not value:
        raise ValueError("give the URL of the server, such as http://127.0.0.1:8000")
    return value


_Rate = Annotated[float, Field(gt=0)]
_Count = Annotated[int, Field(ge=1)]
_OptionalLimit = Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(_absent_if_empty)]


class EndpointSweepParameters(ComponentParameters):
    """Parameters of a sweep: points of concurrency and rate, and the search for the highest rate."""

    model: str = Field(
        "endpoint", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="The model's name in the records."
    )
    environment: Path = Field(description="Folder of the Python environment that has aiohttp.")
    endpoint: Annotated[str, BeforeValidator(_given)] = Field(
        description="URL of an OpenAI-compatible server, or service:<scenario of a server in the "
        "same group>.",
    )
    endpoint_model: str = Field("", description="The model to ask for; by default the first one served.")
    api: Literal["completions", "chat"] = Field(
        "completions", description="/v1/completions or /v1/chat/completions."
    )
    api_key_env: str = Field("", description="Environment variable that holds the endpoint's key.")
    api_key_file: OptionalPath = Field(None, description="File that holds the endpoint's key.")
    request: dict[str, Any] = Field(
        default_factory=lambda: {"ignore_eos": True, "temperature": 0},
        description="Further fields of every request; {} for an endpoint that takes no ignore_eos.",
    )
    connect_timeout: Seconds = Field(
        10.0, description="Time limit for the endpoint to answer with its model loaded."
    )
    request_timeout: Seconds = Field(300.0, description="Time limit for one request.")
    max_in_flight: int = Field(8192, ge=1, description="Maximum number of concurrent requests.")

    input_tokens: int = Field(512, ge=1, description="Tokens of each prompt.")
    output_tokens: int = Field(128, ge=1, description="Tokens of each answer.")
    prompts: Literal["", "tokens", "text"] = Field(
        "",
        description="Prompts as token ids (exact lengths) or as text; by default tokens; text for chat.",
    )
    trace_file: OptionalPath = Field(
        None, description="A trace that sets lengths and arrivals (Mooncake's JSON lines, Azure's CSV)."
    )
    seed: int = Field(1, description="The same seed gives the same prompts and arrivals.")

    concurrency: Annotated[tuple[_Count, ...], BeforeValidator(_listed)] = Field(
        (1, 2, 4, 8, 16, 32), description="Numbers of concurrent requests: one point for each."
    )
    rates: Annotated[tuple[_Rate, ...], BeforeValidator(_listed)] = Field(
        (),
        description="Rates in requests/s: one point for each, with Poisson arrivals or the stretched trace.",
    )
    duration: Seconds = Field(30.0, gt=0, description="Time during which a point sends requests.")
    least_requests: int = Field(
        200, ge=1, description="Minimum number of requests of a point with a rate; extends its duration."
    )
    most_requests: int = Field(5000, ge=1, description="Maximum number of requests of a point.")
    repeats: int = Field(1, ge=1, description="Runs of each point, each with its own arrivals and prompts.")
    warmup_requests: int = Field(4, ge=0, description="Uncounted requests before each point.")

    ttft_limit_ms: _OptionalLimit = Field(None, description="Limit of the time to the first token, ms.")
    tpot_limit_ms: _OptionalLimit = Field(None, description="Limit of the time per output token, ms.")
    latency_limit_ms: _OptionalLimit = Field(None, description="Limit of the end-to-end latency, ms.")
    limit_percentile: float = Field(
        99.0,
        gt=0,
        lt=100,
        description="A rate holds if this percentile of each limited time is within the limit.",
    )
    limit_share: Annotated[Share | None, BeforeValidator(_absent_if_empty)] = Field(
        None, description="Instead: a rate holds if this share of requests meets all limits (0.99)."
    )
    search: bool = Field(default=True, description="Look for the highest rate that holds.")
    rate_precision: Share = Field(
        0.05,
        lt=1,
        description="Target distance between the highest rate that holds and the lowest that does not.",
    )
    most_trials: int = Field(12, ge=1, description="Maximum number of rates that the search tries.")
    confirmations: int = Field(
        2, ge=0, description="Further runs at the rate found, with new arrivals; it must hold in each."
    )

    @field_validator("concurrency", "rates")
    @classmethod
    def _once_each_upwards(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _fit_together(self) -> EndpointSweepParameters:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        if self.api_key_env and self.api_key_file:
            yield "api_key_env and api_key_file: give one of them"
        if self.api == "chat" and self.prompts == "tokens":
            yield "prompts are tokens, but the chat API takes only texts: remove prompts"
        if self.least_requests > self.most_requests:
            yield f"least_requests {self.least_requests} is above most_requests {self.most_requests}"
        if not (self.concurrency or self.rates or self.trace_file or self.searches):
            yield "nothing to measure: give concurrency, rates or a limit to search for"
        if self.limit_share is not None and not self.limits:
            yield "limit_share needs a limit: give ttft_limit_ms, tpot_limit_ms or latency_limit_ms"

    @property
    def limits(self) -> Limits:
        """Limits in seconds."""
        given = (self.ttft_limit_ms, self.tpot_limit_ms, self.latency_limit_ms)
        return Limits(*(None if limit is None else limit / _MS_PER_S for limit in given))

    @property
    def searches(self) -> bool:
        """True if the sweep searches for the highest rate; it cannot without limits."""
        return self.search and bool(self.limits)

    @property
    def as_text(self) -> bool:
        """True if prompts are sent as text."""
        return self.prompts == "text" or (self.api == "chat" and not self.prompts)
