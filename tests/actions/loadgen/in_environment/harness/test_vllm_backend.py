"""The harness's vLLM backend with real LoadGen and a stand-in for the engine (tests/lab/vllm_stand_in)."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.actions.loadgen.in_environment.harness.conftest import IN_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.actions.loadgen.in_environment.harness.conftest import Outcome

STAND_IN = Path(__file__).parents[4] / "lab" / "vllm_stand_in"
PATH = {"PYTHONPATH": f"{IN_ENVIRONMENT}:{STAND_IN}"}


@pytest.fixture
def run(harness: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Return a function that runs the harness with settings of the backend."""

    def with_backend(backend: dict[str, Any], **changes: Any) -> Outcome:
        settings = {"type": "vllm", "model": "/models/m", **backend}
        return harness(backend=settings, env=PATH, **changes)

    return with_backend


def engine_log(outcome: Outcome) -> dict[str, Any]:
    first, *_ = (outcome.output_dir / "engine.log").read_text().splitlines()
    told: dict[str, Any] = json.loads(first)
    return told


def test_the_stand_in_has_no_argument_that_vllm_has_not() -> None:
    module = ast.parse((STAND_IN / "vllm" / "__init__.py").read_text())
    (arguments,) = (
        node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "AsyncEngineArgs"
    )
    names = {ast.unparse(node.target) for node in arguments.body if isinstance(node, ast.AnnAssign)}
    assert names <= set((STAND_IN.parents[2] / "gpu_configs" / "vllm_arguments.txt").read_text().split())


@pytest.mark.engine
def test_an_engine_that_takes_its_time_says_what_it_is_at(run: Callable[..., Outcome]) -> None:
    outcome = run({"environment": {"STAND_IN": "slow"}})

    told = [event["detail"] for event in outcome.events if event["phase"] == "load"]
    assert told == ["importing vLLM", "reading weights"]


@pytest.mark.engine
def test_a_server_run_tells_first_tokens_as_they_come(run: Callable[..., Outcome]) -> None:
    outcome = run({"engine": {"max_num_seqs": 16, "max_model_len": None}})

    assert (outcome.exit_code, outcome.stderr) == (0, "")
    result = outcome.result
    assert result["issued"] == result["completed"]
    assert result["token_count_sources"] == {"engine": result["completed"]}
    assert result["cached_tokens"] == 0
    assert all(
        float(sample["first_token_s"]) < float(sample["completed_s"]) and sample["output_tokens"] == "8"
        for sample in outcome.samples()
    )
    assert outcome.detail()["num_errors"] == 0
    told = engine_log(outcome)
    arguments = told["arguments"]
    assert (arguments["model"], arguments["max_num_seqs"]) == ("/models/m", 16)
    assert (arguments["enable_prefix_caching"], arguments["disable_log_stats"]) == (False, True)
    assert arguments["stream_interval"] == 8
    assert arguments["max_model_len"] is None
    assert (told["VLLM_USE_FLASHINFER_SAMPLER"], told["CUDA_DEVICE_ORDER"]) == ("0", "PCI_BUS_ID")
    assert result["engine"]["max_num_seqs"] == 16
    assert result["versions"]["backend"] == "vllm 0.22.1"


@pytest.mark.engine
def test_the_open_division_may_switch_prefix_caching_on(run: Callable[..., Outcome]) -> None:
    outcome = run({"engine": {"enable_prefix_caching": True}, "division": "open"})

    assert (outcome.exit_code, outcome.stderr) == (0, "")
    assert engine_log(outcome)["arguments"]["enable_prefix_caching"] is True
    assert outcome.result["engine"]["enable_prefix_caching"] is True


@pytest.mark.engine
def test_tokens_that_are_given_need_no_tokenizer(run: Callable[..., Outcome], tmp_path: Path) -> None:
    data = tmp_path / "tokens.jsonl"
    data.write_text("".join(json.dumps({"token_ids": list(range(count))}) + "\n" for count in (30, 90, 5)))

    outcome = run(
        {
            "engine": {"skip_tokenizer_init": True},
            "environment": {"VLLM_USE_FLASHINFER_SAMPLER": "1"},
        },
        dataset=str(data), scenario="Offline",
        settings={"target_qps": 100, "min_duration": 300, "min_query_count": 30},
    )  # fmt: skip

    assert (outcome.exit_code, outcome.stderr) == (0, "")
    told = engine_log(outcome)
    assert told["arguments"]["max_model_len"] == 112  # 90 and 8, rounded up to whole blocks
    assert told["VLLM_USE_FLASHINFER_SAMPLER"] == "1"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("backend", "kind", "words"),
    [
        ({"engine": {"max_num_sequences": 8}}, "config", "did you mean 'max_num_seqs'?"),
        ({"engine": {"enable_prefix_caching": True}}, "config", "enable_prefix_caching is the harness's"),
        ({"engine": {"stream_interval": 1}}, "config", "stream_interval is the harness's to set"),
        ({"engine": {"gpu_memory_utilization": 94}}, "config", "94 is not within 0 to 1"),
        ({"sampling": {"max_tokens": 9}}, "config", "sampling.max_tokens is the harness's"),
        ({"sampling": {"ignore_eso": True}}, "config", "did you mean 'ignore_eos'?"),
        ({"sampling": {"top_p": 2}}, "config", "top_p must be in (0, 1]"),
        ({"engine": {"max_model_len": 11}}, "config", "raise max_model_len to 13"),
        ({"engine": {"skip_tokenizer_init": True}}, "config", "is text, and the engine has no tokenizer"),
        ({"environment": {"STAND_IN": "no memory"}}, "out_of_memory", "CUDA out of memory"),
        ({"environment": {"STAND_IN": "dies"}}, "engine_error", "an illegal memory access"),
    ],
)
def test_what_cannot_go_on_ends_with_its_cause(
    run: Callable[..., Outcome], backend: dict[str, Any], kind: str, words: str
) -> None:
    outcome = run(backend)

    assert outcome.exit_code == 1
    assert outcome.error["kind"] == kind
    assert words in outcome.stderr


@pytest.mark.engine
def test_no_vllm_is_a_missing_dependency(harness: Callable[..., Outcome]) -> None:
    outcome = harness(backend={"type": "vllm", "model": "/models/m"})

    assert outcome.error["kind"] == "dependency"
    assert "pip install vllm" in outcome.stderr
