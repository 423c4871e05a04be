"""LoadGenExecutor's plans and refusals, and the configuration that the harness gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from actions.loadgen.engine import Engine
from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.harness_run import harness_config
from actions.loadgen.in_environment.harness.config import HarnessConfig
from actions.loadgen.in_environment.harness.tuning import Tuning
from actions.loadgen.parameters import LoadGenParameters
from actions.loadgen.sample_sets import open_sample_set
from agent.core.errors import HostError, LiftedBy
from agent.core.yaml_data import yaml_data
from agent.facts import Facts

BASE: dict[str, Any] = {
    "model": "llama3.1-8b",
    "loadgenScenario": "Offline",
    "environment": "/env",
    "endpoint": "http://127.0.0.1:1",
}
CASES = yaml_data(
    (Path(__file__).parent.parent / "cases" / "loadgen_executor" / "plans.yaml").read_text(encoding="utf-8")
)


def parameters(**values: Any) -> LoadGenParameters:
    """Return the base parameters with other values; names replace the base's in any spelling."""
    spelled = {name.lower().replace("_", ""): name for name in BASE}
    base = {key: value for key, value in BASE.items() if key not in {spelled.get(n.lower()) for n in values}}
    return LoadGenParameters.model_validate({**base, **values})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"input_tokens_max": 896}, "input_tokens_max limits tokens, but a sample of short-prompts is text"),
        (
            {"endpoint": "", "vllm": {"model": "/m", "llm_config": {"skip_tokenizer_init": True}}},
            "skip_tokenizer_init leaves out vLLM's tokenizer",
        ),
    ],
)
def test_texts_are_refused_where_tokens_are_needed(values: dict[str, Any], words: str) -> None:
    with pytest.raises(HostError, match=words) as refused:
        LoadGenExecutor(parameters(**values)).plan(Facts(modelled={"gpus": (), "visible_devices": None}))
    assert refused.value.lifted_by is LiftedBy.NOTHING


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_plan(case: dict[str, Any]) -> None:
    if "refused" in case:
        with pytest.raises(ValidationError) as refusal:
            parameters(**case["parameters"])
        assert case["refused"] in str(refusal.value)
        return
    action = LoadGenExecutor(parameters(**case["parameters"]))
    if "host" in case:
        with pytest.raises(HostError) as host:
            action.plan(Facts(modelled={"package_dir": Path("/packages")}))
        assert case["host"] in str(host.value)
        assert host.value.remedy
        return
    (step,) = action.plan(Facts(modelled={})).steps
    assert step.name == case["step"]
    assert step.command == case.get("command", step.command)
    assert step.estimate_s == case.get("estimate_s", step.estimate_s)
    assert step.reason


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, {"load_share": 1.0, "settings": {}}),
        ({"target_qps": "50%"}, {"load_share": 0.5, "settings": {}}),
        ({"target_qps": 7}, {"load_share": None, "settings": {"target_qps": 7}}),
        ({"target_qps": "7.5"}, {"load_share": None, "settings": {"target_qps": 7.5}}),
        ({"loadgen_scenario": "SingleStream"}, {"load_share": 0.5, "settings": {}}),
        (
            {"loadgen_scenario": "SingleStream", "target_latency_ms": 20, "min_duration": "00:01:00"},
            {"load_share": None, "settings": {"target_latency": 20, "min_duration": 60000}},
        ),
        (
            {
                "loadgen_scenario": "Interactive",
                "target_qps": "60%",
                "ttft_latency_ms": 500,
                "tpot_latency_ms": 30,
                "min_query_count": 470,
            },
            {
                "load_share": 0.6,
                "settings": {"ttft_latency": 500, "tpot_latency": 30, "min_query_count": 470},
            },
        ),
        (
            {"loadgen_scenario": "Server", "target_qps": "auto", "trial_duration": "00:00:20"},
            {"load_share": None, "tuning": Tuning(start_qps=40.0, trial_s=20.0), "settings": {}},
        ),
        (
            {"loadgen_scenario": "Server", "mode": "accuracy", "target_qps": "auto"},
            {"load_share": 0.5, "tuning": None, "settings": {}},
        ),
        ({"loadgen_scenario": "Offline", "target_qps": "auto"}, {"load_share": 1.15, "tuning": None}),
    ],
)
def test_harness_config(asked: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    asked = {{"loadgen_scenario": "loadgenScenario"}.get(name, name): value for name, value in asked.items()}
    config = harness_config(
        parameters(**asked),
        Engine({"type": "openai"}, exact_tokens=False, start_qps=40.0),
        samples=open_sample_set("short-prompts"),
        case_dir=tmp_path,
    )
    config["tuning"] = None if config["tuning"] is None else Tuning(**config["tuning"])
    HarnessConfig(**config)  # the harness accepts it
    assert config["model"] == "llama3_1-8b"
    assert {name: config[name] for name in expected} == expected


def test_nothing_is_written_by_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    LoadGenExecutor(parameters()).plan(Facts(modelled={}))
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_that_a_dependency_makes_again_is_not_a_final_refusal(tmp_path: Path) -> None:
    inside, outside = tmp_path / "packages" / "set.jsonl", tmp_path / "set.jsonl"
    inside.parent.mkdir()
    for path, lift in ((inside, None), (outside, LiftedBy.NOTHING)):
        path.write_text('{"id": "a", "prompt": "x"}\n', encoding="utf-8")
        facts = Facts(modelled={"gpus": (), "visible_devices": None, "package_dir": inside.parent})
        with pytest.raises(HostError, match="5 samples are requested") as refused:
            LoadGenExecutor(parameters(dataset=str(path), samples=5)).plan(facts)
        assert refused.value.lifted_by is lift
