"""Parameters of LoadGenExecutor."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from actions.llamacpp.server_parameters import ServerParameters  # noqa: TC001 - likewise
from actions.loadgen.eos_tokens import known_eos
from actions.loadgen.in_environment.harness.backends.vllm_own import CLOSED, OPEN, refused
from actions.loadgen.sample_sets import SYNTHETIC
from agent.component.component import ComponentParameters
from agent.component.container_parameters import OptionalContainer  # noqa: TC001 - pydantic reads it
from agent.component.parameter_types import Seconds, Share, laid_over
from agent.core.mlperf import TESTS_NOT_RUN, why_not_run
from gpu_configs.vllm_engine import SERVER_SCENARIOS, VllmParameters
from parsers.mlperf_accuracy.targets import SCORES, rounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_HUNDRED = 100.0
AUTO = "auto"
"""Value of a load that the test searches for."""
_MOST_SHARE = 2


def as_share(load: float | str | None) -> float | None:
    """Return the share (0.6) in ``60%``; None if the load is not a percentage."""
    match = _PERCENT.fullmatch(load) if isinstance(load, str) else None
    return float(match[1]) / _HUNDRED if match else None


def _load(value: Any) -> Any:
    if isinstance(value, str):
        if value.strip().lower() == AUTO:
            return AUTO
        share = as_share(value)
        if share is None:
            try:
                return float(value)
            except ValueError:
                raise ValueError(
                    f"{value!r} is neither a number, a percentage such as 60%, nor {AUTO}"
                ) from None
        if not 0 < share <= _MOST_SHARE:
            raise ValueError(f"{value} must be above 0 % and at most {_MOST_SHARE:.0%} of the measured load")
    return value


Load = Annotated[float | str, BeforeValidator(_load)]
"""A number, or a percentage of the load that the warm-up measures."""

ONLY_IN: Mapping[str, tuple[str, ...]] = {
    "target_qps": ("Offline", *SERVER_SCENARIOS),
    "target_latency_ms": ("SingleStream", "MultiStream", *SERVER_SCENARIOS),
    "ttft_latency_ms": SERVER_SCENARIOS,
    "tpot_latency_ms": SERVER_SCENARIOS,
    "samples_per_query": ("MultiStream",),
}
"""Parameters that LoadGen reads only in these scenarios, and would ignore in others."""

Milliseconds = Annotated[float, Field(gt=0)]


class HarnessVllmParameters(VllmParameters):
    """vLLM in the harness's process; a line ``model`` of llm_config is the model that is loaded."""

    @model_validator(mode="before")
    @classmethod
    def _takes_the_model_line(cls, values: Any) -> Any:
        config = laid_over(values.get("llm_config")) if isinstance(values, dict) else None
        if not isinstance(config, dict) or "model" not in config:
            return values
        rest = {name: value for name, value in config.items() if name != "model"}
        return {**values, "model": config["model"], "llm_config": rest}

    @field_validator("llm_config")
    @classmethod
    def _leaves_fixed_arguments(cls, value: dict[str, Any]) -> dict[str, Any]:
        if problem := refused(value, OPEN):
            raise ValueError(problem)
        return value


