"""The upper limit of GPUs for a model, and the refusal of results above it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actions.loadgen import result as loadgen_result
from actions.loadgen.parameters import LoadGenParameters
from actions.loadgen.result import merge
from actions.loadgen.sample_sets import SampleSet
from agent.core.records import Metric, ParsedOutput, Relativity, Validity, Verdict
from agent.core.yaml_data import yaml_data
from agent.facts.gpus import Gpu
from gpu_configs.roofline import Architecture, limit_of, most_samples_per_second, quantization_config

CASES = yaml_data((Path(__file__).parent / "cases" / "roofline" / "limits.yaml").read_text(encoding="utf-8"))
LLAMA_8B = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
}  # fmt: skip
H100 = "NVIDIA H100 80GB HBM3"
RESULT: dict[str, Any] = {
    "engine": LLAMA_8B, "issued": 100, "completed": 100, "input_tokens": 87_000, "output_tokens": 12_800,
    "cached_tokens": 0,
}  # fmt: skip


def gpus(name: str, count: int = 1) -> tuple[Gpu, ...]:
    return tuple(Gpu(bus_id=f"0000:{number:02x}:00.0", name=name) for number in range(count))


def test_the_arithmetic_limit_of_an_h100() -> None:
    """Expect about 17,000 tokens/s in fp8 with 870 tokens in and 128 out, and half of it in bf16."""
    model = Architecture(**LLAMA_8B)
    rate = most_samples_per_second(model, input_tokens=870, output_tokens=128, peak_flops=1979e12)
    assert rate * 128 == pytest.approx(17_500, rel=0.03)


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_limit_follows_from_the_operands(tmp_path: Path, case: dict[str, Any]) -> None:
    config = {"quantization_config": case["config"]} if "config" in case else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    engine = {**LLAMA_8B, **case.get("engine", {})}
    if "quantization" in case:
        engine["quantization"] = case["quantization"]
    found = limit_of(
        {**RESULT, "engine": engine},
        gpus(case.get("gpu", H100), case.get("count", 1)),
        quantization=quantization_config(str(tmp_path)),
    )
    assert found == pytest.approx(case["limit"], rel=0.03)


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"quantization_config": null}'])
def test_a_model_that_says_nothing_of_its_operands(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    assert quantization_config(str(tmp_path)) == {}
    assert quantization_config("meta-llama/Llama-3.1-8B-Instruct") == {}


def test_no_limit_is_made_up() -> None:
    assert limit_of(RESULT, gpus("Tesla P40")) is None
    assert limit_of(RESULT, ()) is None
    assert limit_of({**RESULT, "input_tokens": None}, gpus(H100)) is None
    assert limit_of({**RESULT, "engine": {}}, gpus(H100)) is None


@pytest.mark.parametrize(("share", "validity"), [(0.99, Validity.VALID), (1.01, Validity.INVALID)])
def test_a_rate_above_the_limit_is_no_result(share: float, validity: Validity) -> None:
    limit = limit_of(RESULT, gpus(H100))
    assert limit is not None
    parameters = LoadGenParameters.model_validate(
        {
            "model": "llama3.1-8b",
            "loadgen_scenario": "Offline",
            "environment": "/env",
            "vllm": {"model": "/models/m"},
        }
    )
    rate = Metric("samples_per_second", share * limit, "samples/s", Relativity.HIGHER)
    output = merge(
        ParsedOutput("loadgen", "MLPerf LoadGen", metrics=(rate,), verdict=Verdict(Validity.VALID)),
        loadgen_result.Tested(
            parameters, SampleSet("set", Path("set.jsonl"), ("a",)), "0" * 64, RESULT, exact_tokens=True,
            limit_samples_per_s=limit,
        ),
    )  # fmt: skip
    assert output.verdict is not None
    assert output.verdict.validity is validity
    codes = [reason.code for reason in output.verdict.reasons]
    assert codes == (["above_roofline"] if share > 1 else [])
