"""A llama.cpp server as a profile asks for it."""

from __future__ import annotations

from pydantic import Field, model_validator

from agent.component.parameter_types import OptionalCount, OptionalPath, ParameterGroup, Seconds


class ServerParameters(ParameterGroup):
    """A llama.cpp server as a profile asks for it."""

    model: str = Field(description="GGUF file, or package:<module> of the environment that carries one.")
    parallel: int = Field(8, ge=1, description="Requests served at once (llama.cpp's slots).")
    context: int = Field(512, ge=16, description="Tokens of prompt and output, for each request.")
    threads: int = Field(0, ge=0, description="Compute threads; 0 for one for each usable CPU.")
    port: int = Field(0, ge=0, le=65535, description="TCP port on 127.0.0.1; 0 for any free one.")
    start_timeout: Seconds = Field(120.0, description="Seconds until it must answer; includes loading.")
    binary: OptionalPath = Field(None, description="A llama-server; without it xllamacpp of the environment.")
    gpu_layers: OptionalCount = Field(
        None, description="With binary: layers on GPUs; without it what it chooses."
    )
    arguments: tuple[str, ...] = Field((), description="With binary: further arguments of its own.")

    @model_validator(mode="after")
    def _of_the_binary(self) -> ServerParameters:
        if self.binary is None and (self.gpu_layers is not None or self.arguments):
            raise ValueError("gpu_layers and arguments are the binary's: name a llama-server as binary")
        return self
