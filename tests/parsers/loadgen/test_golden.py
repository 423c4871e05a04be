"""The parser's results for a real log of each LoadGen version and scenario.

``python test_golden.py`` writes the expectations again; read the difference before committing it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parsers.loadgen import PARSER, parse_folder

if TYPE_CHECKING:
    from agent.core.records import ParsedOutput, Reason

LOGS = Path(__file__).parent / "logs"
CASES = sorted(folder.name for folder in LOGS.iterdir())


def _reason(reason: Reason) -> dict[str, Any]:
    return {
        "code": reason.code,
        "message": reason.message,
        "remedy": reason.remedy,
        "setting": reason.setting,
        "value": reason.value,
    }


def _expectation(output: ParsedOutput) -> dict[str, Any]:
    assert output.verdict is not None
    assert output.start is not None
    assert output.end is not None
    return {
        "tool_version": output.tool_version,
        "scenario": output.scenario,
        "complete": output.complete,
        "start": output.start.isoformat(),
        "end": output.end.isoformat(),
        "validity": output.verdict.validity.value,
        "reasons": [_reason(reason) for reason in output.verdict.reasons],
        "warnings": list(output.verdict.warnings),
        "metrics": {
            metric.name: [metric.value, metric.unit, metric.relativity.value, metric.verbosity]
            for metric in output.metrics
        },
    }


def _text(expectation: dict[str, Any]) -> str:
    """Return the expectation as JSON with one metric per line."""
    metrics = expectation.pop("metrics")
    head = json.dumps(expectation, indent=2, ensure_ascii=False)[:-2]
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in metrics.items())
    return f'{head},\n  "metrics": {{\n{lines}\n  }}\n}}\n'


@pytest.mark.parametrize("case", CASES)
def test_a_real_log_gives_these_numbers_and_this_verdict(case: str) -> None:
    expected = json.loads((LOGS / case / "expected.json").read_text())
    assert _expectation(parse_folder(LOGS / case)) == expected


@pytest.mark.parametrize("case", CASES)
def test_names_are_unique_and_every_metric_has_a_base_unit(case: str) -> None:
    metrics = parse_folder(LOGS / case).metrics
    assert len({metric.name for metric in metrics}) == len(metrics)
    units = {"seconds", "samples/s", "tokens/s", "queries/s", "count"}
    assert {metric.unit for metric in metrics} <= units
    assert any(metric.verbosity == 1 for metric in metrics)


def test_the_tools_own_number_is_kept_where_it_was_converted() -> None:
    metrics = {metric.name: metric for metric in parse_folder(LOGS / "server_v6_0_valid").metrics}
    assert metrics["ttft_p99"].value == 0.012891224
    assert metrics["ttft_p99"].metadata["tool_value"] == 12891224
    assert metrics["ttft_p99"].metadata["tool_unit"] == "ns"
    assert metrics["ttft_p99"].metadata["loadgen_key"] == "result_first_token_99.00_percentile_latency_ns"
    assert "tool_value" not in metrics["samples_per_second"].metadata


@pytest.mark.parametrize("name", ["mlperf_log_detail.txt", "mlperf_log_summary.txt", ""])
def test_either_log_or_the_folder_names_the_run(name: str) -> None:
    folder = LOGS / "server_v6_0_valid"
    assert PARSER.recognise(folder / name)
    assert PARSER.parse(folder / name) == [parse_folder(folder)]


def test_settings_are_details_in_base_units() -> None:
    details = parse_folder(LOGS / "server_v6_0_valid").details
    assert details["min_duration_s"] == 2.0
    assert details["ttft_latency_s"] == 0.5
    assert details["tpot_latency_s"] == 0.03
    assert details["target_qps"] == 300
    assert details["loadgen_verdict"] == "VALID"


if __name__ == "__main__":
    for name in CASES:
        (LOGS / name / "expected.json").write_text(_text(_expectation(parse_folder(LOGS / name))))
