"""Define the parameters of a llama.cpp server."""

from __future__ import annotations

from pydantic import Field, model_validator

from agent.component.parameter_types import OptionalCount, OptionalPath, ParameterGroup, Seconds


class ServerParameters(ParameterGroup):
    """Parameters of a llama.cpp server."""

    model: str = Field(
        description="GGUF file, or package:<module> of a package of the environment that contains one."
    )
    parallel: int = Field(8, ge=1, description="Concurrent requests (llama.cpp's slots).")
    context: int = Field(512, ge=16, description="Tokens of prompt and output per request.")
    threads: int = Field(0, ge=0, description="Compute threads; 0 for one per usable CPU.")
    port: int = Field(0, ge=0, le=65535, description="TCP port on 127.0.0.1; 0 selects a free one.")
    start_timeout: Seconds = Field(120.0, description="Time limit for the first answer, including loading.")
    binary: OptionalPath = Field(
        None, description="Path of a llama-server; if absent, xllamacpp of the environment serves."
    )
    gpu_layers: OptionalCount = Field(
        None, description="With binary: layers on GPUs; if absent, llama-server decides."
    )
    arguments: tuple[str, ...] = Field((), description="With binary: further arguments for it.")

    @model_validator(mode="after")
    def _of_the_binary(self) -> ServerParameters:
        if self.binary is None and (self.gpu_layers is not None or self.arguments):
            raise ValueError("gpu_layers and arguments need binary: set it to a llama-server")
        return self
