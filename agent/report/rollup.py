"""rollup/run_rollup.json: a summary of a run in one short file, to compare with other runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agent.core.records import verdict_to_json
from agent.report.case_summary import metric_json
from agent.report.headline import headline_json
from agent.report.run_folder import CaseResult, RunResult, read_run
from agent.store.documents import RollupDocument
from agent.store.exhibits import read_exhibits

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


def write_rollup(run_dir: Path) -> Path:
    """Write ``rollup/run_rollup.json``, completely or not at all.

    Args:
        run_dir: the run's folder.

    Returns:
        The file's path.

    Raises:
        UsageError: if the folder does not contain a readable run.json.
    """
    return _rollup(read_run(run_dir)).write(run_dir)


def _rollup(run: RunResult) -> RollupDocument:
    statuses = [step.status for step in run.steps]
    document = {
        "run_id": run.run_id,
        "experiment_id": run.experiment_id,
        "client_id": run.client_id,
        "profile": run.profile.get("name") or "",
        "parameters": run.profile.get("parameters") or {},
        "versions": run.values.get("versions") or {},
        "start": _iso(run.start),
        "end": _iso(run.end),
        "duration_s": run.duration_s,
        "exit_code": run.values.get("exit_code"),
        "exit_reason": run.values.get("exit_reason") or "",
        "verdict": {**verdict_to_json(run.verdict), "warnings": list(run.warnings)},
        "steps": {status: statuses.count(status) for status in dict.fromkeys(statuses)},
        "cases": [_case(case, run) for case in run.cases],
    }
    return RollupDocument.model_validate(document)


def _case(case: CaseResult, run: RunResult) -> dict[str, Any]:
    verdict = {**verdict_to_json(case.verdict), "warnings": list(case.warnings)}
    return {
        "scenario": case.scenario,
        "tool": {"name": case.tool_name, "version": case.tool_version},
        **verdict,
        "complete": case.complete,
        "start": _iso(case.start),
        "end": _iso(case.end),
        "case_dir": case.case_dir.relative_to(run.run_dir).as_posix() if case.case_dir else None,
        "headline": headline_json(case.metrics),
        "metrics": [metric_json(metric) for metric in case.headline],
        **_tables(case),
    }


def _tables(case: CaseResult) -> dict[str, Any]:
    """Return the case's tables for comparison, if it has any."""
    tables = read_exhibits(case.case_dir).tables
    return {"tables": [asdict(table) for table in tables]} if tables else {}


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
