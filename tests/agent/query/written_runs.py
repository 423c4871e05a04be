"""Runs as the agent writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WHEN = "2026-04-01T12:00:00+00:00"
LATER = "2026-04-01T12:00:30.500000+00:00"
ORDER = "\x1b[2J"


def line(run_id: str, **values: Any) -> str:
    """Return a line of metrics.jsonl."""
    record = {
        "record_id": 1, "timestamp": WHEN, "experiment_id": "e", "run_id": run_id, "client_id": "h",
        "profile": "P", "tool_name": "loadgen", "tool_version": "6", "scenario": "m/Server/performance",
        "scenario_start": WHEN, "scenario_end": LATER, "metric": "ttft_p99", "value": 1.5, "unit": "seconds",
        "relativity": "LowerIsBetter", "verbosity": 1, "description": "d", "tags": ["a"],
        "metadata": {"context_id": "c1", "gpu_index": 0},
    } | values  # fmt: skip
    return json.dumps(record) + "\n"


def write_run(folder: Path, run_id: str, verdict: str = "VALID", *values: float) -> Path:
    """Write the files of a run as the agent does; return its folder."""
    run_dir = folder / run_id
    run_dir.mkdir(parents=True, exist_ok=True)
    reasons = [] if verdict == "VALID" else [{"message": f"too slow{ORDER}"}]
    document = {
        "run_id": run_id, "experiment_id": "e", "client_id": "h", "start": WHEN, "end": LATER,
        "profile": {"name": "P", "parameters": {"Samples": 10}}, "exit_code": 0,
        "verdict": {"validity": verdict},
        "cases": [{"scenario": "m/Server/performance", "validity": verdict, "reasons": reasons,
                   "start": WHEN, "end": LATER, "complete": True}],
        "steps": [{"key": "k", "type": "T", "status": "done", "attempts": 2}],
    }  # fmt: skip
    (run_dir / "run.json").write_text(json.dumps(document))
    (run_dir / "metrics.jsonl").write_text("".join(line(run_id, value=one) for one in values))
    context = {"context_id": "c1", "run_id": run_id, "metadata_host": {"gpuName": "H200"}}
    (run_dir / "contexts.jsonl").write_text(json.dumps(context) + "\n")
    (run_dir / "journal.sqlite").write_text("")
    (run_dir / ".vcagent-run").write_text(f"20260401T120000Z {run_id}\n")
    return run_dir
