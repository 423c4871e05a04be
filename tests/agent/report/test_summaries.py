from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from agent.core.records import Metric, ParsedOutput, Reason, Relativity, Validity, Verdict
from agent.report.case_summary import write_case_summary
from agent.report.figures import latency_limits
from agent.report.headline import headline, headline_json, headline_metrics
from agent.report.rollup import write_rollup
from agent.report.status import setting_to_change

if TYPE_CHECKING:
    from pathlib import Path

HIGHER = Relativity.HIGHER
SERVER = (
    Metric("scheduled_samples_per_second", 40.2, "samples/s", HIGHER, verbosity=2),
    Metric("samples_per_second", 40.1, "samples/s", HIGHER),
    Metric("tokens_per_second", 4311.2, "tokens/s", HIGHER, "output tokens per second"),
    Metric("latency_mean", 9.0, "seconds", verbosity=2),
    Metric("latency_p99_9", 13.0, "seconds", verbosity=2),
    Metric("latency_p99", 12.0, "seconds", verbosity=2, metadata={"tool_unit": "ns"}),
    Metric("early_stopping_ttft_p99", 0.9, "seconds", verbosity=2),
    Metric("ttft_p99", 0.8, "seconds", verbosity=2),
    Metric("tpot_mean", 0.1, "seconds", verbosity=3),
    Metric("test_duration", 600, "seconds", verbosity=2),
    Metric("bandwidth", 1e9, "bytes/s", HIGHER),
)


def test_the_headline_is_one_metric_of_each_kind() -> None:
    chosen = {kind: metric.name for kind, metric in headline(SERVER).items()}
    assert chosen == {
        "throughput": "tokens_per_second",
        "latency": "latency_p99",
        "ttft": "ttft_p99",
        "tpot": "tpot_mean",
    }


def test_at_a_glance_are_the_headline_and_what_else_has_verbosity_one() -> None:
    assert [metric.name for metric in headline_metrics(SERVER)] == [
        "tokens_per_second",
        "samples_per_second",
        "bandwidth",
    ]
    assert [metric.name for metric in headline_metrics(SERVER[3:6])] == ["latency_p99"]
    assert headline_metrics([]) == []


def test_a_case_summary_has_verdict_headline_and_every_metric(tmp_path: Path) -> None:
    reason = Reason("TPOT p99 is 115 ms", "lower the load", "target_qps", 34, "tpot_limit")
    output = ParsedOutput(
        format="loadgen",
        tool_name="loadgen",
        tool_version="6.0.17",
        scenario="Server/performance",
        metrics=SERVER,
        verdict=Verdict(Validity.INVALID, (reason,), ("a warning",)),
        start=datetime(2026, 4, 1, tzinfo=timezone.utc),
        details={"target_qps": 40},
        sources=(str(tmp_path / "mlperf_log_detail.txt"), "/elsewhere/x"),
    )
    path = write_case_summary(tmp_path, output)
    summary = json.loads(path.read_text(encoding="utf-8"))
    assert path == tmp_path / "summary.json"
    assert list(summary) == [
        "schema_version", "scenario", "tool", "format", "start", "end", "complete", "verdict", "headline",
        "metrics", "usage", "details", "sources",
    ]  # fmt: skip
    assert summary["verdict"] == {
        "validity": "INVALID",
        "reasons": [
            {"message": "TPOT p99 is 115 ms", "remedy": "lower the load", "setting": "target_qps",
             "value": 34, "code": "tpot_limit"},
        ],
        "warnings": ["a warning"],
    }  # fmt: skip
    assert summary["headline"]["ttft"] == {"metric": "ttft_p99", "value": 0.8, "unit": "seconds"}
    assert [metric["name"] for metric in summary["metrics"]] == [metric.name for metric in SERVER]
    assert summary["metrics"][5]["metadata"] == {"tool_unit": "ns"}
    assert summary["sources"] == ["mlperf_log_detail.txt", "/elsewhere/x"]
    assert list(tmp_path.iterdir()) == [path]


