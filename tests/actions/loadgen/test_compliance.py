"""Compliance tests: their settings, the end-of-text tokens, and the verdict."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from actions.loadgen import result as loadgen_result
from actions.loadgen.compliance import COMPLIANCE_TESTS, Verified, eos_token_ids, verify
from actions.loadgen.engine import Engine
from actions.loadgen.eos_tokens import known_eos
from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.harness_run import harness_config, remove_stale
from actions.loadgen.parameters import LoadGenParameters
from actions.loadgen.sample_sets import SampleSet
from agent.core.errors import ActionFailedError
from agent.core.mlperf import TESTS_RUN
from agent.core.records import ParsedOutput, Reason, Validity, Verdict
from agent.facts import Facts
from parsers.mlperf_test06 import Verification

SAMPLES = SampleSet("set", Path("set.jsonl"), ("a",))
PASSED = Verification(100, first_token=True, eos=True, sample_length=True)


def parameters(**changes: Any) -> LoadGenParameters:
    values = {
        "model": "llama3.1-8b",
        "loadgen_scenario": "Server",
        "mode": "TEST06",
        "environment": "/env",
        "endpoint": "http://127.0.0.1:1",
        "target_qps": 5,
    }
    return LoadGenParameters.model_validate(values | changes)


def test_the_harness_gets_the_audits_settings_and_token_ids(tmp_path: Path) -> None:
    engine = Engine({"type": "openai"}, exact_tokens=False)
    config = harness_config(parameters(), engine, samples=SAMPLES, case_dir=tmp_path)
    assert config["mode"] == "performance"
    assert config["backend"] == {"type": "openai", "token_ids": True}
    lines = Path(config["audit_config"]).read_text().splitlines()
    assert {
        "*.*.mode = 2", "*.*.accuracy_log_sampling_target = 100", "*.*.min_query_count = 100",
        "*.*.min_duration = 0", "*.*.sample_concatenate_permutation = 0",
    } < set(lines)  # fmt: skip
    remove_stale(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["performance", "accuracy"])
def test_other_modes_have_no_audit(tmp_path: Path, mode: str) -> None:
    engine = Engine({"type": "openai"}, exact_tokens=False)
    config = harness_config(parameters(mode=mode), engine, samples=SAMPLES, case_dir=tmp_path)
    assert (config["mode"], config["audit_config"], config["backend"]) == (mode, None, {"type": "openai"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("test", "why"),
    [
        (
            "TEST01",
            "requires for 3d-unet, bert, .*: run MLCommons' scripts, or make run_audit_test01 of NVIDIA",
        ),
        ("TEST04", "requires for pointpainting, resnet"),
        ("TEST07", "requires for gpt-oss-120b: run MLCommons' scripts, and give its folder"),
        ("TEST08", "requires for dlrm-v3"),
        ("TEST09", "requires for e2e-rag-qna, gpt-oss-120b"),
    ],
)
def test_tests_of_other_benchmarks_are_refused_by_name(test: str, why: str) -> None:
    with pytest.raises(ValidationError, match=f"vcagent does not run {test}, which MLPerf {why}"):
        parameters(mode=test)


def test_the_tests_that_run_have_audit_settings() -> None:
    assert COMPLIANCE_TESTS == TESTS_RUN
    with pytest.raises(ValidationError, match="TEST06"):
        parameters(mode="TEST05")


def test_the_plan_names_the_test() -> None:
    asked = parameters()
    (step,) = LoadGenExecutor(asked).plan(Facts(modelled={})).steps
    assert (step.name, asked.case) == ("server-test06", "llama3.1-8b-server-test06")
    assert step.reason.startswith("verifies TEST06 of llama3.1-8b")
    assert step.estimate_s is None  # it ends with its samples


def test_end_of_text_tokens(tmp_path: Path) -> None:
    assert list(eos_token_ids(parameters())) == [128001, 128008, 128009]
    assert list(eos_token_ids(parameters(eos_token_ids=7))) == [7]
    assert known_eos("llama2-70b-99.9") == (2,)
    assert known_eos("llama2-70bx") == ()
    vllm = {"endpoint": "", "model": "mine", "vllm": {"model": str(tmp_path)}}
    with pytest.raises(ActionFailedError, match="end-of-text tokens of mine are unknown"):
        eos_token_ids(parameters(**vllm))
    (tmp_path / "config.json").write_text('{"eos_token_id": 5}')
    assert list(eos_token_ids(parameters(**vllm))) == [5]
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [6, 7]}')
    assert list(eos_token_ids(parameters(**vllm))) == [6, 7]


def test_unknown_end_of_text_tokens_are_refused_before_the_run() -> None:
    with pytest.raises(ValidationError, match="eos_token_ids is missing"):
        parameters(model="mine")


def verdict(verified: Verified, logs: Verdict) -> Verdict:
    parsed = ParsedOutput("loadgen", "MLPerf LoadGen", verdict=logs)
    result = {"issued": 100, "completed": 100, "output_tokens": 800, "cached_tokens": 0}
    tested = loadgen_result.Tested(
        parameters(), SAMPLES, "0" * 64, result, exact_tokens=False, compliance=verified
    )
    output = loadgen_result.merge(parsed, tested)
    assert output.scenario == "llama3.1-8b/Server/TEST06"
    assert output.verdict is not None
    return output.verdict


REASONS = (Reason("too few queries", code="early_stopping"),)
SHORT = Verdict(Validity.NOT_APPLICABLE, REASONS, ("an audit run",))


def test_limits_of_a_performance_run_do_not_apply() -> None:
    found = verdict(Verified("TEST06", PASSED), SHORT)
    assert (found.validity, found.reasons) == (Validity.VALID, ())


def test_a_failed_check_is_invalid_and_named() -> None:
    failed = Verification(100, first_token=False, eos=False, sample_length=False)
    found = verdict(Verified("TEST06", failed), SHORT)
    assert found.validity is Validity.INVALID
    assert [reason.code for reason in found.reasons] == ["compliance"] * 3


def test_logs_with_errors_stay_invalid() -> None:
    broken = Verdict(Validity.INVALID, (Reason("an error", code="errors"),))
    assert verdict(Verified("TEST06", PASSED), broken).validity is Validity.INVALID


def test_the_outcome_is_written(tmp_path: Path) -> None:
    data = array("i", [7, 128009]).tobytes().hex()
    rows = [{"data": data, "token_data": data[:8], "token_count": 2}]
    (tmp_path / "mlperf_log_accuracy.json").write_text(json.dumps(rows))
    found = verify(parameters(), tmp_path)
    assert found.details() == {
        "compliance_samples": 1, "compliance_first_token": True, "compliance_eos": True,
        "compliance_sample_length": True,
    }  # fmt: skip
    assert "EOS check pass: True\n" in (tmp_path / "verify_accuracy.txt").read_text()


def test_a_log_of_texts_is_no_outcome(tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_accuracy.json").write_text(
        '[{"data": "41", "token_data": "41", "token_count": 1}]'
    )
    found = verify(parameters(), tmp_path)
    (reason,) = found.reasons()
    assert "no answers in token ids" in reason.message
    assert not (tmp_path / "verify_accuracy.txt").exists()
