"""Makes the logs for tests of the LoadGen parser, by running LoadGen with a system that only sleeps.

Each case needs its own process, because LoadGen reads its configuration once per process:

    PYTHONPATH=<folder with that version's mlperf_loadgen> python make_logs.py CASE FOLDER

The logs are LoadGen's own; lines that no test reads are left out, so that a case stays small.
"""

from __future__ import annotations

import array
import queue
import sys
import tempfile
import threading
import time
from pathlib import Path

import mlperf_loadgen as lg

SEEDS = "*.*.qsl_rng_seed = 11\n*.*.sample_index_rng_seed = 12\n*.*.schedule_rng_seed = 13\n"
LLM = "m.*.use_token_latencies = 1\n*.Server.target_latency = 0\n"

# case: scenario, mode, configuration, seconds until the first token and in total, tokens reported
CASES: dict[str, tuple[str, str, str, float, float, int]] = {
    "server_v3_1_valid": (
        "Server",
        "PerformanceOnly",
        "*.Server.target_qps = 500\n*.Server.target_latency = 130\n*.*.min_duration = 2000\n",
        0,
        0.001,
        0,
    ),
    "server_v4_0_valid": (
        "Server",
        "PerformanceOnly",
        LLM + "*.Server.target_qps = 300\nm.Server.ttft_latency = 2000\nm.Server.tpot_latency = 200\n"
        "*.*.min_duration = 2000\n",
        0.001,
        0.003,
        32,
    ),
    "offline_v4_1_valid": (
        "Offline",
        "PerformanceOnly",
        LLM + "*.Offline.target_qps = 400\n*.*.min_duration = 1000\n",
        0.0005,
        0.002,
        32,
    ),
    "single_stream_v5_0_valid": (
        "SingleStream",
        "PerformanceOnly",
        LLM + "*.SingleStream.target_latency = 2\n*.*.min_duration = 1000\n",
        0.001,
        0.003,
        32,
    ),
    "server_v5_1_early_stopping": (
        "Server",
        "PerformanceOnly",
        LLM + "*.Server.target_qps = 100\nm.Server.ttft_latency = 2000\nm.Server.tpot_latency = 200\n"
        "*.*.min_duration = 2000\n*.*.min_query_count = 100\n",
        0.001,
        0.003,
        32,
    ),
    "server_v6_0_ttft_missed": (
        "Server",
        "PerformanceOnly",
        LLM + "*.Server.target_qps = 300\nm.Server.ttft_latency = 100\nm.Server.tpot_latency = 100\n"
        "m.Server.ttft_latency = 50\n*.*.min_duration = 2000\n",
        0.004,
        0.005,
        8,
    ),
    "server_v6_0_default_limit": (
        "Server",
        "PerformanceOnly",
        "*.Server.target_qps = 300\n*.*.min_duration = 2000\n",
        0,
        0.0005,
        0,
    ),
    "server_v6_0_valid": (
        "Server",
        "PerformanceOnly",
        LLM + "*.Server.target_qps = 300\nm.Server.ttft_latency = 500\nm.Server.tpot_latency = 30\n"
        "*.*.min_duration = 2000\n",
        0.001,
        0.002,
        32,
    ),
    "offline_v6_0_valid": (
        "Offline",
        "PerformanceOnly",
        LLM + "*.Offline.target_qps = 600\n*.*.min_duration = 1000\n",
        0.0005,
        0.002,
        32,
    ),
    "offline_v6_0_valid_with_errors": (
        "Offline",
        "PerformanceOnly",
        LLM + "*.Offline.target_qps = 40\n*.*.min_duration = 500\n*.*.min_query_count = 1\n",
        0.0,
        0.05,
        1,
    ),
    "offline_v6_0_min_duration": (
        "Offline",
        "PerformanceOnly",
        LLM + "*.Offline.target_qps = 1\n*.*.min_duration = 60000\n",
        0.0,
        0.002,
        32,
    ),
    "single_stream_v6_0_out_of_queries": (
        "SingleStream",
        "PerformanceOnly",
        "*.SingleStream.target_latency = 50\n*.*.min_duration = 1000\n*.*.min_query_count = 10\n",
        0,
        0.002,
        0,
    ),
    "multi_stream_v6_0_valid": (
        "MultiStream",
        "PerformanceOnly",
        (
            "*.MultiStream.target_latency = 1\n*.MultiStream.samples_per_query = 8\n*.*.min_duration = 1000\n"
            "*.*.min_query_count = 662\n"
        ),
        0,
        0.0001,
        0,
    ),
    "accuracy_v6_0": (
        "Offline",
        "AccuracyOnly",
        LLM + "*.Offline.target_qps = 400\n*.*.min_duration = 1000\n",
        0.0005,
        0.002,
        32,
    ),
    "offline_v6_0_inferred": (
        "Offline",
        "PerformanceOnly",
        (
            "*.Offline.target_qps = 600\n*.*.min_duration = 1000\n*.*.infer_token_latencies = 1\n"
            "*.*.token_latency_scaling_factor = 69\n"
        ),
        0,
        0.002,
        0,
    ),
}
UNREAD = (
    "loadgen_build", "loadgen_git", "loadgen_file_sha1", "get_sut_name", "qsl_name", "_rng_seed",
    "accuracy_log", "print_timestamps", "find_peak", "coalesce", "logger_", "loaded_qsl_set", "95.00",
    "97.00", "issue_query_threads", "issue_same", "issue_unique", "async_queries", "max_query_count",
    "_override", "max_duration",
)  # fmt: skip


def run(case: str, folder: Path) -> None:
    """Run LoadGen for one case and leave its two logs in the folder."""
    scenario, mode, configuration, first_s, last_s, tokens = CASES[case]
    buffer = array.array("i", range(max(tokens, 1)))
    address, _ = buffer.buffer_info()
    waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def serve() -> None:
        while (sample := waiting.get()) is not None:
            time.sleep(first_s)
            if tokens:
                lg.FirstTokenComplete([lg.QuerySampleResponse(sample, address, 4)])
            time.sleep(last_s - first_s)
            counted = (tokens,) if tokens else ()
            lg.QuerySamplesComplete([lg.QuerySampleResponse(sample, address, 4 * len(buffer), *counted)])

    worker = threading.Thread(target=serve)
    worker.start()
    sut = lg.ConstructSUT(lambda samples: [waiting.put(s.id) for s in samples] and None, lambda: None)
    qsl = lg.ConstructQSL(64, 64, lambda _: None, lambda _: None)
    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, scenario)
    settings.mode = getattr(lg.TestMode, mode)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write(SEEDS + configuration)
        conf.flush()
        settings.FromConfig(conf.name, "m", scenario)
    folder.mkdir(parents=True, exist_ok=True)
    outputs = lg.LogOutputSettings()
    outputs.outdir = str(folder)
    logs = lg.LogSettings()
    logs.log_output = outputs
    logs.enable_trace = False
    lg.StartTestWithLogSettings(sut, qsl, settings, logs)
    waiting.put(None)
    worker.join()


def trim(folder: Path) -> None:
    """Leave out lines that no test reads."""
    detail = folder / "mlperf_log_detail.txt"
    lines = detail.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not any(name in line.split('"value"')[0] for name in UNREAD)]
    detail.write_text("".join(kept).replace('"namespace": "mlperf::logging", ', ""))
    for path in folder.iterdir():
        if path.name not in {"mlperf_log_detail.txt", "mlperf_log_summary.txt", "expected.json"}:
            path.unlink()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
    trim(Path(sys.argv[2]))
