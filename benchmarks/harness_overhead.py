"""Measures the harness's cost: LoadGen alone beside the harness with the null backend, in one run.

Usage: ``BENCH_PYTHON benchmarks/harness_overhead.py [--rounds 5] [--out FILE]``, where BENCH_PYTHON is the
Python of an environment with mlcommons-loadgen. Three contenders answer LoadGen's queries with nothing:

- ``inline``: LoadGen's callback answers in LoadGen's own thread. No engine can work this way; it is LoadGen's
  own speed from Python.
- ``queue``: the callback puts each sample into a ``SimpleQueue``, and a worker thread answers it: the least
  that a harness with an engine beside LoadGen can do, sample by sample.
- ``harness``: this project's, whole: event loop, progress, watchdog; without and with ``samples.csv``.

Also measures the cost of reading a streamed reply, without and with all checks (``reply_cpu``).

Rounds go through all contenders in turn, so that a busy host affects them equally; numbers are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOKENS = 8
LIMIT_MS = 100
CONTENDERS = ("inline", "queue", "harness", "harness_recording")
Settings = dict[str, float]


def answer_inline(lg: Any, *, tokens: bool, first: bool) -> tuple[Any, Any]:
    """Return the callbacks of a system that answers in LoadGen's thread."""
    response, data = lg.QuerySampleResponse, array("B", b"null " * TOKENS)
    address, size = data.buffer_info()

    def issue(ids: list[int], indices: list[int]) -> None:
        del indices
        if first:
            lg.FirstTokenComplete([response(sample, address, 5) for sample in ids])
        lg.QuerySamplesComplete([response(sample, address, size, TOKENS * tokens) for sample in ids])

    issue.data = data  # type: ignore[attr-defined]  # keeps the bytes alive
    return issue, lambda: None


def answer_queued(lg: Any, *, tokens: bool, first: bool) -> tuple[Any, Any]:
    """Return the callbacks of a system with a queue and a worker thread."""
    answer, _ = answer_inline(lg, tokens=tokens, first=first)
    waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def work() -> None:
        while (sample := waiting.get()) is not None:
            answer([sample], [0])

    worker = threading.Thread(target=work)
    worker.start()

    def issue(ids: list[int], indices: list[int]) -> None:
        del indices
        for sample in ids:
            waiting.put(sample)

    def stop() -> None:
        waiting.put(None)
        worker.join()

    return issue, stop


