"""Only the requested benchmarks and scenarios count as results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from actions.nvidia_harness.results import merged, results_in
from actions.nvidia_harness.workspace import Test
from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Validity, Verdict
from parsers.loadgen import ACCURACY_NOT_JUDGED

if TYPE_CHECKING:
    from pathlib import Path

KEY = "result_samples_per_second"
VALID, INVALID = Verdict(Validity.VALID), Verdict(Validity.INVALID)
ACCURACY = Verdict(Validity.NOT_APPLICABLE, (), (ACCURACY_NOT_JUDGED,))


def leave(folder: Path, benchmark: str, scenario: str, mode: str) -> None:
    """Write the files that the harness leaves after a run."""
    path = folder / "SYSTEM_TRT" / benchmark / scenario / "metadata.json"
    path.parent.mkdir(parents=True)
    values = {
        "benchmark_full": benchmark,
        "scenario": scenario,
        "test_mode": mode,
        "scenario_key": KEY,
        KEY: 42.0,
        "result_validity": "VALID",
        "accuracy": [{"name": "F1", "value": 91.0, "threshold": 90.0, "pass": True}],
    }
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("benchmark", "full", "config_ver"),
    [
        ("bert", "bert-99", "default"),
        ("bert", "bert-99.9", "high_accuracy"),
        ("bert", "bert-99", "maxq"),
        ("llama2-70b", "llama2-70b-99.9", "high_accuracy"),
        ("resnet50", "resnet50", "default"),
    ],
)
def test_what_was_asked_for(tmp_path: Path, benchmark: str, full: str, config_ver: str) -> None:
    leave(tmp_path, full, "Offline", "PerformanceOnly")
    (output,) = results_in(tmp_path, Test(config_ver, "Offline", "performance"), benchmark)
    assert output.scenario == f"{full}/Offline/performance"


@pytest.mark.parametrize("mode", ["performance", "accuracy"])
def test_without_loadgens_own_log_nothing_is_proven(tmp_path: Path, mode: str) -> None:
    leave(tmp_path, "bert-99", "Offline", f"{mode.title()}Only")
    (output,) = results_in(tmp_path, Test("default", "Offline", mode), "bert")
    assert output.verdict is not None
    assert output.verdict.validity is Validity.INVALID
    assert output.verdict.reasons[-1].code == "no_loadgen_log"


@pytest.mark.parametrize(
    ("said", "raw", "expected"),
    [
        (VALID, VALID, "VALID"),
        (None, VALID, "VALID"),
        (VALID, INVALID, "INVALID"),
        (INVALID, VALID, "INVALID"),
        (VALID, None, "FAILED"),
        (VALID, Verdict(Validity.NOT_APPLICABLE), "NOT_APPLICABLE"),
        (VALID, ACCURACY, "VALID"),
        (None, ACCURACY, "NOT_APPLICABLE"),
        (Verdict(Validity.NOT_APPLICABLE), ACCURACY, "NOT_APPLICABLE"),
    ],
)
def test_the_harness_and_loadgens_log_have_to_agree(
    said: Verdict | None, raw: Verdict | None, expected: str
) -> None:
    summary = ParsedOutput("mlperf_metadata", "harness", scenario="bert-99/Offline/performance", verdict=said)
    output = merged(summary, ParsedOutput("loadgen", "LoadGen", verdict=raw))
    assert output.verdict is not None
    assert output.verdict.validity.value == expected


@pytest.mark.parametrize(
    ("full", "scenario", "mode"),
    [
        ("3d-unet-99", "Offline", "PerformanceOnly"),
        ("bert-99.9", "Offline", "PerformanceOnly"),
        ("bert-99", "Server", "PerformanceOnly"),
        ("bert-99", "Offline", "AccuracyOnly"),
    ],
)
@pytest.mark.parametrize("beside", [True, False])
def test_what_was_not_asked_for(tmp_path: Path, full: str, scenario: str, mode: str, *, beside: bool) -> None:
    leave(tmp_path / "one", full, scenario, mode)
    if beside:
        leave(tmp_path / "other", "bert-99", "Offline", "PerformanceOnly")
    with pytest.raises(ParseError, match=rf"bert Offline default performance was requested.*{full}"):
        results_in(tmp_path, Test("default", "Offline", "performance"), "bert")
