"""A run that is VALID as written, with the changes that a case of reasons.yaml or numbers.yaml lists."""

from __future__ import annotations

import json
import tempfile
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsers.loadgen import SummaryLog, read_detail, read_summary
from tests.parsers.loadgen.written_logs import DETAIL, SUMMARY, Run

if TYPE_CHECKING:
    from parsers.loadgen import DetailLog


@cache
def _logs(run: str) -> tuple[DetailLog, SummaryLog]:
    with tempfile.TemporaryDirectory() as name:
        folder = Run(**json.loads(run)).write(Path(name))
        return read_detail(folder / DETAIL), read_summary(folder / SUMMARY)


def changed_run(case: dict[str, Any]) -> tuple[DetailLog, SummaryLog]:
    """Return both logs of a run with the changes of the case."""
    log, summary = deepcopy(_logs(json.dumps(case.get("run", {}))))
    if case.get("accuracy"):
        log.values |= {"effective_test_mode": "AccuracyOnly", "requested_test_mode": "AccuracyOnly"}
        log.counts = {key: count for key, count in log.counts.items() if not key.startswith("result_")}
    if case.get("blank"):
        summary = SummaryLog(summary.path, errors=0, warnings=0)
    if case.get("files") == "summary":
        log.is_summary, log.counts = True, {}
    log.values |= case.get("values", {})
    for messages, texts in ((log.errors, case.get("errors", {})), (log.warnings, case.get("warned", {}))):
        for text in (text for text, count in texts.items() for _ in range(count)):
            messages.add(text)
    _remove(log, {"values": case.get("drop", ()), "counts": case.get("drop", ())})
    _remove(summary, {"said": case.get("forget", ())} | case.get("lose", {}))
    _change(log, case.get("log", {}))
    _change(summary, case.get("summary", {}))
    return log, summary


def _remove(target: object, keys: dict[str, Any]) -> None:
    for name, removed in keys.items():
        left = getattr(target, name)
        setattr(target, name, {key: value for key, value in left.items() if key not in removed})


def _change(target: object, changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        old = getattr(target, name)
        setattr(target, name, old | value if isinstance(old, dict) else value)
