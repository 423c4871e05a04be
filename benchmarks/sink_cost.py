"""What sinks cost: records in a second of processor time, and a LoadGen run with all beside one with none.

    python benchmarks/sink_cost.py [--records 20000] [--rounds 3] [--loadgen BENCH_PYTHON] [--out FILE]

The destinations are on this host: an OTLP receiver that decodes nothing, a folder, an endpoint, and the
tests' AMQP server as an event hub, which decodes and stores (it needs python-qpid-proton). So the figures are
what the sinks themselves can do; the network and the receiver come on top. BENCH_PYTHON is the Python of an
environment with mlcommons-loadgen: LoadGen then offers 100,000 queries/s for ten seconds while the host is
monitored four times a second, in turn with all sinks and with none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent.sinks import SinkContext, flush, open_sinks
from tests.lab.sinks.journals import HOST, filled
from tests.lab.sinks.padded_frames import pad_frames
from tests.lab.sinks.servers import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAB = Path(__file__).parents[1] / "tests" / "lab" / "sinks"
QUERIES_PER_S = 100_000
DURATION_MS = 10_000


class _Receiver(BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST  # noqa: N815 - the server calls it so

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def receiver() -> str:
    """Start the receiver; return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


@contextmanager
def destinations() -> Iterator[tuple[str, str]]:
    """Start the receivers; return the address for OTLP and Pushgateway, and the event hubs' settings."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, str(_LAB / "event_hub_server.py"), "PORT", scratch]
        with Server(command, Path(scratch) / "hub.log") as hub:
            key = "SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
            yield receiver(), f"eventhubs:Endpoint=sb://localhost:{hub.port}/;{key}"


def all_sinks(folder: Path, url: str, hub: str) -> list[str]:
    """Return every sink that needs nothing outside this host."""
    return [
        f"jsonl:{folder / 'jsonl'}", f"csv:{folder / 'csv'}", f"otlp:{url}", "prometheus:127.0.0.1:0",
        f"prometheus-textfile:{folder / 'vcagent.prom'}", f"pushgateway:{url}",
        f"parquet:{folder / 'parquet'}", hub,
    ]  # fmt: skip


def rates(records: int, rounds: int, url: str, hub: str) -> dict[str, float]:
    """Return the records that each sink takes in a second of the processor's time: medians of the rounds."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with filled(folder / "run", records) as journal:
            (folder / "run" / "run.json").write_text('{"run_id": "r1"}')  # for the outcomes of its steps
            context = SinkContext(folder / "run", "r1", HOST, journal.context)
            for _ in range(rounds):
                for asked in all_sinks(folder, url, hub):
                    only = ",signals=metrics" if asked.startswith(("otlp", "eventhubs")) else ""
                    (sink,) = open_sinks((f"{asked}{only}",), context)
                    journal.forget_sink(sink.name)
                    begin = time.process_time()
                    problem = flush(journal, sink, wait_s=0)
                    assert not problem, f"{sink.name}: {problem}"
                    found.setdefault(asked.partition(":")[0], []).append(
                        records / (time.process_time() - begin)
                    )
    return {name: round(statistics.median(values)) for name, values in found.items()}


def profile_of(python: str, folder: Path) -> Path:
    """Write the profile of a LoadGen run; return its path."""
    settings = json.dumps(
        {"target_qps": QUERIES_PER_S, "min_duration": DURATION_MS, "min_query_count": 1,
         "use_token_latencies": 0, "target_latency": 100}
    )  # fmt: skip
    overhead, logs = Path(__file__).with_name("harness_overhead.py"), folder / "loadgen"
    logs.mkdir()
    script = folder / "loadgen.sh"
    loadgen = f"{python} {overhead} --bare inline Server '{settings}' {logs}"
    script.write_text(f"set -e\n{loadgen}\ncat {logs}/mlperf_log_summary.txt\n")
    number = r"\s*: (?P<value>[0-9.]+)"
    rules = [
        {"Name": "completed", "Regex": f"Completed samples per second{number}", "Unit": "samples/s"},
        {"Name": "latency_mean", "Regex": f"Mean latency .ns.{number}", "Unit": "seconds", "Scale": 1e-9},
    ]
    action = {"Type": "ExecuteCommand", "Parameters": {"Command": f"sh {script}", "Metrics": rules}}
    monitor = {"Type": "HostMonitor", "Parameters": {"Interval": "00:00:00.25"}}
    path = folder / "LOADGEN.json"
    path.write_text(json.dumps({"Description": "LoadGen", "Actions": [action], "Monitors": [monitor]}))
    return path


def run_once(profile: Path, sinks: list[str], results: Path) -> dict[str, float]:
    """Run the profile; return its metrics."""
    command = [
        sys.executable,
        str(_LAB / "padded_frames.py"),
        "--profile",
        str(profile),
        "--results-dir",
        str(results),
        "--quiet",
    ]
    for sink in sinks:
        command += ["--sink", sink]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stderr
    assert "not delivered" not in ended.stdout, ended.stdout
    rollup = json.loads((results / "latest/rollup/run_rollup.json").read_text())
    return {metric["name"]: float(metric["value"]) for metric in rollup["cases"][0]["metrics"]}


def pair(python: str, rounds: int, url: str, hub: str) -> dict[str, object]:
    """Return what LoadGen measured with and without sinks, and the ratios of the medians."""
    found: dict[str, list[dict[str, float]]] = {"none": [], "all": []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        profile = profile_of(python, folder)
        for number in range(rounds):
            # In turn, and each first in half of the rounds: what drifts counts for both.
            for kind in ("none", "all") if number % 2 else ("all", "none"):
                every = [*all_sinks(folder, url, hub), f"content:{folder / 'content'}"]
                sinks = every if kind == "all" else []
                found[kind].append(run_once(profile, sinks, folder / "results"))
    medians = {
        kind: {name: statistics.median(one[name] for one in values) for name in values[0]}
        for kind, values in found.items()
    }
    ratios = {name: medians["all"][name] / value for name, value in medians["none"].items()}
    return {"rounds": found, "ratio": ratios}


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loadgen", default="", help="the Python of an environment with mlcommons-loadgen")
    parser.add_argument("--out", type=Path, help="a file for the figures")
    options = parser.parse_args()
    pad_frames()
    figures: dict[str, object] = {
        "command": " ".join(["python", "benchmarks/sink_cost.py", *sys.argv[1:]]),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "load_average": os.getloadavg()[0],
    }
    with destinations() as (url, hub):
        figures["records_per_cpu_s"] = rates(options.records, options.rounds, url, hub)
        if options.loadgen:
            figures["loadgen"] = pair(options.loadgen, options.rounds, url, hub)
            figures["load_average_after"] = os.getloadavg()[0]
    text = json.dumps(figures, indent=2) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