class LoadGenParameters(ComponentParameters):
    """Parameters of one LoadGen test: a scenario in a mode."""

    model: str = Field(description="The model's name in the records, such as llama3.1-8b.")
    loadgen_model: str = Field(
        "", description="Its name in LoadGen's configuration; by default the model's, with _ for dots."
    )
    loadgen_scenario: Literal["Offline", "Server", "Interactive", "SingleStream", "MultiStream"] = Field(
        description="LoadGen's scenario; Interactive is Server with the interactive limits."
    )
    mode: Literal["performance", "accuracy", "TEST06"] = Field(
        "performance",
        description="Mode of the test; TEST06 is MLPerf's compliance test of language models, a short "
        "performance run whose logged answers are verified.",
    )
    eos_token_ids: tuple[int, ...] = Field(
        (),
        description="TEST06: the model's end-of-text tokens; by default those of vLLM's model or MLPerf's.",
    )
    environment: Path = Field(description="Folder of the Python environment with LoadGen.")

    container: OptionalContainer = Field(
        None,
        description="The container to run the test in; environment is a folder of its image, or one of the "
        "host, which is mounted.",
    )

    endpoint: str = Field(
        "",
        description="URL of a running OpenAI-compatible server, or service:<scenario of a server in the same "
        "group>; or give server.",
    )
    endpoint_model: str = Field(
        "", description="Name of the model at the endpoint; if empty, it must serve one named like model."
    )
    server: ServerParameters | None = Field(None, description="A llama.cpp server to start for the test.")
    vllm: HarnessVllmParameters | None = Field(None, description="vLLM in the harness's process.")
    api_key_env: str = Field("", description="Environment variable that holds the endpoint's key.")
    api_key_file: Path | None = Field(None, description="File that holds the endpoint's key.")
    request: dict[str, Any] = Field(default_factory=dict, description="Further fields of every request.")
    connect_timeout: Seconds = Field(
        10.0, description="Time limit for the endpoint to have its model loaded."
    )
    max_in_flight: int = Field(512, ge=1, description="Maximum number of concurrent requests.")

    division: Literal["closed", "open"] = Field(
        CLOSED,
        description="MLPerf's division. In the open one, prefix caching may be on; the result says so.",
    )

    dataset: str = Field("short-prompts", description="A shipped set, a file of JSON lines, or synthetic.")
    samples: int | None = Field(
        None, ge=1, description="Use only this many samples, from the first; synthetic: 256."
    )
    input_tokens: int = Field(128, ge=1, description="Synthetic: mean input length, in tokens.")
    input_tokens_max: int | None = Field(
        None,
        ge=1,
        description="Longest input, in tokens. Synthetic: by default the mean. In any other set, longer "
        "samples are skipped.",
    )
    seed: int = Field(1, description="Synthetic: the same seed gives the same samples.")

    target_qps: Load | None = Field(
        None,
        description="Queries/s to offer (Server) or to expect (Offline); or 60% of the warm-up's rate; "
        "Offline up to 200%, so that the test is not too short; or auto: the highest load that is valid.",
    )
    target_latency_ms: Load | None = Field(
        None,
        description="SingleStream, MultiStream: expected latency, or a percentage of the warm-up's; "
        "Server: p99 limit of whole answers, in place of the two token limits. Milliseconds.",
    )
    ttft_latency_ms: Milliseconds | None = Field(
        None, description="Server: p99 limit of the time to first token, ms."
    )
    tpot_latency_ms: Milliseconds | None = Field(None, description="Server: p99 limit per output token, ms.")
    trial_duration: Seconds = Field(30.0, description="target_qps auto: minimum duration of a trial.")
    trial_queries: int = Field(
        700, ge=1, description="target_qps auto: minimum number of queries of a trial."
    )
    load_precision: Share = Field(
        0.02, lt=1, description="target_qps auto: precision of the search, as a share."
    )
    most_trials: int = Field(12, ge=1, description="target_qps auto: maximum number of trials.")
    min_duration: Seconds | None = Field(None, description="Minimum duration; seconds or hh:mm:ss.")
    min_query_count: int | None = Field(None, ge=1, description="Minimum number of queries.")
    samples_per_query: int | None = Field(None, ge=1, description="MultiStream: samples in one query.")
    performance_sample_count: int | None = Field(
        None, ge=1, description="Number of samples to load; by default all."
    )
    user_conf: Path | None = Field(None, description="A user.conf whose lines override these parameters.")

    max_output_tokens: int = Field(128, ge=2, description="Output tokens of each sample.")
    warmup_samples: int = Field(16, ge=0, description="Uncounted samples before the timed part.")
    sample_timeout: Seconds = Field(300.0, description="Time limit for one sample; seconds or hh:mm:ss.")
    timeout: Seconds | None = Field(None, description="Time limit for the test; seconds or hh:mm:ss.")

    tokenizer: Path | None = Field(
        None,
        description="Folder of the model's tokenizer. Accuracy: needed for token answers; by default vLLM's "
        "model. With an endpoint: counts some answers' tokens a second time.",
    )
    mlperf_round: str = Field(
        "", description="Accuracy: the MLPerf round whose targets apply, such as v6.1; by default the newest."
    )
    accuracy_threshold: Share | None = Field(
        None,
        description="Minimum share of the reference accuracy, 0 to 1; by default 0.9, for ROUGE 0.99.",
    )
    accuracy_reference: Share | dict[str, float] | None = Field(
        None,
        description="Expected accuracy of this model: 0 to 1, or for ROUGE {rouge1: 38.8, rougeL: 24.5} in "
        "percent, also for a part of the set; by default the known one.",
    )

    @field_validator(
        "container", "server", "vllm", "user_conf", "api_key_file", "samples", "input_tokens_max",
        "target_qps", "min_duration", "min_query_count", "performance_sample_count", "tokenizer",
        mode="before",
    )  # fmt: skip
    @classmethod
    def _absent_if_empty(cls, value: Any) -> Any:
        return None if value in ("", {}) else value

    @field_validator("mode", mode="before")
    @classmethod
    def _a_test_that_is_run(cls, value: Any) -> Any:
        if value in TESTS_NOT_RUN:
            raise ValueError(why_not_run(value))
        return value

    @field_validator("eos_token_ids", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return value if isinstance(value, list | tuple) else () if value in ("", None) else (value,)

    @field_validator("mlperf_round")
    @classmethod
    def _known_round(cls, value: str) -> str:
        if value and value not in rounds():
            raise ValueError(f"{value} is not one of the rounds {', '.join(rounds())}")
        return value

    @field_validator("accuracy_reference")
    @classmethod
    def _known_scores(cls, value: float | dict[str, float] | None) -> float | dict[str, float] | None:
        for name, score in value.items() if isinstance(value, dict) else ():
            if name not in SCORES or not 0 < score <= _HUNDRED:
                raise ValueError(f"{name}: {score:g} is not a score in percent of {', '.join(SCORES)}")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> LoadGenParameters:
        problems = [
            *self._about_the_engine(),
            *self._about_the_load(),
            *self._about_the_scenario(),
            *self._about_compliance(),
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _about_the_engine(self) -> Iterator[str]:
        engines = {"endpoint": self.endpoint, "server": self.server, "vllm": self.vllm}
        given = [name for name, value in engines.items() if value]
        if len(given) != 1:
            what = f"both {' and '.join(given)}" if given else "neither endpoint, server nor vllm"
            yield (
                f"{what}: give one of the URL of a running server (endpoint), a llama.cpp server to start "
                "(server), or vLLM in the process (vllm)"
            )
        if not self.endpoint and (self.endpoint_model or self.api_key_env or self.api_key_file):
            yield "endpoint_model, api_key_env and api_key_file need endpoint"
        if self.api_key_env and self.api_key_file:
            yield "api_key_env and api_key_file: give one of them"
        if self.vllm and (problem := refused(self.vllm.llm_config, self.division)):
            yield f"vllm: {problem}"
        if "." in self.loadgen_model:
            yield (
                f"loadgen_model {self.loadgen_model} has a dot: LoadGen would not know the model and apply "
                f"default limits; write {self.loadgen_model.replace('.', '_')}"
            )

    def _about_the_load(self) -> Iterator[str]:
        if self.loadgen_scenario in SERVER_SCENARIOS:
            if self.target_qps is None:
                yield "target_qps is missing: give queries/s, or a share of the measured rate such as 60%"
            if isinstance(self.target_latency_ms, str):
                yield "target_latency_ms is a limit in Server: give milliseconds, not a percentage"
            if self.target_latency_ms is not None and (self.ttft_latency_ms or self.tpot_latency_ms):
                yield (
                    "target_latency_ms and a token limit: LoadGen judges whole answers or tokens; give "
                    "target_latency_ms, or ttft_latency_ms and tpot_latency_ms"
                )
        if self.dataset == SYNTHETIC and (self.input_tokens_max or self.input_tokens) < self.input_tokens:
            yield f"input_tokens_max {self.input_tokens_max} is below input_tokens {self.input_tokens}"
        for name in ("target_qps", "target_latency_ms"):
            load = getattr(self, name)
            if load == AUTO and name == "target_latency_ms":
                yield f"{name} is {AUTO}: only target_qps can be searched for"
            if isinstance(load, float | int) and load <= 0:
                yield f"{name} is {load:g}; it must be above 0"
            if (as_share(load) or 0) > 1 and self.loadgen_scenario != "Offline":
                yield f"{name} is {load}: more than 100 % of the measured load is only allowed in Offline"

    def _about_the_scenario(self) -> Iterator[str]:
        for name, scenarios in ONLY_IN.items():
            if getattr(self, name) is not None and self.loadgen_scenario not in scenarios:
                where = ", ".join(scenarios)
                yield f"{name} has no effect in {self.loadgen_scenario}, only in {where}: remove it"

    def _about_compliance(self) -> Iterator[str]:
        if self.mode == "TEST06" and not (self.eos_token_ids or self.vllm or known_eos(self.model)):
            yield (
                f"eos_token_ids is missing: TEST06 needs those of {self.model}, which are in its "
                "generation_config.json"
            )

    @property
    def tuning(self) -> dict[str, float]:
        """Return the parameters of the load search (``harness.tuning.Tuning``)."""
        return {
            "trial_s": self.trial_duration,
            "trial_queries": self.trial_queries,
            "precision": self.load_precision,
            "most_trials": self.most_trials,
        }

    @property
    def name_in_loadgen(self) -> str:
        """The model's name in LoadGen's configuration."""
        return self.loadgen_model or self.model.replace(".", "_")

    @property
    def case(self) -> str:
        """Name of the folder of raw logs: this element's scenario, or its model, scenario and mode."""
        name = self.scenario or f"{self.model}-{self.loadgen_scenario}-{self.mode}"
        return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".").lower()
