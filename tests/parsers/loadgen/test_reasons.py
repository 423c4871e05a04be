"""Each reason and warning of a verdict in full: message, remedy, setting and value (reasons.yaml)."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from agent.core.yaml_data import yaml_data
from parsers.loadgen.verdict import judge
from tests.parsers.loadgen.changed_runs import changed_run

CASES: dict[str, dict[str, Any]] = yaml_data(Path(__file__).with_name("reasons.yaml").read_text())
NO_SUMMARY = "there is no mlperf_log_summary.txt beside the detail log"


@pytest.mark.parametrize("name", CASES)
def test_a_verdict_gives_these_reasons_and_warnings(name: str) -> None:
    case = CASES[name]
    log, summary = changed_run(case)
    verdict = judge(log, summary if "files" in case else None, case.get("missing", []), case.get("asked"))
    expected = [
        (message, remedy, *(setting or (None, None)), code)
        for code, message, remedy, *setting in case.get("reasons", ())
    ]
    assert verdict.validity.value == case["verdict"]
    assert [astuple(reason) for reason in verdict.reasons] == expected
    none = () if "files" in case else (NO_SUMMARY,)
    assert sorted(verdict.warnings) == sorted((*none, *case.get("warnings", ())))
