"""Runs the harness in the benchmark environment, against a server that may misbehave."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

LOADGEN = Path(__file__).parents[5] / "actions" / "loadgen"
IN_ENVIRONMENT = LOADGEN / "in_environment"
PROMPTS = 16


@dataclass(frozen=True)
class Outcome:
    """The result of a run of the harness."""

    exit_code: int
    stderr: str
    events: list[dict[str, Any]]
    output_dir: Path

    @property
    def result(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.output_dir / "harness_result.json").read_text())
        return loaded

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = self.result["error"]
        return found

    def detail(self) -> dict[str, Any]:
        """Return LoadGen's detail log by its keys."""
        lines = (self.output_dir / "mlperf_log_detail.txt").read_text().splitlines()
        entries = (json.loads(line.split(":::MLLOG ", 1)[1]) for line in lines)
        return {entry["key"]: entry["value"] for entry in entries}

    def samples(self) -> list[dict[str, str]]:
        header, *rows = (self.output_dir / "samples.csv").read_text().splitlines()
        return [dict(zip(header.split(","), row.split(","), strict=True)) for row in rows]


def start_process(
    python: Path, *arguments: str, cwd: Path, quiet: bool = False, **env: str
) -> subprocess.Popen[str]:
    output = subprocess.DEVNULL if quiet else subprocess.PIPE
    return subprocess.Popen(
        [python, *arguments],
        stdout=output,
        stderr=output,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(IN_ENVIRONMENT), **env},
    )


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    rows = ({"id": f"q{number}", "prompt": f"sample {number} of a set"} for number in range(PROMPTS))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def config(tmp_path: Path, dataset: Path) -> Callable[..., Path]:
    """Return a function that writes a configuration; by default Server for a second with the null backend."""

    def write(**changes: Any) -> Path:
        settings = {"target_qps": 200, "min_duration": 800, "min_query_count": 100}
        limits = {"ttft_latency": 500, "tpot_latency": 200}
        scenario = changes.get("scenario", "Server")
        values = {
            "scenario": scenario,
            "mode": "performance",
            "model": "tiny",
            "output_dir": str(tmp_path / "out"),
            "dataset": str(dataset),
            "backend": {"type": "null"},
            "settings": settings | (limits if scenario in {"Server", "Interactive"} else {}),
            "max_output_tokens": 8,
            "warmup_samples": 2,
            "sample_timeout_s": 120,
            **changes,
        }
        path = tmp_path / "config.json"
        path.write_text(json.dumps(values))
        return path

    return write


@pytest.fixture
def harness(bench_python: Path, config: Callable[..., Path], tmp_path: Path) -> Callable[..., Outcome]:
    """Return a function that runs the harness to its end."""

    def run(*, env: dict[str, str] | None = None, **changes: Any) -> Outcome:
        path = config(**changes)
        process = start_process(bench_python, "-m", "harness", str(path), cwd=tmp_path, **(env or {}))
        stdout, stderr = process.communicate(timeout=300)
        events = [json.loads(line) for line in stdout.splitlines()]
        return Outcome(process.returncode, stderr, events, Path(json.loads(path.read_text())["output_dir"]))

    return run
