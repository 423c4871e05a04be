"""summary.json: the result of one case, in one schema for every workload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.records import verdict_to_json
from agent.report.headline import headline_json
from agent.store.documents import SummaryDocument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.core.records import Metric, ParsedOutput


def metric_json(metric: Metric) -> dict[str, Any]:
    """Return a metric with its unit, without empty values."""
    values: dict[str, Any] = {
        "name": metric.name,
        "value": metric.value,
        "unit": metric.unit,
        "relativity": metric.relativity.value,
        "verbosity": metric.verbosity,
    }
    if metric.description:
        values["description"] = metric.description
    if metric.scenario:
        values["scenario"] = metric.scenario
    if metric.tags:
        values["tags"] = list(metric.tags)
    if metric.metadata:
        values["metadata"] = dict(metric.metadata)
    return values


def _source(source: str, case_dir: Path) -> str:
    path = Path(source)
    return path.relative_to(case_dir).as_posix() if path.is_relative_to(case_dir) else source


def write_case_summary(
    case_dir: Path, output: ParsedOutput, usage: Sequence[Metric] = (), warnings: Sequence[str] = ()
) -> Path:
    """Write ``summary.json`` beside a case's raw logs, completely or not at all.

    Args:
        case_dir: the folder of the case's raw logs.
        output: the result that was read from the logs.
        usage: what the monitors recorded during the case.
        warnings: the monitors' warnings.

    Returns:
        The file's path.
    """
    verdict = verdict_to_json(output.verdict)
    summary = {
        "scenario": output.scenario,
        "tool": {"name": output.tool_name, "version": output.tool_version},
        "format": output.format,
        "start": output.start.isoformat() if output.start else None,
        "end": output.end.isoformat() if output.end else None,
        "complete": output.complete,
        "verdict": {**verdict, "warnings": [*verdict["warnings"], *warnings]},
        "headline": headline_json(output.metrics),
        "metrics": [metric_json(metric) for metric in output.metrics],
        "usage": [metric_json(metric) for metric in usage],
        "details": dict(output.details),
        "sources": [_source(source, case_dir) for source in output.sources],
    }
    return SummaryDocument.model_validate(summary).write(case_dir)
