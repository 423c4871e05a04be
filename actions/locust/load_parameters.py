"""Parameters of LocustLoad."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from actions.llamacpp.variants import NAME_PATTERN
from agent.component.component import ComponentParameters
from agent.component.parameter_types import Seconds  # noqa: TC001 - pydantic reads it


def _listed(value: Any) -> Any:
    """Return ``1,2,4,8`` as a list, and one number as a list of one."""
    if isinstance(value, str):
        return [part for part in re.split(r"[,\s]+", value.strip()) if part]
    return [value] if isinstance(value, int) else value


Users = Annotated[int, Field(ge=1)]


class LocustLoadParameters(ComponentParameters):
    """Parameters of load tests with several numbers of users."""

    model: str = Field(pattern=f"^{NAME_PATTERN}$", description="The model's name in the records.")
    variant: str = Field(
        "", description="The model's precision in the records, such as Q4_K_M; in upper case."
    )
    environment: Path = Field(description="Folder of the Python environment with locust.")
    endpoint: str = Field(
        description="URL of a running server, or service:<scenario of a LlamaCppServer in the same group>."
    )
    api: Literal["llamacpp", "openai"] = Field(
        "llamacpp", description="API: llama.cpp's own /completion, or /v1/completions of vLLM and others."
    )
    endpoint_model: str = Field("", description="The model to ask for; by default the first one served.")
    api_key_env: str = Field("", description="Environment variable that holds the endpoint's key.")
    request: dict[str, Any] = Field(default_factory=dict, description="Further fields of every request.")

    users: Annotated[tuple[Users, ...], BeforeValidator(_listed)] = Field(
        (1, 2, 4, 8), min_length=1, description="Numbers of concurrent users: a test for each."
    )
    spawn_rate: float | None = Field(
        None, gt=0, description="Number of users that start per second; if absent, all start at once."
    )
    duration: Seconds = Field(
        60.0, description="Time during which users send requests; running requests are then completed."
    )
    input_tokens: int = Field(2560, ge=1, description="Exact number of tokens of each prompt.")
    output_tokens: int = Field(768, ge=1, description="Exact number of tokens of each reply.")
    context: int | None = Field(
        None, ge=1, description="The server's context per request in tokens, if known before the run."
    )
    request_timeout: Seconds = Field(600.0, description="Time limit for a request.")
    workers: int = Field(
        0, ge=0, description="Number of processes for the users (locust's workers); 0: one per 50 users."
    )
    web_port: int = Field(
        0, ge=0, le=65535, description="Port of locust's web page on 127.0.0.1 during a test; 0 for none."
    )
    warmup_requests: int = Field(1, ge=0, description="Uncounted requests before the first test.")
    seed: int = Field(1, description="The same seed gives the same prompts.")

    @field_validator("variant")
    @classmethod
    def _a_name(cls, value: str) -> str:
        if value and not re.fullmatch(NAME_PATTERN, value):
            raise ValueError("letters, digits, '.', '_' and '-'")
        return value.upper()

    @field_validator("users")
    @classmethod
    def _once_each(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _fits(self) -> LocustLoadParameters:
        if self.context is not None and self.context < self.needed_context:
            raise ValueError(
                f"the server's context of {self.context} tokens is too small for {self.input_tokens} in and "
                f"{self.output_tokens} out: it must hold {self.needed_context}"
            )
        return self

    @property
    def needed_context(self) -> int:
        """Context for a request in tokens; one extra, since llama.cpp calls a full context truncated."""
        return self.input_tokens + self.output_tokens + 1

    def case(self, users: int) -> str:
        """Return the scenario of the records with this number of users."""
        return "/".join(filter(None, (self.model, self.variant, f"load-{users}")))
