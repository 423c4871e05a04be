"""A summary in full: each field that its lines give."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import ParseError
from parsers.loadgen import SummaryLog, read_summary
from parsers.loadgen.summary import estimates_in

SINGLE = """================================================
MLPerf Results Summary
================================================
SUT name : My : SUT
Scenario : Single Stream
Mode     : PerformanceOnly
95.0th percentile latency (ns) : 58000123
95.0th first token percentile latency (ns) : 5800012
Result is : INVALID
  Min duration satisfied : Yes
  Min queries satisfied : NO
  Early stopping satisfied: maybe
TTFT Early Stopping Result:
 * Processed at least 64 queries: 512
 * Early stopping 95.0th percentile estimate: 6000000
 * Early stopping 99.0th percentile estimate: 9000000
TPOT Early Stopping Result:
 * Run unsuccessful.
================================================
Additional Stats
================================================
QPS w/ loadgen overhead         : 18.60
Min latency (ns)                : 41234567
QSL size                        : 5
print_timestamps : 1
performance_issue_unique : FALSE
schedule_rng_seed : 16159082839903944936
target_qps : 1.5e+06
accuracy_log_probability : nan

12 warnings encountered. See detailed log.

3 ERRORS encountered. See detailed log.
"""
MULTI = """Scenario : MultiStream
99th percentile latency (ns) : 8000
99th first token percentile latency (ns) : 800
Early Stopping Result:
 * Early stopping 99th percentile estimate: 9000
