"""Folders of runs in the agent's format, with the values that a test gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

MOMENT = datetime(2026, 4, 1, 12, tzinfo=timezone.utc).isoformat()
MakeRun = Callable[..., Path]

KINDS = {
    "tokens_per_second": ("tokens/s", "HigherIsBetter"),
    "ttft_p99": ("seconds", "LowerIsBetter"),
    "wakeups": ("count", "Undefined"),
}


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Return a function that makes a run of one scenario: for each metric a value, or one for each round."""

    def make(
        name: str,
        values: Mapping[str, float | Sequence[float]],
        *,
        host: str = "gpu-1",
        validity: str | None = "VALID",
        samples: str = "",
        folder: Path = tmp_path,
        end: str | None = MOMENT,
        clock: float | None = None,
        scenario: str = "m/Server/performance",
        details: Mapping[str, Any] = MappingProxyType({"target_qps": 40}),
        **document: Any,
    ) -> Path:
        run = folder / name
        of_rounds = {
            metric: [of] if isinstance(of, int | float) else list(of) for metric, of in values.items()
        }
        rounds = max(map(len, of_rounds.values()), default=1)
        cases, lines = [], []
        for number in range(rounds):
            own = scenario + (f"#{number + 1}" if number else "")
            case_dir = f"mlperf/case-{number + 1}"
            (run / case_dir).mkdir(parents=True)
            if samples:
                (run / case_dir / "samples.csv").write_text(samples, encoding="utf-8")
            cases.append(
                {
                    "scenario": own, "tool_name": "loadgen", "tool_version": "6.0", "validity": validity,
                    "case_dir": case_dir, "details": dict(details),
                    "step": f"{number + 1}:actions[0]/run",
                }
            )  # fmt: skip
            found = [(metric, of[number], *KINDS[metric], []) for metric, of in of_rounds.items()]
            if clock:
                found.append(("gpu0_sm_clock_mean", clock, "hertz", "Undefined", ["summary"]))
            lines += [
                {
                    "timestamp": MOMENT, "experiment_id": "e", "run_id": name, "client_id": host,
                    "profile": "P",
                    "tool_name": "loadgen", "tool_version": "6.0", "scenario": own, "scenario_start": MOMENT,
                    "scenario_end": MOMENT, "metric": metric, "value": value, "unit": unit,
                    "relativity": relativity, "verbosity": 1, "tags": tags,
                }
                for metric, value, unit, relativity, tags in found
            ]  # fmt: skip
        content = {
            "run_id": name, "client_id": host, "profile": {"name": "P"}, "start": MOMENT, "end": end,
            "cases": cases, **document,
        }  # fmt: skip
        (run / "run.json").write_text(json.dumps(content), encoding="utf-8")
        (run / "metrics.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8"
        )
        return run

    return make