def run_bare(contender: str, scenario: str, settings: Settings, folder: Path) -> None:
    """Run one LoadGen test in this process, without the harness."""
    import mlperf_loadgen as lg

    test = lg.TestSettings()
    conf = folder / "user.conf"
    conf.write_text("".join(f"*.{scenario}.{name} = {value}\n" for name, value in settings.items()))
    assert test.FromConfig(str(conf), "tiny", scenario) == 0
    test.scenario = getattr(lg.TestScenario, scenario)
    test.mode = lg.TestMode.PerformanceOnly
    logs, output = lg.LogSettings(), lg.LogOutputSettings()
    output.outdir = str(folder)
    logs.log_output, logs.enable_trace = output, False
    make = {"inline": answer_inline, "queue": answer_queued}[contender]
    tokens = bool(settings["use_token_latencies"])
    issue, stop = make(lg, tokens=tokens, first=tokens and scenario != "Offline")
    sut = lg.ConstructFastSUT(issue, lambda: None)
    qsl = lg.ConstructQSL(1024, 1024, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(sut, qsl, test, logs, str(folder / "no_audit_config"))
    stop()
    lg.DestroyQSL(qsl)
    lg.DestroyFastSUT(sut)


def measure(contender: str, scenario: str, **settings: float) -> dict[str, Any]:
    """Run one test in a process of its own; return the results in LoadGen's detail log."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if contender in {"inline", "queue"}:
            arguments = [__file__, "--bare", contender, scenario, json.dumps(settings), name]
        else:
            data = folder / "data.jsonl"
            data.write_text('{"prompt": "null"}\n' * 1024)
            config = {
                "scenario": scenario,
                "mode": "performance",
                "model": "tiny",
                "output_dir": name,
                "dataset": str(data),
                "backend": {"type": "null", "tokens": TOKENS * int(settings["use_token_latencies"])},
                "settings": settings,
                "record_samples": contender == "harness_recording",
            }
            (folder / "config.json").write_text(json.dumps(config))
            arguments = ["-m", "harness", str(folder / "config.json")]
        subprocess.run(
            [sys.executable, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT / "actions" / "loadgen" / "in_environment")},
        )
        lines = (folder / "mlperf_log_detail.txt").read_text().splitlines()
    entries = (json.loads(line.split(":::MLLOG ", 1)[1]) for line in lines)
    found = {entry["key"]: entry["value"] for entry in entries}
    assert found["num_errors"] == 0, (contender, scenario, settings)
    return found


def offline(contender: str, *, tokens: int) -> float:
    """Return the samples/s of 440,000 samples issued at once."""
    found = measure(
        contender,
        "Offline",
        target_qps=400_000,
        min_duration=1000,
        min_query_count=1,
        use_token_latencies=tokens,
    )
    return float(found["result_samples_per_second"])


def single_stream(contender: str) -> float:
    """Return the median seconds from LoadGen's query to its answer's arrival, one query at a time."""
    found = measure(
        contender,
        "SingleStream",
        target_latency=0.002,
        min_duration=700,
        min_query_count=1000,
        use_token_latencies=1,
    )
    return float(found["result_50.00_percentile_latency_ns"]) / 1e9


def server_holds(contender: str, rate: float) -> bool:
    """Return True if a second of this rate is VALID, with both limits at LIMIT_MS."""
    limits: Settings = {"ttft_latency": LIMIT_MS, "tpot_latency": LIMIT_MS}
    found = measure(
        contender,
        "Server",
        target_qps=round(rate),
        min_duration=1000,
        min_query_count=1,
        use_token_latencies=1,
        target_latency=0,
        **limits,
    )
    return bool(found["result_validity"] == "VALID")


def server(contender: str) -> float:
    """Return the highest VALID rate (queries/s), within 4 %: doubled until INVALID, then bisected."""
    good, bad = 0.0, 12_500.0
    while _holds_once_in_two(contender, bad):
        good, bad = bad, 2 * bad
    while good and bad / good > 1.04:
        middle = (good * bad) ** 0.5
        if _holds_once_in_two(contender, middle):
            good = middle
        else:
            bad = middle
    return good


def _holds_once_in_two(contender: str, rate: float) -> bool:
    """Return True if one of two tries holds, because other processes can affect one run's p99."""
    return server_holds(contender, rate) or server_holds(contender, rate)


def reply_cpu(contender: str) -> float:
    """Return the CPU seconds for a streamed reply of 128 tokens: ``read`` alone, or ``checked`` too."""
    sys.path.insert(0, str(ROOT / "actions" / "loadgen" / "in_environment"))
    from harness.completion import CompletionReader
    from harness.dataset import Sample
    from harness.reply_log import Reply, ReplyLog

    samples = [Sample(str(number), f"prompt {number} " + "word " * 500) for number in range(1000)]
    log = ReplyLog(samples, ["tiny"], 128, distinct=True)
    usage = {"prompt_tokens": 502, "completion_tokens": 128}
    replies = []
    for number in range(1000):
        head = {"id": f"cmpl-{number}", "model": "tiny", "created": 1, "object": "text_completion"}
        texts = [{"index": 0, "text": f" {number}w{place}", "finish_reason": None} for place in range(128)]
        texts[-1]["finish_reason"] = "length"
        events = [{**head, "choices": [text]} for text in texts] + [{**head, "choices": [], "usage": usage}]
        replies.append([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events])
    began_s = time.process_time()
    for number, events in enumerate(replies):
        reader = CompletionReader()
        for event in events:
            reader.feed(event)
        reader.feed(b"data: [DONE]\n\n")
        tokens, source = reader.token_count()
        data = reader.text.encode()
        if contender == "checked":
            moments = *((0.1 * place, place) for place in range(1, 10)), (1.0, 128)
            log.note(Reply(number, reader, data, tokens, source, 0.0, moments, 1.1))
    return (time.process_time() - began_s) / len(replies)


MEASUREMENTS = {
    "offline": (lambda contender: offline(contender, tokens=0), "samples/s", CONTENDERS),
    "offline_tokens": (lambda contender: offline(contender, tokens=1), "samples/s", CONTENDERS),
    "server_tokens": (server, "queries/s", CONTENDERS),
    "single_stream_latency_p50": (single_stream, "seconds", CONTENDERS),
    "reply_cpu": (reply_cpu, "seconds", ("read", "checked")),
}


def main() -> None:
    """Measure everything and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=MEASUREMENTS, action="append")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/harness_overhead.json")
    parser.add_argument("--bare", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        contender, scenario, settings, folder = arguments.bare
        run_bare(contender, scenario, json.loads(settings), Path(folder))
        return
    results: dict[str, Any] = {}
    load_before = os.getloadavg()[0]
    for name in arguments.only or MEASUREMENTS:
        run, unit, contenders = MEASUREMENTS[name]
        found: dict[str, list[float]] = {contender: [] for contender in contenders}
        rounds = min(arguments.rounds, 3) if run is server else arguments.rounds  # a round has many runs
        for _ in range(rounds):
            for contender in contenders:
                found[contender].append(run(contender))
        medians = {contender: statistics.median(values) for contender, values in found.items()}
        results[name] = {"unit": unit, "median": medians, "rounds": found}
        print(name, unit, {contender: f"{value:.6g}" for contender, value in medians.items()}, flush=True)
    cpu = next(
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    )
    report = {
        "command": " ".join(["BENCH_PYTHON", "benchmarks/harness_overhead.py", *sys.argv[1:]]),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu.split(": ", 1)[1], "cpus": os.cpu_count(), "kernel": platform.release()},
        "load_average": {"before": load_before, "after": os.getloadavg()[0]},  # our own load adds up to 2
        "versions": {"python": platform.python_version(), "mlcommons-loadgen": version("mlcommons-loadgen")},
        "results": results,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
