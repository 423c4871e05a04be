"""Compare clients of an endpoint, in CPU time and in results: EndpointSweep, guidellm and aiperf.

Usage: ``PYTHON benchmarks/endpoint_clients.py --client PYTHON --guidellm PROGRAM --aiperf PROGRAM [--out
FILE]``. PYTHON has vcagent's dependencies, ``--client`` is the Python of an environment with aiohttp. The
other two are programs in environments of their own (``pip install guidellm``, ``pip install aiperf``). One
that is not given is left out.

All ask the same server, the mock engine of the tests, for the same load: Poisson arrivals at ``--rate``
requests/s, prompts of 64 and answers of 8 tokens. guidellm and aiperf may use two worker processes: their
defaults are for larger hosts. Each runs a short and a long test. The CPU time of a client is the difference
between the two, with all of its child processes: what it takes to start, to import and to report cancels
out. Rounds go through all contenders in turn, so that a busy host hurts them alike; figures are medians.
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
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
IN_ENVIRONMENT = ROOT / "actions" / "loadgen" / "in_environment"
INPUT, OUTPUT = 64, 8
FIRST_TOKEN_S, TOKEN_S = 0.1, 0.02
TOKENIZER = "local/bytes"
WORKERS = 2
LIMIT_S = 600
MS = 1e-3
Figures = dict[str, float]


def byte_characters() -> list[str]:
    """Return the characters that stand for the 256 bytes in byte-level tokenizers (GPT-2's encoder.py)."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(256)]


def write_tokenizer(home: Path) -> None:
    """Write a tokenizer with a token for each byte where Hugging Face's libraries look without a network."""
    cache = home / "hub" / f"models--{TOKENIZER.replace('/', '--')}"
    folder = cache / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = {character: number for number, character in enumerate([*byte_characters(), "<eos>"])}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": 256, "content": "<eos>", "special": True, **flags}],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    special = dict.fromkeys(("eos_token", "bos_token", "pad_token"), "<eos>")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 100_000, **special}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text('{"model_type": "llama"}')


def vcagent(program: str, url: str, requests: int, rate: float, folder: Path) -> tuple[list[str], Any]:
    """Return the command of EndpointSweep's client, and what reads its figures."""
    sys.path.insert(0, str(ROOT))
    from actions.endpoint.loads import Lengths, Prompts, poisson_arrivals
    from parsers.endpoint_load.folder import LOAD_FILE, RESULT_FILE, parse_folder

    prompts, samples = Prompts("benchmark"), folder / "samples.jsonl"
    rows = (
        {"token_ids": prompts.token_ids(Lengths(INPUT, OUTPUT)), "max_output_tokens": OUTPUT}
        for _ in range(requests)
    )
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    load = {
        "output_dir": str(folder),
        "dataset": str(samples),
        "backend": {"type": "openai", "url": url, "request": {"ignore_eos": True}, "max_in_flight": 4096},
        "duration_s": requests / rate,
        "arrivals_s": poisson_arrivals(rate, requests, "benchmark"),
    }
    config = {"load": load, "about": {"rate": rate}, "result": str(folder / RESULT_FILE)}
    (folder / LOAD_FILE).write_text(json.dumps(config))
    runner = ROOT / "agent" / "component" / "in_environment" / "run_program.py"

    def figures() -> Figures:
        found = {metric.name: metric.value for metric in parse_folder(folder).metrics}
        names = {
            "ttft_mean_s": "ttft_mean",
            "tpot_mean_s": "tpot_mean",
            "requests_per_s": "requests_per_second",
        }
        return {name: found[theirs] for name, theirs in names.items()}

    return [program, str(runner), "harness.endpoint_load", str(folder / LOAD_FILE)], figures


def aiperf(program: str, url: str, requests: int, rate: float, folder: Path) -> tuple[list[str], Any]:
    """Return aiperf's command, and what reads its figures."""
    command = [
        program, "profile", "--model", "mock", "--url", url, "--endpoint-type", "completions", "--streaming",
        "--tokenizer", TOKENIZER, "--request-rate", f"{rate:g}", "--arrival-pattern", "poisson",
        "--request-count", str(requests), "--isl", str(INPUT), "--osl", str(OUTPUT),
        "--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--random-seed", "1",
        "--artifact-dir", str(folder), "--ui", "none", "--workers-max", str(WORKERS), "--no-gpu-telemetry",
        "--no-server-metrics",
    ]  # fmt: skip

    def figures() -> Figures:
        found = json.loads((folder / "profile_export_aiperf.json").read_text())
        return {
            "ttft_mean_s": found["time_to_first_token"]["avg"] * MS,
            "tpot_mean_s": found["inter_token_latency"]["avg"] * MS,
            "requests_per_s": found["request_throughput"]["avg"],
        }

    return command, figures


def guidellm(program: str, url: str, requests: int, rate: float, folder: Path) -> tuple[list[str], Any]:
    """Return guidellm's command, and what reads its figures."""
    out = folder / "guidellm.json"
    command = [
        program, "run", "--backend", f"kind=openai_http,target={url},request_format=/v1/completions",
        "--profile", f"kind=poisson,rate={rate:g}", "--constraint", f"kind=max_requests,count={requests}",
        "--tokenizer", f"kind=hf_auto,model={TOKENIZER}",
        "--data", f"kind=synthetic_text,prompt_tokens={INPUT},output_tokens={OUTPUT}",
        "--output", f"kind=json,path={out}", "--disable-progress",
    ]  # fmt: skip

    def figures() -> Figures:
        (found,) = json.loads(out.read_text())["benchmarks"]
        metrics = found["metrics"]
        return {
            "ttft_mean_s": metrics["time_to_first_token_ms"]["successful"]["mean"] * MS,
            "tpot_mean_s": metrics["inter_token_latency_ms"]["successful"]["mean"] * MS,
            "requests_per_s": metrics["requests_per_second"]["successful"]["mean"],
        }

    return command, figures


CONTENDERS: dict[str, Callable[..., tuple[list[str], Any]]] = {
    "vcagent": vcagent,
    "guidellm": guidellm,
    "aiperf": aiperf,
}


def measure(name: str, program: str, url: str, seconds: float, rate: float) -> tuple[float, Figures]:
    """Run one test; return the CPU seconds of the client with its children, and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        command, figures = CONTENDERS[name](program, url, round(seconds * rate), rate, Path(folder))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode:
            raise SystemExit(f"{name} failed:\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}")
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return used_s, figures()


def start_server(python: str) -> tuple[subprocess.Popen[str], str]:
    """Start the mock engine; it is waited for only at the end, so that its CPU time counts for no client."""
    server = subprocess.Popen(
        [python, "-m", "mock_engine", "--port=0", "--no-echo",
         f"--first-token-s={FIRST_TOKEN_S}", f"--token-s={TOKEN_S}"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(IN_ENVIRONMENT)},
    )  # fmt: skip
    assert server.stdout is not None
    return server, f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"


def versions(programs: dict[str, str]) -> dict[str, str]:
    """Return each contender's version, by its environment's own metadata."""
    code = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    names = {"vcagent": "aiohttp", "guidellm": "guidellm", "aiperf": "aiperf"}
    found = {}
    for name, program in programs.items():
        python = program if name == "vcagent" else str(Path(program).with_name("python"))
        said = subprocess.run([python, "-c", code, names[name]], capture_output=True, text=True, check=True)
        found[names[name]] = said.stdout.strip()
    return found


def summary(rows: list[dict[str, Any]], rate: float, apart_s: float) -> dict[str, Any]:
    """Return the medians of a contender, and how far its rounds are apart."""
    cpu = [(row["long_cpu_s"] - row["short_cpu_s"]) / apart_s for row in rows]
    figures = {
        name: statistics.median(row[name] for row in rows) for name in rows[0] if not name.endswith("cpu_s")
    }
    return {
        "cpu_cores_at_rate": round(statistics.median(cpu), 4),
        "cpu_cores_of_each_round": [round(value, 4) for value in cpu],
        "cpu_ms_per_request": round(statistics.median(cpu) / rate * 1000, 3),
        **{name: round(value, 5) for name, value in figures.items()},
        "rounds": rows,
    }


def store(
    asked: argparse.Namespace,
    programs: dict[str, str],
    rows: dict[str, list[dict[str, Any]]],
    load_before: tuple[float, float, float],
) -> dict[str, Any]:
    """Write what was measured so far, and return it."""
    short_s, long_s = asked.seconds
    result: dict[str, Any] = {
        "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": "python benchmarks/endpoint_clients.py --client PYTHON --guidellm PROGRAM --aiperf PROGRAM"
                   f" --rate {asked.rate:g} --seconds {short_s:g} {long_s:g} --rounds {asked.rounds}",
        "host": {"cpus": os.cpu_count(), "machine": platform.machine(), "load_before": load_before,
                 "load_after": os.getloadavg()},
        "python": platform.python_version(),
        "versions": versions(programs),
        "load": {"requests_per_s": asked.rate, "arrivals": "poisson",
                 "input_tokens": INPUT, "output_tokens": OUTPUT, "most_worker_processes": WORKERS,
                 "server": {"first_token_s": FIRST_TOKEN_S, "token_s": TOKEN_S},
                 "short_s": short_s, "long_s": long_s},
        "contenders": {name: summary(found, asked.rate, long_s - short_s) for name, found in rows.items()},
    }  # fmt: skip
    asked.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--client", required=True, help="Python with aiohttp")
    parser.add_argument("--guidellm", default="")
    parser.add_argument("--aiperf", default="")
    parser.add_argument("--rate", type=float, default=100.0, help="requests/s")
    parser.add_argument(
        "--seconds", type=float, nargs=2, default=(3.0, 15.0), help="of the short and long test"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "endpoint_clients.json")
    asked = parser.parse_args()
    short_s, long_s = asked.seconds
    given = {"vcagent": asked.client, "guidellm": asked.guidellm, "aiperf": asked.aiperf}
    programs = {name: program for name, program in given.items() if program}
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory() as home:
        write_tokenizer(Path(home))
        os.environ.update(
            HF_HOME=home,
            HF_HUB_OFFLINE="1",
            GUIDELLM__MAX_WORKER_PROCESSES=str(WORKERS),
            PYTHONPATH=str(IN_ENVIRONMENT),
            PYTHONUNBUFFERED="1",
        )
        server, url = start_server(asked.client)
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
        try:
            for number in range(asked.rounds):
                for name, program in programs.items():
                    began = time.monotonic()
                    short_cpu_s, _ = measure(name, program, url, short_s, asked.rate)
                    long_cpu_s, figures = measure(name, program, url, long_s, asked.rate)
                    rows[name].append({"short_cpu_s": short_cpu_s, "long_cpu_s": long_cpu_s, **figures})
                    print(
                        f"round {number + 1}: {name}, {time.monotonic() - began:.0f} s: {rows[name][-1]}",
                        flush=True,
                    )
                result = store(asked, programs, rows, load_before)
        finally:
            server.kill()
    for name, found in result["contenders"].items():
        print(name, json.dumps({key: value for key, value in found.items() if key != "rounds"}, indent=2))


if __name__ == "__main__":
    main()
