"""Measures how fast the LoadGen parser reads a large detail log, beside json.loads over the same lines.

    python benchmarks/parser_speed.py [--size-mb 1000] [--repeats 3] [--results FILE]

The log is made of real LoadGen lines (tests/parsers/loadgen): those before a run's results repeated, a
set of 13368 samples now and then, then the results. Both readers run in a process of their own, in turn, so
that other load on the machine affects both; medians are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tests/parsers/loadgen/logs/server_v6_0_valid/mlperf_log_detail.txt"
RESULTS = ROOT / "benchmarks/results/parser_speed.json"
READERS = ("json_loads", "parser")
SAMPLE_SET_EVERY = 500  # rounds of the log's lines
WANTED_SHARE = 1 / 3  # of json.loads' speed

ONCE = (b'"loadgen_version"', b'"test_datetime"', b'"requested_', b'"effective_')
"""Keys that a run writes once: repeating them would make it a log of several runs."""


def make_log(path: Path, size_bytes: int) -> int:
    """Write a log of about this size; return the number of lines."""
    lines = SOURCE.read_bytes().splitlines(keepends=True)
    first_result = next(index for index, line in enumerate(lines) if b'"result_validity"' in line)
    body, results = lines[:first_result], lines[first_result:]
    once = [line for line in body if any(key in line for key in ONCE)]
    body = [line for line in body if line not in once]
    samples = ",".join(str(number * 7919 % 13368) for number in range(13368)).encode()
    sample_set = body[-1].replace(b'"power_end"', b'"loaded_qsl_set"')
    value = sample_set.split(b'"value": ')[1].split(b', "time_ms"')[0]
    sample_set = sample_set.replace(value, b"[" + samples + b"]")
    chunk = b"".join(body)
    written = count = rounds = 0
    with path.open("wb") as file:
        file.write(b"".join(once))
        while written < size_bytes:
            written += file.write(chunk)
            count += len(body)
            rounds += 1
            if rounds % SAMPLE_SET_EVERY == 0:
                written += file.write(sample_set)
                count += 1
        file.write(b"".join(results))
    return count + len(once) + len(results)


def read_with_json(path: Path) -> dict[str, object]:
    """Read with the reference: json.loads over every line."""
    last: dict[str, object] = {}
    with path.open("rb") as file:
        for line in file:
            record = json.loads(line[line.index(b"{") :])
            last[record["key"]] = record["value"]
    return {"validity": last["result_validity"]}


def read_with_parser(path: Path) -> dict[str, object]:
    """Read with the parser: everything from the file to metrics and verdict."""
    sys.path.insert(0, str(ROOT))
    from parsers.loadgen import PARSER

    (output,) = PARSER.parse(path)
    assert output.verdict is not None
    return {"validity": output.verdict.validity.value, "metrics": len(output.metrics)}


def child(reader: str, path: Path) -> None:
    """Read once and print seconds and peak memory."""
    read = {"json_loads": read_with_json, "parser": read_with_parser}[reader]
    began = time.perf_counter()
    found = read(path)
    seconds = time.perf_counter() - began
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "peak_rss_bytes": peak_kib * 1024, **found}))


def measure(path: Path, repeats: int) -> dict[str, dict[str, object]]:
    """Measure both readers in turn, in several rounds; return the medians."""
    runs: dict[str, list[dict[str, float]]] = {reader: [] for reader in READERS}
    for _ in range(repeats):
        for reader in READERS:
            command = [sys.executable, __file__, "--child", reader, "--log", str(path)]
            runs[reader].append(json.loads(subprocess.check_output(command)))
    size = path.stat().st_size
    return {
        reader: {
            "median_seconds": round(seconds := statistics.median(run["seconds"] for run in found), 3),
            "seconds": [round(run["seconds"], 3) for run in found],
            "megabytes_per_second": round(size / 1e6 / seconds, 1),
            "peak_rss_bytes": max(int(run["peak_rss_bytes"]) for run in found),
            "validity": found[0]["validity"],
        }
        for reader, found in runs.items()
    }


def main() -> None:
    """Create the log, measure, print and write the results."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--size-mb", type=int, default=1000, help="size of the log in MB")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--results", type=Path, default=RESULTS)
    options.add_argument("--child", choices=READERS, help=argparse.SUPPRESS)
    options.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.child:
        child(given.child, given.log)
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "mlperf_log_detail.txt"
        lines = make_log(log, given.size_mb * 1_000_000)
        readers = measure(log, given.repeats)
        size = log.stat().st_size
    share = float(str(readers["json_loads"]["median_seconds"])) / float(
        str(readers["parser"]["median_seconds"])
    )
    report = {
        "command": f"python benchmarks/parser_speed.py --size-mb {given.size_mb} --repeats {given.repeats}",
        "python": platform.python_version(),
        "machine": {"platform": platform.platform(), "cpu": cpu_name(), "cores": os.cpu_count()},
        "log_bytes": size,
        "log_lines": lines,
        "readers": readers,
        "parser_speed_over_json_loads": round(share, 2),
        "fast_enough": share >= WANTED_SHARE,
    }
    print(json.dumps(report, indent=2))
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(0 if share >= WANTED_SHARE else 1)


def cpu_name() -> str:
    """Return the processor's name as reported by the kernel."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
