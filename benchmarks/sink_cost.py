"""What sinks cost: records a second that each takes, and a run with all of them beside one with none.

    python benchmarks/sink_cost.py [--records 20000] [--rounds 3] [--loadgen PROFILE]

The destinations are on this host: an OTLP receiver that decodes nothing, a folder, an endpoint. So the
figures are what the sinks themselves can do; the network and the receiver come on top. For the pair of runs, the same
profile is run in turn with and without sinks; the ratio is that of the medians of its first metric.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent.sinks import SinkContext, flush, open_sinks
from agent.sinks.event_hubs import event_of
from tests.lab.sinks.journals import HOST, filled


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


def all_sinks(folder: Path, url: str) -> list[str]:
    """Return every sink that needs nothing outside this host."""
    return [
        f"jsonl:{folder / 'jsonl'}", f"csv:{folder / 'csv'}", f"otlp:{url}", "prometheus:127.0.0.1:0",
        f"prometheus-textfile:{folder / 'vcagent.prom'}", f"pushgateway:{url}",
        f"parquet:{folder / 'parquet'}",
    ]  # fmt: skip


def rates(records: int, rounds: int, url: str) -> dict[str, float]:
    """Return the records a second that each sink takes, the median of the rounds."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with filled(folder / "run", records) as journal:
            context = SinkContext(folder / "run", "r1", HOST, journal.context)
            for _ in range(rounds):
                for asked in all_sinks(folder, url):
                    only = ",signals=metrics" if asked.startswith("otlp") else ""
                    (sink,) = open_sinks((f"{asked}{only}",), context)
                    journal.forget_sink(sink.name)
                    begin = time.perf_counter()
                    assert flush(journal, sink, wait_s=0) == ""
                    found.setdefault(asked.partition(":")[0], []).append(
                        records / (time.perf_counter() - begin)
                    )
                begin = time.perf_counter()
                for record in journal.records_after(0, records):
                    json.dumps(event_of(record, journal.context(str(record.metadata["context_id"])), HOST))
                found.setdefault("eventhubs, without sending", []).append(
                    records / (time.perf_counter() - begin)
                )
    return {name: round(statistics.median(values)) for name, values in found.items()}


def headline(profile: str, sinks: list[str], results: Path) -> float:
    """Run a profile; return its first headline number."""
    command = [sys.executable, "-m", "agent", "--profile", profile, "--results-dir", str(results), "--quiet"]
    for sink in sinks:
        command += ["--sink", sink]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode in (0, 7), ended.stderr
    rollup = json.loads((results / "latest/rollup/run_rollup.json").read_text())
    return float(rollup["cases"][0]["metrics"][0]["value"])


def pair(profile: str, rounds: int, url: str) -> dict[str, object]:
    """Return the headline number with and without sinks, and their ratio."""
    found: dict[str, list[float]] = {"none": [], "all": []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for number in range(rounds):
            # In turn, and each first in half of the rounds: what drifts counts for both.
            for kind in ("none", "all") if number % 2 else ("all", "none"):
                sinks = [*all_sinks(folder, url), f"content:{folder / 'content'}"] if kind == "all" else []
                found[kind].append(headline(profile, sinks, folder / "results"))
    medians = {kind: statistics.median(values) for kind, values in found.items()}
    return {**found, "ratio": medians["all"] / medians["none"]}


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loadgen", default="", help="a profile to run with and without sinks")
    options = parser.parse_args()
    url = receiver()
    figures: dict[str, object] = {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "load": os.getloadavg()[0],
        "records_per_s": rates(options.records, options.rounds, url),
    }
    if options.loadgen:
        figures["run"] = {"profile": Path(options.loadgen).name, **pair(options.loadgen, options.rounds, url)}
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
