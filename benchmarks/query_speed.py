"""Measure the time and memory of ``vcagent query`` over many runs.

    python benchmarks/query_speed.py [--runs 10000] [--records 1000] [--folder FOLDER] [--out FILE]

Makes run folders (6 GB for 10,000 runs of 1,000 records each), asks the headline question several times, and
once without the index, which reads the JSON lines themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

HEADLINE = """
SELECT profile, scenario, metric, any_value(unit) AS unit, count(*) AS runs,
       median(value) AS median, quantile_cont(value, 0.05) AS p5, quantile_cont(value, 0.95) AS p95
FROM metrics JOIN cases USING (run_id, scenario)
WHERE cases.verdict = 'VALID' AND verbosity = 1
GROUP BY profile, scenario, metric ORDER BY ALL
"""
"""The headline numbers of all results that count, with their spread."""
ONE_METRIC = """
SELECT client_id, max(value) AS watts FROM metrics
WHERE metric = 'gpu0_power_draw_instant' GROUP BY client_id ORDER BY watts DESC LIMIT 10
"""
JSON_LINES = """
SELECT scenario, metric, count(*), median(value) FROM read_json('{folder}/*/metrics.jsonl',
format = 'newline_delimited', columns = {{scenario: 'VARCHAR', metric: 'VARCHAR', value: 'DOUBLE',
verbosity: 'INTEGER'}}) WHERE verbosity = 1 GROUP BY ALL
"""
HEADLINES = {"tokens_per_second": "tokens/s", "samples_per_second": "samples/s", "ttft_p99": "seconds"}
GAUGES = {
    "utilization": "ratio", "memory_used": "bytes", "power_draw_instant": "watts", "temperature": "celsius",
    "sm_clock": "hertz",
}  # fmt: skip
TIMES = 3


def main() -> None:
    """Make the runs, ask, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=1_000, help="of each run")
    parser.add_argument("--folder", type=Path, help="keep the runs here, and use those that are there")
    parser.add_argument("--out", type=Path, help="a file for the figures")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="vcagent-query-"))
    try:
        costs = measure(folder / "results", folder / "index", given.runs, given.records)
    finally:
        if not given.folder:
            shutil.rmtree(folder)
    figures = {
        "command": " ".join(["python", "benchmarks/query_speed.py", *sys.argv[1:]]),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "load_average": round(os.getloadavg()[0], 1),
        "runs": given.runs,
        "records": given.runs * given.records,
        "costs": {name: cost._asdict() for name, cost in costs.items()},
    }
    if given.out:
        given.out.write_text(json.dumps(figures, indent=2) + "\n")


def measure(results: Path, index: Path, runs: int, records: int) -> dict[str, Cost]:
    """Measure, print and return the costs of each question."""
    for number in range(runs):
        make_run(results, number, records)
    size = sum(path.stat().st_size for path in results.glob("*/metrics.jsonl"))
    print(f"{runs:,} runs, {runs * records:,} records, {size / 1e9:.2f} GB of JSON lines")
    lines = timed(
        [sys.executable, "-c", "import duckdb, sys; print(duckdb.sql(sys.argv[1]).fetchall())",
         JSON_LINES.format(folder=results)]
    )  # fmt: skip
    print(f"without the index: {shown(lines)}")
    costs = {"without the index": lines}
    ask = [sys.executable, "-m", "agent", "query", "--results-dir", str(results), "--index-dir", str(index)]
    first = costs["making the index"] = timed([*ask, "SELECT count(*) FROM runs", "--csv"])
    on_disk = sum(path.stat().st_size for path in index.glob("*.duckdb"))
    print(f"the first question makes the index: {shown(first)}, {on_disk / 1e6:.0f} MB on the disk")
    for name, sql in {"headline": HEADLINE, "one metric by host": ONE_METRIC}.items():
        found = [timed([*ask, sql, "--csv"]) for _ in range(TIMES)]
        costs[name] = sorted(found)[TIMES // 2]
        print(f"{name}: {shown(costs[name])}; slowest of {TIMES}: {max(found).seconds:.2f} s")
    make_run(results, runs, records)
    more = costs["headline after one more run"] = timed([*ask, HEADLINE, "--csv"])
    print(f"headline after one more run: {shown(more)}")
    return costs


class Cost(NamedTuple):
    """The cost of a command: seconds, CPU seconds, and peak memory in MB."""

    seconds: float
    cpu_s: float
    memory_mb: float


def shown(cost: Cost) -> str:
    """Return a cost as text."""
    return f"{cost.seconds:.2f} s ({cost.cpu_s:.2f} s of processor), {cost.memory_mb:.0f} MB of memory"


def timed(command: list[str]) -> Cost:
    """Run a command and measure it."""
    began = time.monotonic()
    root = Path(__file__).parents[1]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(root)}
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(round(seconds, 2), round(cpu_s, 2), round(usage.ru_maxrss / 1024))


