"""Parameters of LmEvalExecutor."""

from __future__ import annotations

import re
from collections.abc import Iterator  # noqa: TC003 - pydantic's models are read at run time
from pathlib import Path  # noqa: TC003 - likewise
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from actions.llamacpp.server_parameters import ServerParameters  # noqa: TC001 - likewise
from agent.component.component import ComponentParameters
from agent.component.container_parameters import OptionalContainer  # noqa: TC001 - likewise
from agent.component.parameter_types import OptionalCount, Seconds, Share, laid_over

_LIST = re.compile(r"[,;\s]+")
_OWN_ARGUMENTS = ("pretrained", "base_url", "model", "load_format")


class LmEvalParameters(ComponentParameters):
    """Parameters of one run of lm-eval."""

    model: str = Field(description="The model's name in the records, such as llama3.1-8b.")
    environment: Path = Field(description="Folder of the Python environment with lm-eval.")
    container: OptionalContainer = Field(
        None,
        description="The container to run in, or its image; environment is inside it, or mounted.",
    )
    backend: Literal["vllm", "hf", "local-completions", "llama-cpp"] = Field(
        "vllm",
        description="The engine: vLLM or transformers in lm-eval's process, an endpoint that echoes "
        "log-probabilities, or llama.cpp's server.",
    )
    model_path: str = Field(
        "", description="Folder or hub name of the model; for an endpoint, of its tokenizer."
    )
    endpoint: str = Field("", description="local-completions, llama-cpp: URL of the running server.")
    endpoint_model: str = Field("", description="Name of the model at the endpoint; by default model.")
    server: ServerParameters | None = Field(None, description="llama-cpp: a server to start for the run.")
    server_environment: Path | None = Field(
        None, description="Environment of that server; by default lm-eval's."
    )
    api_key_env: str = Field("", description="Environment variable that holds the endpoint's key.")
    model_args: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Further arguments of lm-eval's model, such as {dtype: bfloat16}; or a list of them, "
        "the later ones override the earlier ones.",
    )
    load_format: Literal["auto", "dummy"] = Field(
        "auto", description="dummy: random weights (vllm); no question is asked or judged."
    )

    gpus: OptionalCount = Field(
        None, description="vllm, hf: number of GPUs to use, those with the most free memory; by default all."
    )

    tasks: tuple[str, ...] = Field(("mmlu",), min_length=1, description="Tasks and groups of lm-eval.")
    include_path: Path | None = Field(
        None, description="Folder of further task files; paths in them are relative to it."
    )
    offline: bool = Field(
        False, description="Do not contact the hub: models and data sets come from its cache."
    )
    num_fewshot: int | None = Field(
        None, ge=0, description="Few-shot examples for each question; by default the task's number."
    )
    limit: float | None = Field(
        None, gt=0, description="Number of questions of each task; below 1, a share of them."
    )
    batch_size: str = Field(
        "auto", pattern=r"^(auto(:\d+)?|[1-9]\d*)$", description="Number of questions in a batch."
    )
    seed: int = Field(1234, description="Seed for the choice of examples.")
    chat_template: bool = Field(False, description="Format the questions with the model's chat template.")
    timeout: Seconds | None = Field(None, description="Time limit for the run; seconds or hh:mm:ss.")
    folder: str = Field(
        "lm_eval",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Folder of its cases in the run.",
    )

    reference: dict[str, Share] = Field(
        default_factory=dict, description="Expected accuracy of tasks, 0 to 1, such as {mmlu: 0.68}."
    )
    threshold: Share = Field(0.99, description="Minimum share of the reference for a valid result.")

    @field_validator("tasks", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [name for name in _LIST.split(value) if name] if isinstance(value, str) else value

    @field_validator("batch_size", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("model_args", mode="before")
    @classmethod
    def _laid_over(cls, value: Any) -> Any:
        return laid_over(value)

    @field_validator("include_path", "limit", "num_fewshot", "server", mode="before")
    @classmethod
    def _absent(cls, value: Any) -> Any:
        return None if value in ("", {}) else value

    @model_validator(mode="after")
    def _fit_together(self) -> LmEvalParameters:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        in_process = self.backend in ("vllm", "hf")
        if in_process and not self.model_path:
            yield f"model_path is missing: the model that {self.backend} loads"
        if in_process and (self.endpoint or self.server):
            yield f"endpoint and server have no effect with {self.backend}, which loads the model itself"
        if not in_process and bool(self.endpoint) == bool(self.server):
            yield "give the endpoint of a running server" + (
                ", or a server to start" if self.backend == "llama-cpp" else ""
            )
        if self.server and self.backend == "local-completions":
            yield "llama.cpp's server does not echo log-probabilities: use backend llama-cpp"
        if self.load_format == "dummy" and self.backend != "vllm":
            yield "load_format dummy is only for vllm"
        for name, value in self.model_args.items():
            if name in _OWN_ARGUMENTS or "," in str(value) or "=" in name:
                yield f"model_args: {name} is set by another parameter, or cannot be written for lm-eval"
        if unknown := [name for name in self.reference if name not in self.tasks]:
            yield f"reference: {', '.join(unknown)} is not one of the tasks {', '.join(self.tasks)}"

    @property
    def case(self) -> str:
        """Name of the folder of raw results."""
        name = self.scenario or f"{self.model}-{'-'.join(self.tasks)}"
        return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".").lower()
