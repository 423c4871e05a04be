"""Run folders in the agent's format: one with three kinds of verdict, and one that failed early."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from agent.report.html import write_report

if TYPE_CHECKING:
    from collections.abc import Iterator

START = datetime(2026, 4, 1, 12, 0, tzinfo=timezone.utc)
CASES = ("server-performance", "offline-performance", "singlestream-performance")
DATA = Path(__file__).with_name("finished_run")
RUN = json.loads((DATA / "run.json").read_text(encoding="utf-8"))
IDENTITY = {
    "experiment_id": RUN["experiment_id"],
    "run_id": RUN["run_id"],
    "client_id": RUN["client_id"],
    "profile": RUN["profile"]["name"],
}


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def write_samples(path: Path, *, queries: int, rate: float, ttft_s: float, tpot_s: float) -> None:
    """Write samples: Poisson arrivals, log-normal first tokens, and token times that grow with the load."""
    chance = random.Random(queries)  # noqa: S311 - the same samples each time
    issued_s = 0.0
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(
            ["sample_id", "sample_index", "issued_s", "first_token_s", "completed_s", "output_tokens"]
        )
        for number in range(queries):
            issued_s += chance.expovariate(rate)
            first_s = issued_s + chance.lognormvariate(math.log(ttft_s), 0.45)
            tokens = chance.randint(90, 128)
            done_s = first_s + (tokens - 1) * tpot_s * chance.gauss(1, 0.06)
            rows.writerow([number, number % 500, *(f"{t:.6f}" for t in (issued_s, first_s, done_s)), tokens])


def monitor_lines() -> Iterator[dict[str, Any]]:
    chance = random.Random(7)  # noqa: S311
    for second in range(0, 1000, 10):
        busy = 1.0 if 130 < second < 420 or 440 < second < 860 else 0.05
        load = [
            (f"gpu_{gpu}_utilization", min(1.0, busy * chance.uniform(0.9, 1.0)), "ratio", {})
            for gpu in range(4)
        ]
        load += [
            (f"gpu_{gpu}_power", 90 + 560 * busy * chance.uniform(0.9, 1), "watts", {}) for gpu in range(4)
        ]
        load += [
            ("gpu_memory_used", (4 + 70 * busy) * 2**30, "bytes", {"gpu_index": gpu}) for gpu in range(4)
        ]
        load += [
            ("cpu_utilization", 0.1 + 0.3 * busy * chance.random(), "ratio", {}),
            ("memory_used", (31 + second / 100) * 2**30, "bytes", {}),
        ]
        for metric, value, unit, metadata in load:
            yield {
                "timestamp": at(second),
                **IDENTITY,
                "tool_name": "HostMonitor",
                "tool_version": "",
                "scenario": "host",
                "scenario_start": at(second),
                "scenario_end": at(second),
                "metric": metric,
                "value": value,
                "unit": unit,
                "relativity": "Undefined",
                "verbosity": 2,
                "description": "",
                "tags": [],
                "metadata": metadata,
            }


@pytest.fixture(scope="session")
def reported_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the finished run with its pages; read-only."""
    run_dir = build_finished_run(tmp_path_factory.mktemp("reported") / RUN["run_id"])
    write_report(run_dir)
    return run_dir


@pytest.fixture
def finished_run(tmp_path: Path) -> Path:
    """Make a run with a VALID, an INVALID and a FAILED case, monitors, logs and samples."""
    return build_finished_run(tmp_path / RUN["run_id"])


def build_finished_run(run_dir: Path) -> Path:
    (run_dir / "logs").mkdir(parents=True)
    shutil.copy(DATA / "run.json", run_dir)
    for row in RUN["steps"]:
        (run_dir / row["log"]).write_text("$ a command\n", encoding="utf-8")
    with (run_dir / "metrics.jsonl").open("w", encoding="utf-8") as file:
        file.write((DATA / "metrics.jsonl").read_text(encoding="utf-8"))
        file.writelines(json.dumps(line) + "\n" for line in monitor_lines())
    for name in CASES:
        folder = run_dir / "mlperf" / name
        folder.mkdir(parents=True)
        (folder / "mlperf_log_summary.txt").write_text("MLPerf Results Summary\n", encoding="utf-8")
    (run_dir / "mlperf/server-performance/odd name #1.txt").write_text("x", encoding="utf-8")
    server, offline = (run_dir / "mlperf" / name / "samples.csv" for name in CASES[:2])
    write_samples(server, queries=2000, rate=40, ttft_s=0.3, tpot_s=0.09)
    write_samples(offline, queries=600, rate=1e6, ttft_s=3, tpot_s=0.05)
    return run_dir


@pytest.fixture
def failed_run(tmp_path: Path) -> Path:
    """Make a run that a dependency stopped: without cases and metrics, and with few keys."""
    run_dir = tmp_path / "failed"
    run_dir.mkdir()
    run = {
        "run_id": "failed",
        "profile": {"name": "PERF-GPU-MLPERF"},
        "start": at(0),
        "end": None,
        "exit_code": 5,
        "exit_reason": "the driver could not be installed: the package lock is held by process 812",
        "steps": [
            {
                "key": "1",
                "component": "NvidiaCudaInstallation",
                "name": "driver",
                "status": "failed",
                "log": "logs/1.log",
                "message": "apt-get ended with 100",
            },
            {"key": "2"},
        ],
    }
    (run_dir / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return run_dir


@pytest.fixture
def console() -> Console:
    """Return a terminal of 120 columns; ``export_text`` returns its output."""
    return Console(width=120, file=io.StringIO(), record=True)