def make_run(results: Path, number: int, records: int) -> None:
    """Write a run with one case, its headline numbers, and what a monitor recorded."""
    start = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(minutes=10 * number)
    run_id = f"{start:%Y%m%dT%H%M%SZ}-bench-{number % 65536:04x}"
    folder = results / run_id
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    scenario = f"llama3.1-8b/{('Offline', 'Server')[number % 2]}/performance"
    host = f"host-{number % 64:03d}"
    times = {"start": start.isoformat(), "end": (start + timedelta(minutes=9)).isoformat()}
    verdict = "INVALID" if number % 10 == 9 else "VALID"
    document = {
        "schema_version": 1, "run_id": run_id, "experiment_id": f"e{number // 100}", "client_id": host,
        "profile": {"name": "PERF-GPU-MLPERF", "parameters": {"scenario": scenario}}, **times,
        "verdict": {"validity": verdict}, "exit_code": 0 if verdict == "VALID" else 7,
        "cases": [{"scenario": scenario, "tool_name": "loadgen", "validity": verdict, **times}],
        "steps": [{"key": f"step{step}", "name": "run", "status": "done", **times} for step in range(8)],
    }  # fmt: skip
    common = {
        "experiment_id": f"e{number // 100}", "run_id": run_id, "client_id": host,
        "profile": "PERF-GPU-MLPERF", "tool_version": "6.0.17",
    }  # fmt: skip
    measured = {**common, "tool_name": "loadgen", "scenario": scenario}
    watched = {**common, "tool_name": "NvidiaSmiMonitor", "scenario": ""}
    lines = [
        line(record_id, start, measured, name=name, value=100 + number % 7 + record_id, unit=unit, level=1)
        for record_id, (name, unit) in enumerate(HEADLINES.items())
    ]
    forms = [
        line(0, start, watched, name=f"gpu{gpu}_{name}", value=1.5, unit=unit, level=2)
        for gpu in range(8)
        for name, unit in GAUGES.items()
    ]
    forms = [
        form.replace('"record_id": 0', '"record_id": %d').replace('"value": 1.5', '"value": %.6f')
        for form in forms
    ]
    for record_id in range(len(lines), records):
        lines.append(  # noqa: PERF401 - a million lines a second
            forms[record_id % len(forms)] % (record_id, 300 + (record_id * 7919 + number) % 4001 / 10)
        )
    (folder / "run.json").write_text(json.dumps(document, indent=2))
    (folder / "metrics.jsonl").write_text("".join(lines[:records]))


def line(
    record_id: int,
    moment: datetime,
    common: dict[str, str],
    *,
    name: str,
    value: float,
    unit: str,
    level: int,
) -> str:
    """Return a line of metrics.jsonl."""
    times = dict.fromkeys(("timestamp", "scenario_start", "scenario_end"), moment.isoformat())
    values = {
        "record_id": record_id, **times, **common, "metric": name, "value": value, "unit": unit,
        "relativity": "Undefined", "verbosity": level, "description": name.replace("_", " "), "tags": [],
        "metadata": {"gpu_index": record_id % 8, "context_id": "0f3a1c5b7d9e2f46"},
    }  # fmt: skip
    return json.dumps(values) + "\n"


if __name__ == "__main__":
    main()
