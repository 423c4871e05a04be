"""metadata.json of NVIDIA's harness, which describes itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Validity
from parsers.mlperf_metadata import PARSER, parse_metadata

if TYPE_CHECKING:
    from pathlib import Path

PERFORMANCE: dict[str, Any] = {
    "benchmark_full": "3d-unet-99",
    "benchmark_short": "3d-unet",
    "config_name": "X_TRT-custom_k_99_MaxP-Offline",
    "early_stopping_met": True,
    "effective_min_duration_ms": 600000,
    "result_samples_per_second": 3.83,
    "result_validity": "VALID",
    "satisfies_query_constraint": False,
    "scenario": "Offline",
    "scenario_key": "result_samples_per_second",
    "summary_string": "result_samples_per_second: 3.83, VALID, 10-min runtime requirement met: True",
    "tensorrt_version": "10.2.0",
    "test_mode": "PerformanceOnly",
}
ACCURACY: dict[str, Any] = {
    **{key: PERFORMANCE[key] for key in ("benchmark_full", "scenario", "scenario_key")},
    "accuracy": [{"name": "DICE", "pass": True, "threshold": 0.853, "value": 0.86172}],
    "accuracy_pass": True,
    "test_mode": "AccuracyOnly",
}


def parse(data: dict[str, Any]) -> ParsedOutput:
    return parse_metadata(json.dumps(data))


def values(output: ParsedOutput, *, aliases: bool) -> dict[str, float]:
    return {m.name: m.value for m in output.metrics if ("virtualclient" in m.tags) is aliases}


def verdict(output: ParsedOutput) -> tuple[str, list[str]]:
    assert output.verdict is not None
    return output.verdict.validity.value, [reason.code for reason in output.verdict.reasons]


def test_a_performance_run() -> None:
    output = parse(PERFORMANCE)
    assert output.scenario == "3d-unet-99/Offline/performance"
    assert verdict(output) == ("VALID", [])
    assert values(output, aliases=False) == {"samples_per_second": 3.83}
    assert values(output, aliases=True) == {"PerformanceMode_p99": 1, "samples_per_second_p99": 3.83}
    assert output.metrics[0].metadata["benchmark_full"] == "3d-unet-99"


def test_an_accuracy_run() -> None:
    output = parse(ACCURACY)
    assert output.scenario == "3d-unet-99/Offline/accuracy"
    own = values(output, aliases=False)
    assert own["accuracy_dice"] == 0.86172  # a ratio already
    assert own["accuracy_dice_margin"] == pytest.approx(1.0102227)


def test_percents_become_ratios() -> None:
    entry = {"name": "F1", "pass": True, "threshold": 89.96526, "value": 90.2147}
    output = parse({**ACCURACY, "accuracy": [entry]})
    metric = output.metrics[0]
    assert (metric.name, metric.value, metric.unit) == ("accuracy_f1", pytest.approx(0.902147), "ratio")
    assert (metric.metadata["tool_value"], metric.metadata["tool_unit"]) == (90.2147, "percent")


def test_every_accuracy_metric_has_to_pass() -> None:
    second = {"name": "ROUGE1", "pass": False, "threshold": 42.9, "value": 40.0}
    output = parse({**ACCURACY, "accuracy": [*ACCURACY["accuracy"], second]})
    assert verdict(output) == ("INVALID", ["accuracy"])
    assert output.verdict is not None
    assert "accuracy_pass says True" in output.verdict.warnings[0]


@pytest.mark.parametrize(
    ("entry", "validity"),
    [
        ({"name": "F1", "value": 10.0, "threshold": 89.96, "pass": True}, "INVALID"),
        ({"name": "DICE", "value": 0.853, "threshold": 0.853, "pass": True}, "VALID"),
        ({"name": "FID_SCORE", "value": 23.1, "threshold": 23.95, "pass": True}, "VALID"),  # lower is better
        (
            {"name": "FID_SCORE", "value": 23.6, "threshold": 23.0, "upper_limit": 23.95, "pass": True},
            "VALID",
        ),
        (
            {"name": "FID_SCORE", "value": 24, "threshold": 23.0, "upper_limit": 23.95, "pass": True},
            "INVALID",
        ),
        (
            {"name": "FID_SCORE", "value": 22, "threshold": 23.0, "upper_limit": 23.95, "pass": True},
            "INVALID",
        ),
    ],
)
def test_passed_out_of_its_range_is_not_believed(entry: dict[str, Any], validity: str) -> None:
    output = parse({**ACCURACY, "accuracy": [entry]})
    assert verdict(output)[0] == validity
    assert output.verdict is not None
    assert output.verdict.warnings == ()


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("value", [None, "N/A", float("nan")])
def test_an_entry_without_a_value_never_passes(place: int, value: object) -> None:
    entries = [*ACCURACY["accuracy"]]
    entries.insert(place, {"name": "ROUGE1", "pass": True, "threshold": 42.9, "value": value})
    output = parse({**ACCURACY, "accuracy": entries})
    assert verdict(output) == ("INVALID", ["accuracy"])
    assert output.verdict is not None
    assert output.verdict.reasons[0].message == "accuracy ROUGE1 has no value"


def test_reasons_of_an_invalid_run() -> None:
    changed = {
        **PERFORMANCE,
        "result_validity": "INVALID",
        "early_stopping_met": False,
        "summary_string": PERFORMANCE["summary_string"].replace("met: True", "met: False"),
    }
    assert verdict(parse(changed)) == ("INVALID", ["early_stopping", "min_duration", "loadgen_invalid"])


def test_valid_with_early_stopping_missed_is_invalid() -> None:
    assert verdict(parse({**PERFORMANCE, "early_stopping_met": False})) == ("INVALID", ["early_stopping"])


@pytest.mark.parametrize(
    "changed",
    [
        {**PERFORMANCE, "test_mode": "SubmissionRun"},
        {**PERFORMANCE, "result_validity": None},
        {**PERFORMANCE, "result_samples_per_second": "nan", "summary_string": ""},
        {**ACCURACY, "accuracy": []},
        {**ACCURACY, "accuracy": [{"name": "DICE", "pass": True, "value": "N/A"}]},
        {"test_mode": "PerformanceOnly"},
    ],
)
def test_a_file_without_its_numbers_is_an_error(changed: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        parse(changed)


@given(cut=st.integers(0, len(json.dumps(ACCURACY)) - 1))
def test_a_cut_file_is_an_error(cut: int) -> None:
    with pytest.raises(ParseError):
        parse_metadata(json.dumps(ACCURACY)[:cut])


def test_a_tree_gives_every_run_under_its_own_name(tmp_path: Path) -> None:
    for name, data in {"a": PERFORMANCE, "b": ACCURACY}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "metadata.json").write_text(json.dumps(data))
    (tmp_path / "other.json").write_text("{}")
    scenarios = [output.scenario for output in PARSER.parse(tmp_path)]
    assert scenarios == ["3d-unet-99/Offline/performance", "3d-unet-99/Offline/accuracy"]


def test_virtualclients_own_files_give_its_numbers(shared: Path) -> None:
    def read(name: str) -> ParsedOutput:
        (output,) = PARSER.parse(shared / "peers/virtualclient/results" / f"Example_{name}.json")
        return output

    server, stream = read("performance_summary1"), read("performance_summary2")
    assert values(server, aliases=True) == {"PerformanceMode_p99": 1, "samples_per_second_p99": 25405.6}
    assert values(stream, aliases=True) == {"PerformanceMode_p99": 0, "latency_ns_p99": 1924537}
    assert values(stream, aliases=False) == {"latency_p90": 0.001924537}
    assert verdict(stream)[0] == Validity.INVALID.value
    passed, failed = read("accuracy_summary1"), read("accuracy_summary2")
    assert values(passed, aliases=True) == {
        "AccuracyMode_p99": 1,
        "ThresholdValue_p99": 89.96526,
        "AccuracyValue_p99": 90.2147015680108,
        "AccuracyThresholdRatio_p99": pytest.approx(1.00277264321818),
    }
    assert values(failed, aliases=True)["AccuracyMode_p99"] == 0
    assert verdict(failed) == ("INVALID", ["accuracy"])
    assert failed.verdict is not None
    assert failed.verdict.warnings == ("accuracy_pass says True, accuracy[].pass False; the latter counts",)
