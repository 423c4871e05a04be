"""Run folders as the agent leaves them: a finished run with three kinds of verdict, and one that failed early."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

START = datetime(2026, 4, 1, 12, 0, tzinfo=timezone.utc)
DESCRIPTION = "Llama 3.1 8B on this host.\n<script>alert('from the profile')</script> <img src=https://example.org/x>"
RUN_ID = "20260401T120000Z-perf-gpu-mlperf-3fa9"
IDENTITY = {
    "experiment_id": "b7c0a2de-5d0e-4a53-8a40-0c8f0cb4d3f1",
    "run_id": RUN_ID,
    "client_id": "gpu-host-017",
    "profile": "PERF-GPU-MLPERF",
}


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def write_samples(path: Path, *, queries: int, rate: float, ttft_s: float, tpot_s: float, seed: int) -> None:
    """Poisson arrivals, log-normal first tokens, and token times that grow with the load."""
    chance = random.Random(seed)
    issued_s = 0.0
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["sample_id", "sample_index", "issued_s", "first_token_s", "completed_s", "output_tokens"])
        for number in range(queries):
            issued_s += chance.expovariate(rate)
            first_s = issued_s + chance.lognormvariate(math.log(ttft_s), 0.45)
            tokens = chance.randint(90, 128)
            done_s = first_s + (tokens - 1) * tpot_s * chance.gauss(1, 0.06)
            rows.writerow([number, number % 500, *(f"{t:.6f}" for t in (issued_s, first_s, done_s)), tokens])


def metric_lines() -> Iterator[dict[str, Any]]:
    server = "llama3.1-8b/Server/performance"
    offline = "llama3.1-8b/Offline/performance"
    single = "llama3.1-8b/SingleStream/performance"
    rows = [
        (offline, "tokens_per_second", 8532.59, "tokens/s", "HigherIsBetter", 1, "Output tokens a second"),
        (offline, "samples_per_second", 133.322, "samples/s", "HigherIsBetter", 1, "Samples a second"),
        (offline, "latency_p99", 2.997968316, "seconds", "LowerIsBetter", 2, "99th percentile of the latency"),
        (offline, "min_query_count", 1.0, "count", "Undefined", 3, ""),
        (server, "completed_tokens_per_second", 4311.25, "tokens/s", "HigherIsBetter", 1, "Output tokens a second"),
        (server, "completed_samples_per_second", 39.81, "samples/s", "HigherIsBetter", 1, "Completed samples a second"),
        (server, "ttft_p99", 0.868213459, "seconds", "LowerIsBetter", 1, "99th percentile of the time to first token"),
        (server, "tpot_p99", 0.115202871, "seconds", "LowerIsBetter", 1, "99th percentile of the time per output token"),
        (server, "latency_mean", 9.2, "seconds", "LowerIsBetter", 2, ""),
    ]
    for scenario, metric, value, unit, relativity, verbosity, description in rows:
        yield {
            "timestamp": at(900), **IDENTITY, "tool_name": "loadgen", "tool_version": "6.0.17", "scenario": scenario,
            "scenario_start": at(120), "scenario_end": at(420), "metric": metric, "value": value, "unit": unit,
            "relativity": relativity, "verbosity": verbosity, "description": description, "tags": ["mlperf"],
            "metadata": {"model": "llama3.1-8b"},
        }
    assert single  # its case failed: it has no metrics
    yield from monitor_lines()


def monitor_lines() -> Iterator[dict[str, Any]]:
    chance = random.Random(7)
    for second in range(0, 1000, 5):
        busy = 1.0 if 130 < second < 420 or 440 < second < 860 else 0.05
        load = [
            (f"gpu_{gpu}_utilization", min(1.0, busy * chance.uniform(0.9, 1.0)), "ratio", {}) for gpu in range(4)
        ]
        load += [(f"gpu_{gpu}_power", 90 + 560 * busy * chance.uniform(0.9, 1), "watts", {}) for gpu in range(4)]
        load += [("gpu_memory_used", (4 + 70 * busy) * 2**30, "bytes", {"gpu_index": gpu}) for gpu in range(4)]
        load += [("cpu_utilization", 0.1 + 0.3 * busy * chance.random(), "ratio", {}),
                 ("memory_used", (31 + second / 100) * 2**30, "bytes", {})]
        for metric, value, unit, metadata in load:
            yield {
                "timestamp": at(second), **IDENTITY, "tool_name": "HostMonitor", "tool_version": "", "scenario": "host",
                "scenario_start": at(second), "scenario_end": at(second), "metric": metric, "value": value,
                "unit": unit, "relativity": "Undefined", "verbosity": 2, "description": "", "tags": [],
                "metadata": metadata,
            }


def step(number: int, component: str, name: str, kind: str, status: str, start: float, end: float | None, **more: str) -> dict[str, Any]:
    return {
        "key": f"{number}.{component}.{name}", "component": component, "type": component, "name": name, "kind": kind,
        "status": status, "start": at(start), "end": None if end is None else at(end),
        "log": f"logs/{number}-{name}.log", "reason": "", "message": "", **more,
    }


def case(scenario: str, validity: str, start: float, end: float, case_dir: str | None, **more: Any) -> dict[str, Any]:
    return {
        "scenario": scenario, "tool_name": "loadgen", "tool_version": "6.0.17", "validity": validity, "reasons": [],
        "warnings": [], "start": at(start), "end": at(end), "case_dir": case_dir, "details": {}, "complete": True,
        "step": "4.LoadGenExecutor.run", **more,
    }


TPOT_REASON = {
    "message": "TPOT p99 is 115.2 ms, above the limit of 100 ms for llama3_1-8b in Server",
    "remedy": "lower the load: at 34 queries/s the limit is expected to hold",
    "setting": "target_qps",
    "value": 34,
    "code": "tpot_limit",
}


def run_json() -> dict[str, Any]:
    return {
        "schema_version": 1, **IDENTITY,
        "profile": {
            "name": "PERF-GPU-MLPERF", "description": DESCRIPTION, "sources": ["profiles/PERF-GPU-MLPERF.yaml"],
            "parameters": {"model": "llama3.1-8b", "scenarios": ["Offline", "Server", "SingleStream"], "target_qps": 40.0,
                           "hf_token": "***", "prefix_caching": False},
        },
        "command_line": ["vcagent", "--profile", "PERF-GPU-MLPERF.yaml", "--parameters", "target_qps=40"],
        "versions": {"vcagent": "1.0.0", "python": "3.11.7", "vllm": "0.32.0", "loadgen": "6.0.17",
                     "image": "vllm/vllm-openai@sha256:" + "5c1f" * 16},
        "facts": {
            "distribution": {"name": "Ubuntu", "version": "24.04"}, "kernel": "6.8.0-60-generic",
            "memory_bytes": 2164663517184, "secure_boot": False,
            "gpus": [{"index": i, "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85520809984, "driver": "570.133.20"}
                     for i in range(4)],
        },
        "start": at(0), "end": at(1000),
        "verdict": {"validity": "INVALID", "reasons": [{**TPOT_REASON, "message": f"Server: {TPOT_REASON['message']}"}],
                    "warnings": ["gpu 2 was 6 °C hotter than the others"]},
        "exit_code": 7, "exit_reason": "1 of 3 results is INVALID and 1 case failed",
        "steps": [
            step(1, "NvidiaCudaInstallation", "driver", "dependency", "skipped", 1, 1.2, reason="driver 570.133.20 is loaded, as wanted"),
            step(2, "PythonEnvironmentInstallation", "create", "dependency", "done", 2, 74, message="vllm 0.32.0 installed",
                 reason="the environment does not exist"),
            step(3, "HostMonitor", "watch", "monitor", "done", 80, 990),
            step(4, "LoadGenExecutor", "offline", "action", "done", 110, 425, message="VALID: 8533 tokens/s"),
            step(5, "LoadGenExecutor", "server", "action", "done", 430, 870, message="INVALID: TPOT p99 115.2 ms"),
            step(6, "LoadGenExecutor", "single-stream", "action", "failed", 880, 884, message="the engine stopped answering"),
        ],
        "cases": [
            case("llama3.1-8b/Offline/performance", "VALID", 120, 420, "mlperf/offline-performance",
                 details={"target_qps": 100, "model": "llama3.1-8b"}, warnings=["sample_concatenate_permutation was set"]),
            case("llama3.1-8b/Server/performance", "INVALID", 440, 860, "mlperf/server-performance",
                 reasons=[TPOT_REASON], details={"target_qps": 40.0, "ttft_limit_s": 2.0, "tpot_limit_s": 0.1}),
            case("llama3.1-8b/SingleStream/performance", "FAILED", 880, 884, "mlperf/singlestream-performance",
                 reasons=[{"message": "the engine exited with code -9 after 4 s", "remedy": "free memory: 0.4 GiB was left"}]),
        ],
    }


@pytest.fixture
def finished_run(tmp_path: Path) -> Path:
    """A run with a VALID, an INVALID and a FAILED case, monitors, logs and samples."""
    return build_finished_run(tmp_path / RUN_ID)


def build_finished_run(run_dir: Path) -> Path:
    (run_dir / "logs").mkdir(parents=True)
    run = run_json()
    (run_dir / "run.json").write_text(json.dumps(run), encoding="utf-8")
    for row in run["steps"]:
        (run_dir / row["log"]).write_text("$ a command\n", encoding="utf-8")
    with (run_dir / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for number, line in enumerate(metric_lines()):
            file.write(json.dumps({"record_id": number, **line}) + "\n")
    for name in ("offline-performance", "server-performance", "singlestream-performance"):
        folder = run_dir / "mlperf" / name
        folder.mkdir(parents=True)
        (folder / "mlperf_log_summary.txt").write_text("MLPerf Results Summary\n", encoding="utf-8")
    (run_dir / "mlperf/server-performance/odd name #1.txt").write_text("x", encoding="utf-8")
    write_samples(run_dir / "mlperf/server-performance/samples.csv", queries=2000, rate=40, ttft_s=0.3, tpot_s=0.09, seed=1)
    write_samples(run_dir / "mlperf/offline-performance/samples.csv", queries=600, rate=1e6, ttft_s=3, tpot_s=0.05, seed=2)
    return run_dir


@pytest.fixture
def failed_run(tmp_path: Path) -> Path:
    """A run that a dependency stopped: no cases, no metrics, and hardly any keys."""
    run_dir = tmp_path / "failed"
    run_dir.mkdir()
    run = {
        "run_id": "failed", "profile": {"name": "PERF-GPU-MLPERF"}, "start": at(0), "end": None, "exit_code": 5,
        "exit_reason": "the driver could not be installed: the package lock is held by process 812 (unattended-upgr)",
        "steps": [{"key": "1", "component": "NvidiaCudaInstallation", "name": "driver", "status": "failed",
                   "log": "logs/1.log", "message": "apt-get ended with 100"}, {"key": "2"}],
    }
    (run_dir / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return run_dir
