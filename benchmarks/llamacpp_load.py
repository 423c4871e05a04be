"""llama.cpp's server under users with long requests: 2,560 tokens in and 768 out, exactly.

Usage: ``.venv/bin/python benchmarks/llamacpp_load.py --model M.gguf --environment ENV --locust ENV``,
where ENV are folders of Python environments with xllamacpp and with locust (those of PERF-LLAMACPP's
dependencies), or ``--binary llama-server``. It runs LlamaCppServer and LocustLoad by vcagent itself and keeps
what their records say of each number of users, with the host's load average before and after: a host that
does something else meanwhile is slower than it could be. Results of one call are laid over those of earlier
ones in the same file, model by model and number of users by number of users: it may be run in pieces.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHOWN = (
    "output_tokens_per_second",
    "output_tokens_per_second_per_user",
    "input_tokens_per_second",
    "ttft_mean",
    "tpot_mean",
    "inter_token_latency_p99",
    "latency_mean",
    "request_count",
    "request_failures",
    "client_cpu",
)


def profile(arguments: argparse.Namespace) -> dict[str, Any]:
    """A server and its load in one group."""
    program = {"binary": arguments.binary} if arguments.binary else {"environment": arguments.environment}
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
        "environment": arguments.locust,
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
        "Description": "Load with long requests.",
        "Actions": [{"type": "SequentialExecution", "components": components}],
    }


def measured(run_dir: Path) -> dict[str, Any]:
    """The cases with their verdicts and numbers."""
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    run = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for case in run["cases"]:
        own = {record["metric"]: record for record in records if record["scenario"] == case["scenario"]}
        found[case["scenario"].rpartition("/")[2]] = {
            "validity": case["validity"],
            "reasons": [reason["message"] for reason in case["reasons"]],
            "warnings": case["warnings"],
            "engine_version": case["details"].get("engine_version"),
            "locust_version": case["details"].get("locust_version"),
            "slots": case["details"].get("slots"),
            "threads": case["details"].get("threads"),
            "window_s": case["details"].get("window_s"),
            **{name: [own[name]["value"], own[name]["unit"]] for name in SHOWN if name in own},
        }
    return found


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", required=True, help="GGUF file, or package:<module> of the environment")
    parser.add_argument("--environment", default="", help="Python environment with xllamacpp")
    parser.add_argument("--binary", default="", help="a llama-server, instead")
    parser.add_argument("--locust", required=True, help="Python environment with locust")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--duration", type=float, default=60, help="seconds; requests under way are ended")
    parser.add_argument("--input-tokens", type=int, default=2560)
    parser.add_argument("--output-tokens", type=int, default=768)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/llamacpp_load.json")
    arguments = parser.parse_args()
    before = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "LOAD.json")
        path.write_text(json.dumps(profile(arguments)), encoding="utf-8")
        command = [sys.executable, "-m", "agent", "--profile", str(path), "--results-dir", folder]
        subprocess.run(command, cwd=ROOT, check=False)
        results = measured(Path(folder, "latest"))
    about = {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "load_average": {"before": before, "after": os.getloadavg()},
        "input_tokens": arguments.input_tokens,
        "output_tokens": arguments.output_tokens,
        "duration_s": arguments.duration,
    }
    report = {"machine": machine(), "models": earlier(arguments.out)}
    cases = report["models"].setdefault(Path(arguments.model).name, {})
    cases |= {name: {**about, **case} for name, case in results.items()}
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """What it was measured on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    cpu = next(
        (line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine()
    )
    return {"cpu": cpu, "cpus": os.cpu_count(), "kernel": platform.release()}


def earlier(out: Path) -> dict[str, dict[str, Any]]:
    """The results that the file has on this machine; none if it is another's."""
    if not out.is_file():
        return {}
    report = json.loads(out.read_text(encoding="utf-8"))
    same = report.get("machine") == machine()
    return dict(report.get("models", {})) if same else {}


if __name__ == "__main__":
    main()
