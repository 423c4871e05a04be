"""The harness's summaries up to v3.0: sentences with numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ParseError
from parsers.mlperf_harness_summary import PARSER, parse_summary

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "DGX-A100_A100-SXM4-40GBx8_TRT-default"


def outputs(scenario: str, sentence: str) -> list[Any]:
    return parse_summary(json.dumps({f"{CONFIG}-{scenario}": {"bert": sentence}}))


@pytest.mark.parametrize(
    ("scenario", "sentence", "metric", "validity"),
    [
        (
            "Server",
            "result_scheduled_samples_per_sec: 25405.6, Result is VALID",
            ("scheduled_samples_per_second", 25405.6, "samples/s"),
            "VALID",
        ),
        (
            "Offline",
            "result_samples_per_second: 30102.1, Result is VALID, 10-min runtime requirement met: True",
            ("samples_per_second", 30102.1, "samples/s"),
            "VALID",
        ),
        (
            "SingleStream",
            "result_90.00_percentile_latency_ns: 1924537, Result is INVALID",
            ("latency_p90", 0.001924537, "seconds"),
            "INVALID",
        ),
        (
            "Server",
            "Scheduled samples per second : 25405.6 and Result is : VALID",
            ("scheduled_samples_per_second", 25405.6, "samples/s"),
            "VALID",
        ),
        (
            "Offline",
            "Accuracy = 90.264, Threshold = 89.965. Accuracy test PASSED.",
            ("accuracy_accuracy", 0.90264, "ratio"),
            "VALID",
        ),
        (
            "Offline",
            "[FAILED] F1: 89.215 (Threshold=89.965)",
            ("accuracy_f1", 0.89215, "ratio"),
            "INVALID",
        ),
    ],
)
def test_a_sentence(scenario: str, sentence: str, metric: tuple[str, float, str], validity: str) -> None:
    (output,) = outputs(scenario, sentence)
    found = output.metrics[0]
    assert (found.name, pytest.approx(found.value), found.unit) == metric
    assert output.verdict.validity.value == validity
    mode = "accuracy" if "Threshold" in sentence else "performance"
    assert output.scenario == f"bert/{scenario}/{mode}"
    assert any("virtualclient" in one.tags for one in output.metrics)


ROUGE = "[PASSED] ROUGE1: 43.102 (Threshold=42.944)"
TOKENS = "TOKENS_PER_SAMPLE: {} (Valid Range=[131.310,  160.490])"


@pytest.mark.parametrize(
    ("parts", "reasons"),
    [
        ((ROUGE, "[PASSED] GEN_LEN: 4114386.000 (Threshold=3615190.200)"), []),
        ((ROUGE, f"[PASSED] {TOKENS.format('145.900')}"), []),
        (
            (ROUGE, f"[FAILED] {TOKENS.format('161.2')}"),
            ["accuracy TOKENS_PER_SAMPLE is 161.2, which fails its range 131.310 to 160.490"],
        ),
        (
            (ROUGE, "[FAILED] GEN_LEN: 4.5e6 (Valid Range=[3.6e6,  4.4e6])"),
            ["accuracy GEN_LEN is 4.5e6, which fails its range 3.6e6 to 4.4e6"],
        ),
        # A verdict that contradicts its own numbers.
        (
            (ROUGE, f"[PASSED] {TOKENS.format('161.2')}"),
            ["accuracy TOKENS_PER_SAMPLE is 161.2, which fails its range 131.310 to 160.490"],
        ),
        (
            (ROUGE, f"[PASSED] {TOKENS.format('100')}"),
            ["accuracy TOKENS_PER_SAMPLE is 100, which fails its range 131.310 to 160.490"],
        ),
        # The open division has no verdict.
        (
            (f"[] {TOKENS.format('145.900')}",),
            ["accuracy TOKENS_PER_SAMPLE is 145.900, which fails its range 131.310 to 160.490"],
        ),
        # Unreadable values never count as passed.
        (
            (ROUGE, "[FAILED] GEN_LEN: nan (Threshold=1)"),
            ["accuracy [FAILED] GEN_LEN: nan (Threshold=1) has no value"],
        ),
        (
            (ROUGE, "[PASSED] GEN_LEN: nan (Threshold=1)"),
            ["accuracy [PASSED] GEN_LEN: nan (Threshold=1) has no value"],
        ),
        ((ROUGE, "[FAILED] A NEW WAY TO SAY IT"), ["accuracy [FAILED] A NEW WAY TO SAY IT has no value"]),
    ],
)
def test_every_part_of_a_sentence_has_to_pass(parts: tuple[str, ...], reasons: list[str]) -> None:
    (output,) = outputs("Offline", " | ".join(parts))
    assert output.verdict.validity.value == ("INVALID" if reasons else "VALID")
    assert [reason.message for reason in output.verdict.reasons] == reasons


@pytest.mark.parametrize(
    "sentence",
    [
        "Cannot find performance result. Maybe you are running in AccuracyOnly mode.",
        "No accuracy results in PerformanceOnly mode.",
        "Cannot find accuracy JSON file.",
    ],
)
def test_the_other_mode_is_no_result(sentence: str) -> None:
    assert outputs("Offline", sentence) == []


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"a": 1}',
        '{"a-Offline": {"bert": "no numbers"}}',
        '{"a-Offline": {"bert": "Accuracy = E, Threshold = e1. Accuracy test PASSED."}}',
    ],
)
def test_what_is_no_summary_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_summary(text)


def test_a_tree_without_a_result_is_refused(tmp_path: Path) -> None:
    assert not PARSER.recognise(tmp_path)
    (tmp_path / "accuracy_summary.json").write_text(
        json.dumps({"a-Offline": {"bert": "No accuracy results in PerformanceOnly mode."}})
    )
    assert PARSER.recognise(tmp_path)
    with pytest.raises(ParseError):
        PARSER.parse(tmp_path)
    text = json.dumps({"a-Offline": {"bert": "result_samples_per_second: 3.5, Result is VALID"}})
    (tmp_path / "perf_harness_summary.json").write_text(text)
    (output,) = PARSER.parse(tmp_path)
    assert output.sources == (str(tmp_path / "perf_harness_summary.json"),)


def test_a_sentence_of_any_length_is_refused_at_once() -> None:
    text = json.dumps({"X_TRT-default-Offline": {"bert": "a" * 4001}})
    with pytest.raises(ParseError, match="4001 characters"):
        parse_summary(text)
