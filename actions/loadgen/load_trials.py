"""Record the trials of a load search beside the result that they led to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity
from parsers.loadgen import parse_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_SHOWN = ("samples_per_second", "tokens_per_second", "ttft_p99", "tpot_p99", "latency_p99")


def trial_metrics(scenario: str, result: Mapping[str, Any], case_dir: Path) -> Iterator[Metric]:
    """Yield the offered load and the results of each trial, under its own scenario.

    Args:
        scenario: the test's scenario.
        result: ``harness_result.json``.
        case_dir: the test's folder, which contains the trials' folders.
    """
    for number, trial in enumerate((result.get("tuning") or {}).get("trials", []), start=1):
        own = f"{scenario}/trial-{number:02d}"
        outcome = {"holds": bool(trial["holds"]), "full_length": bool(trial["is_final"])}
        yield Metric(
            "target_qps",
            float(trial["target_qps"]),
            "queries/s",
            Relativity.UNDEFINED,
            f"offered load: {trial['why'] or 'it holds'}",
            verbosity=2,
            metadata=outcome,
            scenario=own,
        )
        try:
            parsed = parse_folder(case_dir / trial["folder"])
        except ParseError:
            continue  # the trial's own logs have the cause; the result does not depend on them
        for metric in parsed.metrics:
            if metric.name in _SHOWN:
                yield Metric(
                    metric.name,
                    metric.value,
                    metric.unit,
                    metric.relativity,
                    metric.description,
                    verbosity=3,
                    metadata=outcome,
                    scenario=own,
                )