===
Per-query latency:
Min latency (ns) : 5000
90.00 percentile latency (ns) : 7000
samples_per_query : 8
Per-sample latency: 1
Min latency (ns) : 500
===
MLPerf Results Summary
Scenario : Server
"""
NUMBERS = """target_qps : 1.25E-12
target_latency (ns) : 1.5e+100
max_duration (ms): inf
min_duration (ms): -7
max_query_count : 123456789012345678901
99.9th percentile latency (ns) : 1,5
"""
ODD = """No errors encountered during test
Errors encountered
Min latency (ns)
Result is : VALIDX
0 warnings encountered during test.
mode :
SUT name : \udcff
Result is : VALID
"""
TPOT = """Per-query latency:
Scenario : SingleStream
TPOT Early Stopping Result:
===
Min latency (ns) : 5
"""
HEADINGS = """Scenario : SingleStream
TPOT Early Stopping Result:
Early Stopping Result: of 1 : 2
a
===
Mode: b
Result is : VALID
"""
TTFT = (
    "* Processed at least 64 queries: 512 * Early stopping 95.0th percentile estimate: 6000000 "
    "* Early stopping 99.0th percentile estimate: 9000000"
)

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "SingleStream with tokens": (
        SINGLE,
        {
            "titles": 1,
            "said": {
                "scenario": ["Single Stream"],
                "mode": ["PerformanceOnly"],
                "#.#th percentile latency (ns)": ["58000123"],
                "#.#th first token percentile latency (ns)": ["5800012"],
                "result is": ["INVALID"],
                "min duration satisfied": ["Yes"],
                "min queries satisfied": ["NO"],
                "early stopping satisfied": ["maybe"],
                "ttft early stopping result": [TTFT],
                "tpot early stopping result": ["* Run unsuccessful."],
                "qps w/ loadgen overhead": ["18.60"],
                "min latency (ns)": ["41234567"],
                "print_timestamps": ["1"],
                "performance_issue_unique": ["FALSE"],
                "schedule_rng_seed": ["16159082839903944936"],
                "target_qps": ["1.5e+06"],
                "accuracy_log_probability": ["nan"],
            },
            "validity": "INVALID",
            "scenario": "SingleStream",
            "mode": "PerformanceOnly",
            "sut_name": "My : SUT",
            "flags": {
                "result_min_duration_met": True,
                "result_min_queries_met": False,
                "effective_print_timestamps": True,
                "effective_performance_issue_unique": False,
            },
            "numbers": {
                "effective_target_latency_percentile": 0.95,
                "result_95.00_percentile_latency_ns": 58000123,
                "result_first_token_95.00_percentile_latency_ns": 5800012,
                "early_stopping_latency_ss": 6000000,
                "early_stopping_latency_ms": 9000000,
                "result_qps_with_loadgen_overhead": 18.6,
                "result_min_latency_ns": 41234567,
                "effective_schedule_rng_seed": 16159082839903944936,
                "effective_target_qps": 1500000.0,
            },
            "halves": {
                "effective_target_latency_percentile": 0.0005,
                "result_qps_with_loadgen_overhead": 0.005,
                "effective_target_qps": 50000.0,
            },
            "texts": {
                "early_stopping_ttft_result": TTFT,
                "early_stopping_tpot_result": "* Run unsuccessful.",
            },
            "errors": 3,
            "warnings": 12,
            "endings": 1,
        },
    ),
    "MultiStream, with the beginning of another run": (
        MULTI,
        {
            "titles": 1,
            "said": {
                "scenario": ["MultiStream", "Server"],
                "#th percentile latency (ns)": ["8000"],
                "#th first token percentile latency (ns)": ["800"],
                "early stopping result": ["* Early stopping 99th percentile estimate: 9000"],
                "per-query latency": [""],
                "per-query latency/min latency (ns)": ["5000"],
                "per-query latency/90.00 percentile latency (ns)": ["7000"],
                "samples_per_query": ["8"],
                "per-sample latency": ["1"],
                "min latency (ns)": ["500"],
            },
            "scenario": "Server",
            "numbers": {
                "effective_target_latency_percentile": 0.99,
                "result_99.00_percentile_per_query_latency_ns": 8000,
                "result_90.00_percentile_per_query_latency_ns": 7000,
                "result_first_token_99.00_percentile_latency_ns": 800,
                "early_stopping_latency_ms": 9000,
                "result_min_query_latency_ns": 5000,
                "effective_samples_per_query": 8,
                "result_min_latency_ns": 500,
            },
            "halves": {"effective_target_latency_percentile": 0.005},
            "texts": {"early_stopping_result": "* Early stopping 99th percentile estimate: 9000"},
        },
    ),
    "two endings": (
        "\r\n3 errors encountered. See detailed log.\nNo ERRORS encountered during test.\n",
        {"errors": 3, "endings": 2},
    ),
    "a title after latencies of queries": (
        "Per-query latency:\nMLPerf Results Summary\n Min latency (ns) : 5\n MLPerf Results Summary \n",
        {
            "titles": 2,
            "said": {"per-query latency": [""], "min latency (ns)": ["5"]},
            "numbers": {"result_min_latency_ns": 5},
        },
    ),
    "early stopping of an output token after latencies of queries": (
        TPOT,
        {
            "said": {
                "per-query latency": [""],
                "tpot early stopping result": [""],
                "scenario": ["SingleStream"],
                "min latency (ns)": ["5"],
            },
            "scenario": "SingleStream",
            "numbers": {"result_min_latency_ns": 5},
            "texts": {"early_stopping_tpot_result": ""},
        },
    ),
    "a heading with a text, below another heading": (
        HEADINGS,
        {
            "said": {
                "scenario": ["SingleStream"],
                "tpot early stopping result": [""],
                "early stopping result": ["a"],
                "mode": ["b"],
                "result is": ["VALID"],
            },
            "scenario": "SingleStream",
            "mode": "b",
            "validity": "VALID",
            "texts": {"early_stopping_tpot_result": "", "early_stopping_result": "a"},
        },
    ),
    "a verdict alone": (
        "Result is : VALID",
        {"said": {"result is": ["VALID"]}, "validity": "VALID"},
    ),
    "numbers of every form": (
        NUMBERS,
        {
            "said": {
                "target_qps": ["1.25E-12"],
                "target_latency (ns)": ["1.5e+100"],
                "max_duration (ms)": ["inf"],
                "min_duration (ms)": ["-7"],
                "max_query_count": ["123456789012345678901"],
                "#.#th percentile latency (ns)": ["1,5"],
            },
            "numbers": {
                "effective_target_qps": 1.25e-12,
                "effective_target_latency_ns": 1.5e100,
                "effective_min_duration_ms": -7,
                "effective_max_query_count": 123456789012345678901.0,
                "effective_target_latency_percentile": 0.999,
            },
            "halves": {
                "effective_target_qps": 5e-15,
                "effective_target_latency_ns": 0.0,
                "effective_max_query_count": 0.5,
                "effective_target_latency_percentile": 0.0005,
            },
        },
    ),
    "a count of more digits than a number has": (
        f"{'9' * 30} errors encountered. See detailed log.\n",
        {"errors": 10**18 - 1, "endings": 1},
    ),
    "lines that LoadGen does not write": (
        ODD,
        {
            "said": {"result is": ["VALIDX", "VALID"], "mode": [""]},
            "validity": "VALID",
            "warnings": 0,
            "sut_name": "\ufffd",
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_summary_is_read_in_full(tmp_path: Path, name: str) -> None:
    text, expected = CASES[name]
    path = tmp_path / "summary.txt"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    log, empty = read_summary(path), SummaryLog(path)
    assert log.path == path
    read = {field.name: getattr(log, field.name) for field in fields(log)}
    assert {key: value for key, value in read.items() if value != getattr(empty, key)} == expected


def test_lines_of_a_section_have_their_own_names() -> None:
    log = SummaryLog(Path(), said={"per-query latency": [], "per-query latency/a": [], "qps w/ b": []})
    assert log.names() == {"per-query latency", "a", "qps w/ b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ODD.replace("Result is : VALID\n", ""), "is not a LoadGen summary, or it ends before any number"),
        (None, "cannot read the summary: Is a directory"),
    ],
)
def test_a_summary_that_cannot_be_read(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path
    if text is not None:
        path = tmp_path / "summary.txt"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ParseError) as caught:
        read_summary(path)
    assert (caught.value.message, caught.value.where) == (message, str(path))


def test_a_summary_is_read_up_to_a_mebibyte(tmp_path: Path) -> None:
    path = tmp_path / "summary.txt"
    path.write_bytes(b"Result is : VALID\n".ljust(1 << 20) + b"\nNo errors encountered during test.\n")
    assert not read_summary(path).complete


BOTH = "Early stopping 90.0th percentile estimate: 5 Early stopping 99th percentile estimate: 6"


@pytest.mark.parametrize(
    ("text", "scenario", "percentile", "estimates"),
    [
        (BOTH, "SingleStream", None, {"early_stopping_latency_ss": 5, "early_stopping_latency_ms": 6}),
        (BOTH, "SingleStream", 0.905, {"early_stopping_latency_ss": 5, "early_stopping_latency_ms": 6}),
        (BOTH, "SingleStream", 0.906, {"early_stopping_latency_ms": 5}),
        (BOTH[45:], "SingleStream", None, {"early_stopping_latency_ms": 6}),
        (BOTH[45:], "MultiStream", None, {"early_stopping_latency_ms": 6}),
        (BOTH, "MultiStream", 0.9, {"early_stopping_latency_ms": 5}),
        (BOTH, "MultiStream", None, {}),
        (BOTH, "Server", None, {}),
        ("", "MultiStream", None, {}),
        (f"{BOTH}{'0' * 19}", "MultiStream", 0.9, {"early_stopping_latency_ms": 5}),
    ],
)
def test_estimates_of_early_stopping(
    text: str, scenario: str, percentile: float | None, estimates: dict[str, int]
) -> None:
    assert estimates_in(text, scenario, percentile) == estimates
