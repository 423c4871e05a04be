"""Each gap and contradiction of a run's logs in full (numbers.yaml)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.core.yaml_data import yaml_data
from parsers.loadgen.agreement import contradictions, differences
from parsers.loadgen.settings import settings_of
from parsers.loadgen.whole import (
    fitting_version,
    foreign_lines,
    foreign_records,
    gaps,
    malformed,
    repeated_lines,
    summary_gaps,
)
from tests.parsers.loadgen.changed_runs import changed_run

CASES: dict[str, dict[str, Any]] = yaml_data(Path(__file__).with_name("numbers.yaml").read_text())


def findings(case: dict[str, Any]) -> dict[str, list[str]]:
    """Return what is wrong with the logs of a case, by the check that finds it."""
    log, summary = changed_run(case)
    found = {
        "contradictions": list(contradictions(log)),
        "gaps": gaps(log, summary if "files" in case else None),
        "malformed": malformed(log),
        "foreign_records": foreign_records(log) if log.version_parts else [],
    }
    if "files" in case:
        found |= {
            "differences": differences(log, summary),
            "summary_gaps": summary_gaps(summary, log.version_parts),
            "foreign_lines": foreign_lines(summary, log.version_parts) if summary.scenario else [],
            "repeated_lines": repeated_lines(summary),
        }
    return {check: texts for check, texts in found.items() if texts}


@pytest.mark.parametrize("name", CASES)
def test_logs_have_these_gaps_and_contradictions(name: str) -> None:
    assert findings(CASES[name]) == CASES[name].get("found", {})


@pytest.mark.parametrize(
    ("version", "scenario", "tokens", "newest"),
    [
        (".5a1", "Server", False, (1, 1)),
        (".5a1", "MultiStream", False, (1, 1)),
        ("3.1", "Server", False, (3, 1)),
        ("4.1", "Server", False, (6, 0, 5)),
        ("4.1", "Server", True, (5, 1, 0)),
        ("5.1.2", "Server", True, (6, 0, 5)),
        ("6.0.17", "Server", False, (6, 0, 6)),
        ("2.0", "Offline", False, (6, 0, 5)),
        ("2.0", "SingleStream", False, (5, 0, 14)),
        ("5.0.15", "MultiStream", True, (5, 1, 0)),
    ],
)
def test_a_summary_fits_the_newest_version_that_writes_it(
    version: str, scenario: str, newest: tuple[int, ...], *, tokens: bool
) -> None:
    _, summary = changed_run({"run": {"version": version, "scenario": scenario, "tokens": tokens}})
    assert fitting_version(summary) == newest


def test_settings_are_in_base_units() -> None:
    case = {"run": {"tokens": True}, "values": {"effective_garbled_ns": "text"}}
    log, _ = changed_run(case)
    expected = {
        "samples_per_query": 1,
        "target_qps": 300,
        "target_latency_s": 0.0,
        "target_latency_percentile": 0.99,
        "max_async_queries": 0,
        "target_duration_s": 600.0,
        "min_duration_s": 50.0,
        "max_duration_s": 0.0,
        "min_query_count": 100,
        "max_query_count": 0,
        "min_sample_count": 100,
        "qsl_rng_seed": "2085463073848966840",
        "sample_index_rng_seed": "2747215439041700203",
        "schedule_rng_seed": "16159082839903944936",
        "accuracy_log_rng_seed": "0",
        "accuracy_log_probability": 0,
        "accuracy_log_sampling_target": 0,
        "print_timestamps": False,
        "performance_issue_unique": False,
        "performance_issue_same": False,
        "performance_issue_same_index": 0,
        "performance_sample_count": 64,
        "accuracy_sample_count": 64,
        "garbled_ns": "text",
        "use_token_latencies": True,
    }
    assert settings_of(log) == {**expected, "ttft_latency_s": 0.5, "tpot_latency_s": 0.03}
    log.values |= {"effective_scenario": "SingleStream", "effective_target_latency_ns": 1_500_000_000}
    assert settings_of(log) == {**expected, "target_latency_s": 1.5}
