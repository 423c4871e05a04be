"""Measures the cost of NvidiaSmiMonitor and HostMonitor, and their records, with all record processing.

    python benchmarks/gpu_monitor_cost.py [--seconds 60] [--stand-in GPUS] [--results FILE]

Needs only vcagent's own requirements: no engine, no network. Each monitor runs for that time at its
default interval, into a journal and both files as in a run; its share of a core is the process's CPU time
(user and system) over the time. With --stand-in the tests' libnvidia-ml is built (it needs cc) and answers
for that many GPUs: the result is then the monitor's own cost, without that of NVIDIA's library and driver.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tests/lab/nvml/libnvidia_ml.c"
WANTED_SHARE = 0.005
SHOWN = 24
READS = 20
OTHER_GPUS = re.compile(r"gpu[1-9]")
"""Omitted from the output: equivalent to GPU 0."""


def stand_in(gpus: int, folder: Path) -> None:
    """Run this script again with the stand-in's library first on the loader's path."""
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
    state = folder / "state"
    state.write_text(f"gpus {gpus}\n")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "FAKE_NVML_STATE": str(state),
    }
    arguments = [argument for argument in sys.argv[1:] if argument != "--stand-in" and argument != str(gpus)]
    code = subprocess.call([sys.executable, __file__, *arguments, "--stood-in"], env=environment)
    sys.exit(code)


def measure(kind: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Run one monitor; return its cost and its records."""
    from actions.monitors.host import HostMonitor
    from actions.monitors.interval import IntervalParameters
    from actions.monitors.nvidia_smi import NvidiaSmiMonitor
    from agent.component.component import MonitorContext
    from agent.facts import Facts
    from agent.host.processes import LocalProcesses
    from agent.run.recorder import Recorder, RunContext
    from agent.sinks import CsvSink, JsonlSink
    from agent.store.journal import Journal

    monitor = {"NvidiaSmiMonitor": NvidiaSmiMonitor, "HostMonitor": HostMonitor}[kind](IntervalParameters())
    folder.mkdir()
    processes, stop, log = LocalProcesses("r"), threading.Event(), folder / "monitor.log"
    with Journal(folder / "journal.sqlite") as journal:
        sinks = [JsonlSink(folder / "metrics.jsonl"), CsvSink(folder / "metrics.csv", {})]
        context = RunContext("experiment", "run", "host", "cost")
        recorder = Recorder(journal, sinks, context, folder, processes.secrets.mask)

        def emit(metrics: Any) -> None:
            recorder.emit(kind, "cost", "", "", metrics)

        thread = threading.Thread(
            target=monitor.watch, args=(MonitorContext(emit, stop, Facts(None, {}), processes, log),)
        )
        thread.start()
        time.sleep(2)  # exclude imports and the first reading
        start, began_s, cpu_s = datetime.now(timezone.utc), time.monotonic(), time.process_time()
        time.sleep(seconds)
        spent_s, elapsed_s = time.process_time() - cpu_s, time.monotonic() - began_s
        summary = monitor.summary(start, datetime.now(timezone.utc))
        stop.set()
        thread.join()
        recorder.feed()
    lines = (folder / "metrics.jsonl").read_text().splitlines() if (folder / "metrics.jsonl").exists() else []
    records = [json.loads(line) for line in lines]
    names = {}
    for record in records:
        names.setdefault(
            record["metric"], {key: record[key] for key in ("metric", "value", "unit", "metadata")}
        )
    return {
        "share_of_a_core": round(spent_s / elapsed_s, 5),
        "seconds": round(elapsed_s, 1),
        "records": len(records),
        "metrics": [name for name in names if not OTHER_GPUS.match(name)],
        "first_records": list(names.values())[:SHOWN],
        "summary": {
            metric.name: [round(metric.value, 4), metric.unit]
            for metric in summary.metrics
            if not OTHER_GPUS.match(metric.name)
        },
        "warnings": list(summary.warnings),
        "log": log.read_text().splitlines() if log.exists() else [],
    }


def nvml_costs() -> dict[str, Any]:
    """Return the cost of one reading of all GPUs in NVML alone, in ms of CPU and of waiting."""
    from agent.facts.nvml_library import NvmlError, NvmlSession

    try:
        session = NvmlSession()
    except NvmlError as error:
        return {"error": error.message}
    costs: dict[str, Any] = {
        "driver": session.driver,
        "gpus": [dataclasses.asdict(gpu) for gpu in session.gpus],
    }
    with session:
        for slow in (False, True):
            for gpu in session.gpus:
                session.read(gpu, slow=slow)
            began_s, cpu_s = time.perf_counter(), time.thread_time()
            for _ in range(READS):
                for gpu in session.gpus:
                    session.read(gpu, slow=slow)
            costs["slow" if slow else "fast"] = {
                "cpu_ms": round((time.thread_time() - cpu_s) / READS * 1e3, 3),
                "wall_ms": round((time.perf_counter() - began_s) / READS * 1e3, 3),
            }
        costs["readings_of_gpu_0"] = dataclasses.asdict(session.read(session.gpus[0], slow=True))
    return costs


def main() -> None:
    """Measure, print and write the results."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--stand-in", type=int, metavar="GPUS")
    options.add_argument("--results", type=Path)
    options.add_argument("--stood-in", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if given.stand_in:
            stand_in(given.stand_in, folder)
        sys.path.insert(0, str(ROOT))
        found = {
            kind: measure(kind, given.seconds, folder / kind) for kind in ("NvidiaSmiMonitor", "HostMonitor")
        }
        share = found["NvidiaSmiMonitor"]["share_of_a_core"]
        report = {
            "command": f"python benchmarks/gpu_monitor_cost.py {' '.join(sys.argv[1:])}".strip(),
            "libnvidia_ml": "stand-in of tests/lab/nvml" if given.stood_in else "NVIDIA's",
            "python": platform.python_version(),
            "machine": {"platform": platform.platform(), "cores": os.cpu_count()},
            "load_average": os.getloadavg()[0],
            "nvml": nvml_costs(),
            **found,
            "wanted_share_of_a_core": WANTED_SHARE,
            "cheap_enough": share <= WANTED_SHARE,
        }
    text = json.dumps(report, indent=2)
    print(text)
    if given.results:
        given.results.parent.mkdir(parents=True, exist_ok=True)
        given.results.write_text(text + "\n")


if __name__ == "__main__":
    main()
