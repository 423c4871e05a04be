"""Each reason and warning of a verdict in full: message, remedy, setting and value (reasons.yaml)."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from parsers.loadgen import read_detail, read_summary
from parsers.loadgen.verdict import judge
from tests.parsers.loadgen.written_logs import DETAIL, SUMMARY, Run

if TYPE_CHECKING:
    from agent.core.records import Verdict

CASES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("reasons.yaml").read_text())
NO_SUMMARY = "there is no mlperf_log_summary.txt beside the detail log"


def verdict_of(case: dict[str, Any], folder: Path) -> Verdict:
    """Judge a case: a run that is VALID as written, with the changes that the case lists."""
    Run(**case.get("run", {})).write(folder)
    log, summary = read_detail(folder / DETAIL), read_summary(folder / SUMMARY)
    if case.get("accuracy"):
        log.values |= {"effective_test_mode": "AccuracyOnly", "requested_test_mode": "AccuracyOnly"}
        log.counts = {key: count for key, count in log.counts.items() if not key.startswith("result_")}
    if case.get("files") == "summary":
        log.is_summary, log.counts = True, {}
    log.values |= case.get("values", {})
    for key in case.get("drop", ()):
        del log.values[key]
        log.counts.pop(key, None)
    for name in case.get("forget", ()):
        del summary.said[name]
    for messages, texts in ((log.errors, case.get("errors", {})), (log.warnings, case.get("warned", {}))):
        for text, count in texts.items():
            for _ in range(count):
                messages.add(text)
    for target, changes in ((log, case.get("log", {})), (summary, case.get("summary", {}))):
        for name, value in changes.items():
            old = getattr(target, name)
            setattr(target, name, old | value if isinstance(old, dict) else value)
    return judge(log, summary if "files" in case else None, case.get("missing", []), case.get("asked"))


@pytest.mark.parametrize("name", CASES)
def test_a_verdict_gives_these_reasons_and_warnings(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    verdict = verdict_of(case, tmp_path)
    expected = [
        (message, remedy, *(setting or (None, None)), code)
        for code, message, remedy, *setting in case.get("reasons", ())
    ]
    assert verdict.validity.value == case["verdict"]
    assert [astuple(reason) for reason in verdict.reasons] == expected
    none = () if "files" in case else (NO_SUMMARY,)
    assert sorted(verdict.warnings) == sorted((*none, *case.get("warnings", ())))