def test_output_without_a_verdict_has_none(tmp_path: Path) -> None:
    summary = json.loads(write_case_summary(tmp_path, ParsedOutput("x", "x")).read_text(encoding="utf-8"))
    assert summary["verdict"] == {"validity": None, "reasons": [], "warnings": []}
    assert summary["headline"] == {}


def test_a_rollup_tells_runs_apart_and_their_cases(finished_run: Path) -> None:
    path = write_rollup(finished_run)
    rollup = json.loads(path.read_text(encoding="utf-8"))
    assert path == finished_run / "rollup" / "run_rollup.json"
    assert rollup["client_id"] == "gpu-host-017"
    assert rollup["verdict"]["validity"] == "INVALID"
    assert rollup["duration_s"] == 1000
    assert rollup["steps"] == {"skipped": 1, "done": 4, "failed": 1}
    offline, server, single = rollup["cases"]
    assert [case["validity"] for case in rollup["cases"]] == ["VALID", "INVALID", "FAILED"]
    assert offline["headline"]["throughput"] == {
        "metric": "tokens_per_second",
        "value": 8532.59,
        "unit": "tokens/s",
    }
    assert server["reasons"][0]["setting"] == "target_qps"
    assert server["case_dir"] == "mlperf/server-performance"
    assert [metric["name"] for metric in server["metrics"]][:3] == [
        "completed_tokens_per_second", "ttft_p99", "tpot_p99",
    ]  # fmt: skip
    assert single["headline"] == {}


def test_a_run_that_failed_early_has_a_rollup(failed_run: Path) -> None:
    rollup = json.loads(write_rollup(failed_run).read_text(encoding="utf-8"))
    assert rollup["cases"] == []
    assert rollup["verdict"] == {"validity": None, "reasons": [], "warnings": []}
    assert rollup["exit_code"] == 5


@pytest.mark.parametrize(
    ("details", "limits"),
    [
        ({"scenario": "Server", "use_token_latencies": True, "ttft_latency_s": 2.0, "tpot_latency_s": 0.1,
          "target_latency_s": 1.0}, {"ttft": 2.0, "tpot": 0.1}),
        ({"scenario": "Server", "use_token_latencies": False, "target_latency_s": 0.01}, {"latency": 0.01}),
        ({"scenario": "Server", "mode": "AccuracyOnly", "target_latency_s": 0.01}, {}),
        ({"scenario": "SingleStream", "target_latency_s": 0.01}, {}),
        ({"latency_limit_s": 5, "ttft_limit_s": 0, "tpot_limit_s": "x"}, {"latency": 5.0}),
    ],
)  # fmt: skip
def test_limits_are_taken_only_from_settings_that_are_limits(
    details: dict[str, object], limits: dict[str, float]
) -> None:
    assert latency_limits(details) == limits


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        (Reason("m", "lower the load", "target_qps", 34), ("target_qps", "34")),
        (Reason("m", "lower the load", "target_qps"), ("target_qps", "")),
        (Reason("m", "set target_qps to 34 or less", "target_qps", 34), None),
        (Reason("m", "lower the load"), None),
    ],
)
def test_a_change_that_the_remedy_names_is_not_told_twice(
    reason: Reason, change: tuple[str, str] | None
) -> None:
    assert setting_to_change(reason) == change


def test_a_case_of_any_tool_has_a_headline() -> None:
    metrics = [
        Metric("retries", 3, "count", verbosity=2),
        Metric("bus_bandwidth", 2e11, "bytes/s"),
    ]
    assert headline_json(metrics) == {"result": {"metric": "bus_bandwidth", "value": 2e11, "unit": "bytes/s"}}
    assert headline_json([]) == {}


def test_a_warm_up_is_no_headline() -> None:
    warm = Metric("warmup_tokens_per_second", 10, "tokens/s")
    measured = Metric("samples_per_second", 5, "samples/s", verbosity=2)
    assert headline_json([warm, measured])["throughput"]["metric"] == "samples_per_second"
    assert headline_json([warm])["throughput"]["metric"] == "warmup_tokens_per_second"
